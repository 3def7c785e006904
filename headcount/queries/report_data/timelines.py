"""A fleet's state over time, thinned to what a chart shows."""

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headcount.queries.report_data.percentiles import rounded
from simulator.study.replication import Replication

MOST_TIMES: Final = 150  # points of a line over time


def timeline_json(one: Replication, copies: int = 1) -> dict[str, object]:
    """One replication's state over time, in so many copies of what was simulated."""
    line, shares, counts = one.timeline, ("time_s", "kv_usage", "kv_cached"), ("running", "waiting", "preemptions")
    columns = {name: getattr(line, name) for name in shares}
    return _thinned(columns | {name: copies * getattr(line, name) for name in counts}) | {
        "warmup_s": one.warmup_s,
        "horizon_s": one.horizon_s,
    }


def samples_json(samples: NDArray[np.void], blocks: int, warmup_s: float, horizon_s: float) -> dict[str, object]:
    """The same of a simulation's own samples."""
    columns = {name: samples[name] for name in ("time_s", "running", "waiting", "preemptions")}
    columns |= {"kv_usage": samples["used_blocks"] / blocks, "kv_cached": samples["cached_blocks"] / blocks}
    return _thinned(columns) | {"warmup_s": warmup_s, "horizon_s": horizon_s}


def _thinned(columns: Mapping[str, NDArray[np.generic]]) -> dict[str, object]:
    """At most MOST_TIMES times."""
    shown = slice(None, None, -(-len(columns["time_s"]) // MOST_TIMES) or 1)
    return {name: [rounded(value) for value in values[shown].tolist()] for name, values in columns.items()}
