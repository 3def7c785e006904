"""Which limits a question holds answers to."""

from dataclasses import dataclass

from headcount.inputs.fields import Inputs, given
from simulator.engines.values import Duration, Number, Text
from simulator.study.slo import SLO, find_slo, read_ttft, slo_of
from workloads.traces.trace_file import Source


@dataclass(frozen=True)
class TTFTLimit:
    """A time, in seconds, or text of one that grows with the prompt."""

    name: str = "TIME"

    def read(self, given: object) -> float | str:
        if isinstance(given, float):  # read already
            return given
        fixed_s, token_s = read_ttft(str(given))
        return str(given) if token_s else fixed_s


@dataclass(frozen=True, kw_only=True)
class SLOInput(Inputs, heading="SLO"):
    """A named SLO, or limits of one's own."""

    slo: str | None = given(
        Text(),
        "Named SLO. The options below override its limits.",
        default_text="that of the workload: chat, rag, agent …, or of the preset that it extends; else chat's",
    )
    ttft_s: float | str | None = given(
        TTFTLimit(),
        "Limit on the time to first token; '1s + 0.1s/1K' grows with the prompt's tokens that no cache has.",
        default_text="the SLO's; chat: 1s",
        flag="ttft",
    )
    tpot_s: float | None = given(
        Duration(), "Limit on the time per output token.", default_text="the SLO's; chat: 50ms", flag="tpot"
    )
    attainment: float | None = given(
        Number("a share between 0 and 1, such as 0.95"),
        "Share of requests that must meet both limits.",
        default_text="the SLO's; chat: 0.95",
    )

    def found(self, workload: Source | None = None) -> SLO:
        """The limits of a workload. Raises HeadcountError for an unknown name, or a limit that is none."""
        name = self.slo if self.slo is not None else slo_of(workload)
        return find_slo(name, ttft_s=self.ttft_s, tpot_s=self.tpot_s, attainment=self.attainment)
