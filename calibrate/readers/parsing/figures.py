"""Which figures a run can have: beyond them a file is damaged."""

from calibrate.readers.parsing.rows import MOST_SECONDS

_SHARES = ("kv_usage", "prefix_hit_rate")
_MOST_SHARE = 1.01  # servers round
_MOST = 1e15  # of counts and rates: a million tokens a second for thirty years


def most_of(name: str) -> float:
    """The most that a figure can be, by its name in `MeasuredRun.aggregates`."""
    first = name.partition(".")[0]
    if name.startswith(_SHARES):
        return _MOST_SHARE
    is_time = first.endswith("_s") and not first.endswith("_per_s") and not name.endswith(".count")
    return MOST_SECONDS if is_time else _MOST
