"""Which limits a question holds answers to."""

from dataclasses import dataclass

from headcount.inputs.fields import Inputs, given
from simulator.engines.values import Duration, Number, Text
from simulator.study.slo import SLO, find_slo


@dataclass(frozen=True, kw_only=True)
class SLOInput(Inputs, heading="SLO"):
    """A named SLO, or limits of one's own."""

    slo: str = given(Text(), "Named SLO. The options below override its limits.", default="chat")
    ttft_s: float | None = given(Duration(), "Limit on the time to first token.", default_text="chat: 1s", flag="ttft")
    tpot_s: float | None = given(
        Duration(), "Limit on the time per output token.", default_text="chat: 50ms", flag="tpot"
    )
    attainment: float | None = given(
        Number("a share between 0 and 1, such as 0.95"),
        "Share of requests that must meet both limits.",
        default_text="chat: 0.95",
    )

    def found(self) -> SLO:
        """The limits. Raises HeadcountError for an unknown name, or a limit that is none."""
        return find_slo(self.slo, ttft_s=self.ttft_s, tpot_s=self.tpot_s, attainment=self.attainment)
