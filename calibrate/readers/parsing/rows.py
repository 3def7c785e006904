"""The requests of one run while they are read."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calibrate.measured_run import REQUEST_COLUMNS, MeasuredRun

NEEDED = {  # a source has a column for all requests or for none; a single gap leaves the request out
    "arrival_s": "no time of sending",
    "prompt_tokens": "no number of prompt tokens",
    "output_tokens": "no number of output tokens",
    "ttft_s": "no time to first token",
    "e2e_s": "no end to end time",
}
_ROUNDING_S = 1e-6
MOST_TOKENS = 10**9  # of a prompt or an answer: a file that says more is damaged
MOST_SECONDS = 10**6  # of a request or a run, eleven days
_LEAST_SECONDS = 1e-9  # less is not measured
MOST_UNIX_S = 10**11  # a clock's, in the year 5138


class RequestRows:
    """Takes requests one by one; `parts` hands over `MeasuredRun`'s requests, gaps and exclusions."""

    def __init__(self) -> None:
        self._rows: list[dict[str, float]] = []
        self._sessions: list[object] = []
        self._gaps: list[tuple[float, ...] | None] = []
        self._excluded: Counter[str] = Counter()
        self._first_s = math.inf

    def add(self, *, session: object = None, itl_s: Sequence[float] | None = None, **columns: float) -> None:
        """One finished request; columns that the source lacks are left out."""
        row = {name: columns.get(name, math.nan) for name in REQUEST_COLUMNS}
        for name in ("ttft_s", "e2e_s"):  # tools leave 0 where they measured nothing
            row[name] = math.nan if abs(row[name]) < _LEAST_SECONDS else row[name]
        self._seen(row["arrival_s"])
        self._rows.append(row)
        self._sessions.append(session)
        self._gaps.append(None if itl_s is None else tuple(itl_s))

    def exclude(self, reason: str, count: int = 1, *, arrival_s: float = math.nan) -> None:
        """Requests that cannot be used; the time of the run's first request counts them too."""
        self._excluded[reason] += count
        self._seen(arrival_s)

    def parts(self) -> dict[str, Any]:
        columns = {name: np.array([row[name] for row in self._rows], dtype=np.float64) for name in REQUEST_COLUMNS}
        has_gaps = any(gaps for gaps in self._gaps)
        needed = {name: reason for name, reason in NEEDED.items() if not np.isnan(columns[name]).all()}
        kept = [row for row in range(len(self._rows)) if self._is_usable(row, needed)]
        order = sorted(kept, key=lambda row: columns["arrival_s"][row]) if "arrival_s" in needed else kept
        table = pd.DataFrame({name: column[order] for name, column in columns.items()}, columns=list(REQUEST_COLUMNS))
        table["arrival_s"] -= self._first_s if math.isfinite(self._first_s) else 0.0
        table["session"] = self._session_numbers(order)
        return {
            "requests": table,
            "itl_s": tuple(self._gaps[row] or () for row in order) if has_gaps else None,
            "excluded": dict(self._excluded),
        }

    def _seen(self, arrival_s: float) -> None:
        if abs(arrival_s) <= MOST_UNIX_S:
            self._first_s = min(self._first_s, arrival_s)

    def _is_usable(self, row: int, needed: dict[str, str]) -> bool:
        reason = _fault(self._rows[row], self._gaps[row] or (), needed)
        if reason is not None:
            self._excluded[reason] += 1
        return reason is None

    def _session_numbers(self, order: list[int]) -> list[int]:
        number_of: dict[object, int] = {}
        names = [row if self._sessions[row] is None else str(self._sessions[row]) for row in order]
        return [number_of.setdefault(name, len(number_of)) for name in names]


def _fault(row: dict[str, float], gaps: tuple[float, ...], needed: dict[str, str]) -> str | None:
    """Why a request cannot be used."""
    for name, reason in needed.items():
        if math.isnan(row[name]):
            return reason
    faults = {
        "infinite time or count": any(math.isinf(value) for value in (*(row[name] for name in needed), *gaps)),
        "a gap that is not a number": any(math.isnan(gap) for gap in gaps),
        "no output tokens": row["output_tokens"] <= 0,
        "no prompt tokens": row["prompt_tokens"] <= 0,
        f"above {MOST_TOKENS:,} tokens": max(row["prompt_tokens"], row["output_tokens"]) > MOST_TOKENS,
        f"above {MOST_SECONDS:,} s": max(row["ttft_s"], row["e2e_s"], *gaps) > MOST_SECONDS,
        "a time of sending that no clock tells": abs(row["arrival_s"]) > MOST_UNIX_S,
        "negative duration": row["ttft_s"] < 0 or row["e2e_s"] < 0 or any(gap < -_ROUNDING_S for gap in gaps),
        "end before first token": row["e2e_s"] < row["ttft_s"] - _ROUNDING_S,
    }
    return next((reason for reason, is_so in faults.items() if is_so), None)


def figures_beside(path: Path | None, read: Callable[[Path], list[MeasuredRun]], **load: float) -> dict[str, Any]:
    """What the tool's own summary of a run adds to its requests, where that file lies beside theirs."""
    if path is None or not path.is_file():
        return {"options": {}, "load": load, "aggregates": {}, "notes": ()}
    summary = read(path)[0]
    return {
        "options": summary.options,
        "load": dict(summary.load) | load,
        "aggregates": summary.aggregates,
        "notes": (f"figures from {path.name} in the same folder",),
    }
