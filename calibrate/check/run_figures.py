"""What a run's requests amount to, beside the figures that its tool wrote."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from calibrate.measured_run import MeasuredRun

STATISTICS = ("mean", "p50", "p90", "p95", "p99")
LATENCIES = ("ttft_s", "tpot_s", "itl_s", "e2e_s")


@dataclass(frozen=True)
class Difference:
    """A figure that the requests and the tool do not agree on."""

    name: str
    here: float
    tool: float

    @property
    def relative(self) -> float:
        return self.here / self.tool - 1 if self.tool else math.inf


def request_figures(run: MeasuredRun) -> dict[str, float]:
    """Figures of the run's requests, under the names of its aggregates; without requests none.

    TPOT is (end to end − TTFT) / (output tokens − 1) per request of at least two tokens. ITL is over all gaps between
    streamed chunks. Rates are over the time from the first request's sending to the last one's end.
    """
    table = run.requests
    if table is None or table.empty:
        return {}
    several = table[table["output_tokens"] > 1]
    gaps = np.array([gap for gaps in run.itl_s or () for gap in gaps], dtype=np.float64)
    samples = {
        "ttft_s": table["ttft_s"].to_numpy(),
        "tpot_s": ((several["e2e_s"] - several["ttft_s"]) / (several["output_tokens"] - 1)).to_numpy(),
        "itl_s": gaps,
        "e2e_s": table["e2e_s"].to_numpy(),
    }
    found = {"num_finished": float(len(table))}
    for name, values in samples.items():
        known = values[~np.isnan(values)]
        if len(known):
            found[f"{name}.mean"] = float(known.mean())
            found |= {f"{name}.{q}": float(np.percentile(known, int(q[1:]))) for q in STATISTICS if q != "mean"}
    for name in ("prompt_tokens", "output_tokens"):
        if not table[name].isna().all():
            found[name] = float(table[name].sum())
    return found | _rates(run, found)


def _rates(run: MeasuredRun, found: Mapping[str, float]) -> dict[str, float]:
    table = run.requests
    assert table is not None, "rates need requests"
    span_s = float((table["arrival_s"] + table["e2e_s"]).max())
    if not span_s > 0:
        return {}
    rates = {"duration_s": span_s, "requests_per_s": len(table) / span_s}
    if "output_tokens" in found:
        rates["output_tokens_per_s"] = found["output_tokens"] / span_s
    return rates


def differences(run: MeasuredRun, tolerance: float = 0.01) -> list[Difference]:
    """Figures that the tool wrote and the requests give too, where they differ by more than the tolerance."""
    here = request_figures(run)
    found = [Difference(name, here[name], run.aggregates[name]) for name in here if name in run.aggregates]
    return [difference for difference in found if abs(difference.relative) > tolerance and _differs(difference)]


def _differs(difference: Difference) -> bool:
    """Both 0 is no difference, whatever their ratio."""
    return difference.here != difference.tool
