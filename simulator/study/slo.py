"""What latency is good enough."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from files.arguments import check_argument
from files.errors import HeadcountError
from files.names import UnknownNameError, nearest_hint

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SLO:
    """Limits in seconds that a request meets jointly (None: no limit), with the share of requests that must.

    The defaults are those of a chat service: 95 % of requests with TTFT ≤ 1 s and TPOT ≤ 50 ms.
    """

    ttft_s: float | None = 1.0
    tpot_s: float | None = 0.05
    attainment: float = 0.95

    def __post_init__(self) -> None:
        for field, kind in (("ttft_s", float | None), ("tpot_s", float | None), ("attainment", float)):
            check_argument(field, getattr(self, field), kind)
        for name, limit in (("TTFT", self.ttft_s), ("TPOT", self.tpot_s)):
            if limit is not None and not 0 < limit < float("inf"):
                raise HeadcountError(f"the {name} limit is {limit} s; it must be a finite time above 0, or absent")
        if not 0 < self.attainment < 1:
            raise HeadcountError(
                f"the attainment target is {self.attainment}; it must lie between 0 and 1, such as 0.95"
            )
        if self.ttft_s is None and self.tpot_s is None:
            raise HeadcountError("an SLO needs a TTFT limit, a TPOT limit or both")

    def misses_ttft(self, ttft_s: FloatArray) -> BoolArray:
        return np.zeros(len(ttft_s), bool) if self.ttft_s is None else ttft_s > self.ttft_s

    def misses_tpot(self, tpot_s: FloatArray) -> BoolArray:
        """NaN, an answer of one token, meets any limit."""
        return np.zeros(len(tpot_s), bool) if self.tpot_s is None else tpot_s > self.tpot_s

    def __str__(self) -> str:
        limits = []
        if self.ttft_s is not None:
            limits = [f"TTFT ≤ {self.ttft_s:g} s" if self.ttft_s >= 1 else f"TTFT ≤ {self.ttft_s * 1e3:g} ms"]
        limits += [f"TPOT ≤ {self.tpot_s * 1e3:g} ms"] if self.tpot_s is not None else []
        return f"{100 * self.attainment:.4g} % of requests with " + " and ".join(limits)


_MLPERF = "MLPerf Inference, server and interactive scenarios: limits on the 99th percentiles"

_VOICE = (
    "Headcount's: of the second within which a caller expects a reply, speech recognition, synthesis and network leave "
    "some 0.3 s; at 150 words a minute a token takes 0.3 s to speak, and synthesis needs whole clauses ahead of it"
)

_SERVER = "the limits of MLPerf Inference's server scenario for {}; the share of 95 % is Headcount's"
_READERS_WAIT = (
    "Headcount's: nobody reads along, so that 10 s until the answer begins (the longest that keeps a person's "
    "attention: Nielsen, Usability Engineering, 1993) and MLPerf's longest TPOT, 200 ms, are enough"
)

PRESETS: dict[str, tuple[SLO, str]] = {
    "chat": (SLO(), "Headcount's default"),
    "rag": (SLO(ttft_s=2.0, tpot_s=0.2), _SERVER.format("Llama-2-70B, questions with long prompts")),
    "summarize": (SLO(ttft_s=2.0, tpot_s=0.1), _SERVER.format("Llama-3.1-8B, which summarizes articles")),
    "agent": (SLO(ttft_s=3.0, tpot_s=0.08), _SERVER.format("gpt-oss-120b, a reasoning model that calls tools")),
    "reasoning": (SLO(ttft_s=2.0, tpot_s=0.08), _SERVER.format("DeepSeek-R1")),
    "code": (SLO(ttft_s=0.5, tpot_s=0.03), _SERVER.replace("server", "interactive").format("Llama-3.1-8B")),
    "batch": (SLO(ttft_s=10.0, tpot_s=0.2), _READERS_WAIT),
    "voice": (SLO(ttft_s=0.3, tpot_s=0.1), _VOICE),
    "mlperf-llama-2-70b-server": (SLO(ttft_s=2.0, tpot_s=0.2, attainment=0.99), _MLPERF),
    "mlperf-llama-2-70b-interactive": (SLO(ttft_s=0.45, tpot_s=0.04, attainment=0.99), _MLPERF),
    "mlperf-llama-3.1-8b-server": (SLO(ttft_s=2.0, tpot_s=0.1, attainment=0.99), _MLPERF),
    "mlperf-llama-3.1-8b-interactive": (SLO(ttft_s=0.5, tpot_s=0.03, attainment=0.99), _MLPERF),
    "mlperf-llama-3.1-405b-server": (SLO(ttft_s=6.0, tpot_s=0.175, attainment=0.99), _MLPERF),
    "mlperf-llama-3.1-405b-interactive": (SLO(ttft_s=4.5, tpot_s=0.08, attainment=0.99), _MLPERF),
    "mlperf-deepseek-r1-server": (SLO(ttft_s=2.0, tpot_s=0.08, attainment=0.99), _MLPERF),
    "mlperf-deepseek-r1-interactive": (SLO(ttft_s=1.5, tpot_s=0.015, attainment=0.99), _MLPERF),
    "mlperf-gpt-oss-120b-server": (SLO(ttft_s=3.0, tpot_s=0.08, attainment=0.99), _MLPERF),
    "mlperf-gpt-oss-120b-interactive": (SLO(ttft_s=2.0, tpot_s=0.02, attainment=0.99), _MLPERF),
}
"""SLOs by name, each with its source."""


def slo_of(workload: object) -> str:
    """The name of the SLO that a workload is held to where none is named: its own, or that of chat."""
    return workload if isinstance(workload, str) and workload in PRESETS else "chat"


def find_slo(
    name: str = "chat", *, ttft_s: float | None = None, tpot_s: float | None = None, attainment: float | None = None
) -> SLO:
    """The SLO of that name with what is given beside it. Raises UnknownNameError with the nearest names."""
    if name not in PRESETS:
        raise UnknownNameError(f"no SLO '{name}'; {nearest_hint(name, PRESETS)}")
    given = {"ttft_s": ttft_s, "tpot_s": tpot_s, "attainment": attainment}
    return replace(PRESETS[name][0], **{key: value for key, value in given.items() if value is not None})
