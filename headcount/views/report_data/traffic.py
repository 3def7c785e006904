"""A workload's rates, lengths and reuse, as a report draws them."""

from typing import Final

import numpy as np

from headcount.queries.report_data.percentiles import PERCENTILES, percentiles_json, rounded
from workloads.description.arrivals import counts, earliest_arrival_s
from workloads.description.description import Description
from workloads.description.reuse import PrefixReuse

MOST_WINDOWS: Final = 120
MOST_SIZES: Final = 60


def traffic_json(found: Description) -> dict[str, object]:
    """None for what the workload does not tell."""
    table = found.table
    lengths = {
        "percentiles": list(PERCENTILES),
        "prompt": percentiles_json(table.prompt_tokens.astype(float)),
        "answer": percentiles_json(table.output_tokens.astype(float)),
    }
    return {"rate": _rate(found), "lengths": lengths, "reuse": _reuse(found.reuse) if found.reuse else None}


def _rate(found: Description) -> dict[str, object] | None:
    """Requests per second over the trace."""
    if found.arrivals is None:
        return None
    times = np.sort(earliest_arrival_s(found.table))
    width_s = max(found.arrivals.duration_s / MOST_WINDOWS, 1e-9)
    rates = counts(times - times[0], width_s) / width_s
    note = f"Each step is {width_s:,.3g} s long; the mean is {found.arrivals.mean_per_s:,.3g} requests/s."
    return {
        "time_s": [rounded(place * width_s) for place in range(len(rates))],
        "per_s": [rounded(rate) for rate in rates.tolist()],
        "note": note,
    }


def _reuse(found: PrefixReuse) -> dict[str, object]:
    """Hit rate by size of the cache."""
    sizes = np.unique(np.geomspace(1, max(found.num_distinct_blocks, 2), MOST_SIZES).astype(np.int64)).tolist()
    return {
        "tokens": [size * found.block_size for size in sizes],
        "hit_rate": [rounded(found.hit_rate(size)) for size in sizes],
    }
