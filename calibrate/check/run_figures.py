"""What a run's requests amount to, beside the figures that its tool wrote."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrate.measured_run import MeasuredRun
from simulator.study.statistics import summary

LATENCIES = ("ttft_s", "tpot_s", "itl_s", "e2e_s")
OF_REQUESTS = ("ttft_s", "tpot_s", "e2e_s")  # of these, one for each request


@dataclass(frozen=True)
class Difference:
    """A figure that the requests and the tool do not agree on."""

    name: str
    here: float
    tool: float

    @property
    def relative(self) -> float:
        return self.here / self.tool - 1 if self.tool else math.inf


def latency_samples(run: MeasuredRun) -> dict[str, NDArray[np.float64]]:
    """Each latency of the run's requests, in order; of gaps between streamed chunks all in one row.

    TPOT is (end to end − TTFT) / (output tokens − 1), NaN for a request of fewer than two tokens.
    """
    assert run.requests is not None, "latencies need requests"
    ttft_s, e2e_s, output = (run.requests[name].to_numpy(np.float64) for name in ("ttft_s", "e2e_s", "output_tokens"))
    tpot_s = (e2e_s - ttft_s) / np.where(output > 1, output - 1, np.nan)
    gaps = np.array([gap for gaps in run.itl_s or () for gap in gaps], dtype=np.float64)
    return {"ttft_s": ttft_s, "tpot_s": tpot_s, "itl_s": gaps, "e2e_s": e2e_s}


def latency_figures(run: MeasuredRun) -> dict[str, float]:
    """Mean and percentiles of each latency that the run's requests tell."""
    found = {name: summary(values) for name, values in latency_samples(run).items()}
    return {
        f"{name}.{statistic}": value
        for name, figures in found.items()
        for statistic, value in figures.items()
        if value is not None
    }


def request_figures(run: MeasuredRun) -> dict[str, float]:
    """Figures of the run's requests, under the names of its aggregates; without requests none.

    Rates are over the time from the first request's sending to the last one's end.
    """
    table = run.requests
    if table is None or table.empty:
        return {}
    found = {"num_finished": float(len(table)), **latency_figures(run)}
    for name in ("prompt_tokens", "output_tokens"):
        if not table[name].isna().all():
            found[name] = float(table[name].sum())
    span_s = float((table["arrival_s"] + table["e2e_s"]).max())
    if span_s > 0:
        found |= {"duration_s": span_s, "requests_per_s": len(table) / span_s}
        if "output_tokens" in found:
            found["output_tokens_per_s"] = found["output_tokens"] / span_s
    return found


def differences(run: MeasuredRun, tolerance: float = 0.01) -> list[Difference]:
    """Figures that the tool wrote and the requests give too, where they differ by more than the tolerance."""
    here = request_figures(run)
    found = [Difference(name, here[name], run.aggregates[name]) for name in here if name in run.aggregates]
    return [each for each in found if each.here != each.tool and abs(each.relative) > tolerance]  # both 0 is none
