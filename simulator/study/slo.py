"""What latency is good enough."""

import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from files.arguments import check_argument
from files.errors import HeadcountError
from files.names import UnknownNameError, nearest_hint, shortened
from simulator.engines.values import Duration
from workloads.load import presets_of
from workloads.traces.trace_file import Source

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
    ttft_token_s: float = 0.0
    """That the limit on TTFT grows by for each token of the prompt that no cache has, in seconds."""

    def __post_init__(self) -> None:
        kinds = {"ttft_s": float | None, "tpot_s": float | None, "attainment": float, "ttft_token_s": float}
        for field, kind in kinds.items():
            check_argument(field, getattr(self, field), kind)
        if not 0 <= self.ttft_token_s < float("inf") or (self.ttft_token_s and self.ttft_s is None):
            raise HeadcountError(
                f"the TTFT limit grows by {self.ttft_token_s} s a token; it must be 0 or more, and 0 without a limit"
            )
        for name, limit in (("TTFT", self.ttft_s), ("TPOT", self.tpot_s)):
            if limit is not None and not 0 < limit < float("inf"):
                raise HeadcountError(f"the {name} limit is {limit} s; it must be a finite time above 0, or absent")
        if not 0 < self.attainment < 1:
            raise HeadcountError(
                f"the attainment target is {self.attainment}; it must lie between 0 and 1, such as 0.95"
            )
        if self.ttft_s is None and self.tpot_s is None:
            raise HeadcountError("an SLO needs a TTFT limit, a TPOT limit or both")

    def ttft_limit_s(self, new_tokens: NDArray[np.integer]) -> FloatArray:
        """[n] of requests with so many prompt tokens that no cache has; infinite where there is no limit."""
        limit_s = np.full(len(new_tokens), np.inf if self.ttft_s is None else self.ttft_s)
        return np.asarray(limit_s + self.ttft_token_s * new_tokens)

    def misses_ttft(self, ttft_s: FloatArray, new_tokens: NDArray[np.integer]) -> BoolArray:
        return np.asarray(ttft_s > self.ttft_limit_s(new_tokens))

    def with_ttft(self, factor: float) -> "SLO":
        """The limit on TTFT, where there is one, so many times as long."""
        ttft_s = None if self.ttft_s is None else self.ttft_s * factor
        return replace(self, ttft_s=ttft_s, ttft_token_s=self.ttft_token_s * factor)

    @property
    def ttft_text(self) -> str:
        """The limit on TTFT, such as `1 s` or `1 s + 0.1 s per 1,000 new tokens`; "" where there is none."""
        if self.ttft_s is None:
            return ""
        fixed = f"{_digits(self.ttft_s)} s" if self.ttft_s >= 1 else f"{_digits(self.ttft_s * 1e3)} ms"
        return fixed + (f" + {_digits(self.ttft_token_s * 1e3)} s per 1,000 new tokens" if self.ttft_token_s else "")

    def misses_tpot(self, tpot_s: FloatArray) -> BoolArray:
        """NaN, an answer of one token, meets any limit."""
        return np.zeros(len(tpot_s), bool) if self.tpot_s is None else tpot_s > self.tpot_s

    @property
    def ttft_option(self) -> str:
        """The same as `--ttft` takes it, such as `2000ms` or `'1000ms + 100ms/1K'`; "" where there is none."""
        if self.ttft_s is None:
            return ""
        fixed, more = f"{_digits(self.ttft_s * 1e3)}ms", f"{_digits(self.ttft_token_s * 1e6)}ms"
        return f"'{fixed} + {more}/1K'" if self.ttft_token_s else fixed

    def changed_from(self, other: "SLO") -> str:
        """The limits that are not another's, such as `TTFT ≤ 2 s`."""
        return " and ".join(each for each in self._limits if each not in other._limits)

    @property
    def _limits(self) -> list[str]:
        limits = [f"TTFT ≤ {self.ttft_text}"] if self.ttft_s is not None else []
        limits += [f"TPOT ≤ {self.tpot_s * 1e3:g} ms"] if self.tpot_s is not None else []
        return limits

    def __str__(self) -> str:
        return f"{100 * self.attainment:.4g} % of requests with " + " and ".join(self._limits)


def _digits(value: float) -> str:
    """Four that count, and never a power of ten."""
    return f"{float(f'{value:.4g}'):.15f}".rstrip("0").rstrip(".")


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


def slo_of(workload: Source | None) -> str:
    """The name of the SLO that a workload is held to where none is named.

    A preset's own; of a file that `extends` a preset, that preset's; chat's for any other. Raises InputError.
    """
    return next((name for name in presets_of(workload) if name in PRESETS), "chat") if workload is not None else "chat"


_PER_PROMPT = re.compile(r"^(?P<fixed>.+?)\+(?P<more>.+?)/\s*1(?:000|,000|[kK])\s*$", re.ASCII)


def read_ttft(given: float | str) -> tuple[float, float]:
    """Seconds, and seconds more for each new token: of `2s`, or of `1s + 0.1s/1K`, which adds 0.1 s per 1,000."""
    if not isinstance(given, str):
        return given, 0.0
    if "+" not in given:
        return Duration().read(given), 0.0
    match = _PER_PROMPT.match(given)
    if match is None:
        raise HeadcountError(
            f"'{shortened(given)}' is no limit on TTFT; give a time, such as 2s, or a time that grows with the tokens "
            "of the prompt that no cache has, such as '1s + 0.1s/1K'"
        )
    return Duration().read(match["fixed"]), Duration().read(match["more"]) / 1000


def find_slo(
    name: str = "chat",
    *,
    ttft_s: float | str | None = None,
    tpot_s: float | None = None,
    attainment: float | None = None,
) -> SLO:
    """The SLO of that name with what is given beside it; `ttft_s` as `read_ttft` reads it.

    Raises UnknownNameError with the nearest names.
    """
    if name not in PRESETS:
        raise UnknownNameError(f"no SLO '{name}'; {nearest_hint(name, PRESETS)}")
    limit_s, token_s = (None, None) if ttft_s is None else read_ttft(ttft_s)
    given = {"ttft_s": limit_s, "ttft_token_s": token_s, "tpot_s": tpot_s, "attainment": attainment}
    return replace(PRESETS[name][0], **{key: value for key, value in given.items() if value is not None})
