"""Measured runs beside simulated ones, as a report shows them."""

from collections.abc import Sequence
from typing import Final

from calibrate.check.runs import Checked
from files.documents import Json
from headcount.queries.report_data.percentiles import PERCENTILES, percentiles_json
from headcount.text.units import milliseconds, seconds

MOST_DISTRIBUTIONS: Final = 6
_NAMES: Final = {"ttft_s": "TTFT", "tpot_s": "TPOT", "itl_s": "ITL", "e2e_s": "E2E"}
_DRAWN: Final = ("ttft_s", "tpot_s", "e2e_s")


def latency_name(name: str) -> str:
    """Such as `mean TTFT` of `ttft_s.mean`."""
    latency, _, statistic = name.partition(".")
    return f"{statistic} {_NAMES.get(latency, latency)}".strip().replace("_", " ")


def measured_json(checked: Sequence[Checked]) -> dict[str, object]:
    """Means of each run, and the distributions of some; overloaded runs are in the table alone."""
    sound = [item for item in checked if not item.is_overloaded]
    return {
        "percentiles": list(PERCENTILES),
        "latencies": [found for name in _DRAWN if (found := _latency(sound, name))["measured_s"]],
        "rows": [row for item in checked for row in _rows(item)],
        "distributions": [found for item in sound for found in _distributions(item)][:MOST_DISTRIBUTIONS],
    }


def _latency(sound: Sequence[Checked], name: str) -> dict[str, object]:
    rows = [row for item in sound if (row := item.row(f"{name}.mean")) is not None and row.measured and row.simulated]
    return {
        "name": _NAMES[name],
        "measured_s": [row.measured for row in rows],
        "simulated_s": [row.simulated for row in rows],
    }


def _rows(item: Checked) -> list[tuple[str, ...]]:
    shows = {"ttft_s": seconds, "e2e_s": seconds}
    name = f"{item.name} (overloaded)" if item.is_overloaded else item.name
    found: list[tuple[str, ...]] = []
    for latency in _NAMES:
        row, show = item.row(f"{latency}.mean"), shows.get(latency, milliseconds)
        if row is not None:
            error = "–" if row.error_percent is None else f"{row.error_percent:+.1f} %"
            found.append((name, f"mean {_NAMES[latency]}", show(row.measured), show(row.simulated), error))
    return found


def _distributions(item: Checked) -> list[Json]:
    found = []
    for name, (measured, simulated) in item.samples.items():
        both = percentiles_json(measured), percentiles_json(simulated)
        if all(both):
            found.append({"run": item.name, "latency": _NAMES[name], "measured_s": both[0], "simulated_s": both[1]})
    return found
