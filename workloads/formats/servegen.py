"""ServeGen's data: how each client sends and how long its requests are, from which requests are drawn."""

import ast
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from files.documents import Json, read_json
from files.names import shortened
from files.reading import InputError, shown, text_lines
from files.schema import typed
from workloads.formats.parsing.cells import A_NUMBER, read_number
from workloads.formats.parsing.rows import Rows
from workloads.randomness import stream
from workloads.requests import OPEN_END, FloatArray, IntArray, independent_requests
from workloads.tenants import MOST_TENANTS, tenancy_of_names
from workloads.traces.trace_format import Recorded, TraceFormat, check_rows

_CELLS: Final = 6  # start of a window in seconds, rate, CV, family of gaps, its two parameters
_FAMILIES: Final = ("Gamma", "Weibull", "")  # none where a client was idle
_TRACE, _DATASET = "-trace.csv", "-dataset.json"
_LENGTHS: Final = ("input_tokens", "output_tokens")
_WINDOW_S: Final = 600.0  # of a client's last window
_LEAST_CV: Final = 0.01
_SEED: Final = 0  # the same requests each time, as of a recording
_DRAWN: Final = (
    "its requests are drawn, not recorded: of each client gamma gaps of each window's rate and CV, and lengths that "
    "are independent of each other"
)


def recognises(head: str) -> bool:
    """Whether it begins with a client's window, or with its lengths as text of a Python dictionary."""
    first = head.partition("\n")[0].strip().split(",")
    is_window = len(first) == _CELLS and first[0].isdigit() and first[3] in _FAMILIES
    return is_window or (head.lstrip().startswith("{") and '_tokens": "{' in head)


@dataclass(frozen=True)
class _Client:
    """One pair of files; windows in order of time."""

    name: str
    number: int
    start_s: FloatArray
    end_s: FloatArray
    rate: FloatArray
    """Requests per second."""
    cv: FloatArray
    """Of gaps."""
    lengths: Mapping[float, tuple["_Pmf | None", ...]]
    """Of prompts and answers, by the start of the time that they hold for."""

    def drawn(self, window: int) -> tuple[FloatArray, IntArray, IntArray] | float:
        """Times, prompts and answers of a window; or how many are expected, where it has no lengths.

        Gaps are a stationary renewal process in each window, so that its rate is the window's.
        """
        expected = float(self.rate[window] * (self.end_s[window] - self.start_s[window]))
        known = [start for start in self.lengths if start <= self.start_s[window]]
        pmfs = self.lengths[max(known)] if known else (None,)
        if None in pmfs:
            return expected
        rng = stream(_SEED, "arrivals", self.number, window)
        shape = 1 / max(float(self.cv[window]), _LEAST_CV) ** 2
        passed = np.array([rng.gamma(shape + 1) * rng.random() / shape])  # what is left of a gap that had begun
        while passed[-1] < expected:
            more = rng.gamma(shape, size=int(expected) + 10) / shape
            passed = np.concatenate([passed, passed[-1] + np.cumsum(more)])
        passed = passed[passed < expected]
        prompts, answers = (pmf.drawn(rng, len(passed)) for pmf in pmfs if pmf is not None)
        return self.start_s[window] + passed / self.rate[window], prompts, answers


@dataclass(frozen=True)
class _Pmf:
    tokens: IntArray
    until: FloatArray
    """Cumulative shares."""

    def drawn(self, rng: np.random.Generator, count: int) -> IntArray:
        found: IntArray = self.tokens[np.searchsorted(self.until, rng.random(count), side="right")]
        return found


def read(path: Path, _block_size: int | None, num_requests: int | None) -> Recorded:
    """A folder of chunk-N-trace.csv and chunk-N-dataset.json, or one client's pair by either name.

    Windows of all clients are drawn in order of time, as far as requests are wanted. The rate and the CV are taken from
    the windows: the parameters beside them are a fit, which for Weibull gaps does not have these moments.
    """
    rows = Rows(path, num_requests)
    rows.note(_DRAWN)
    clients = list(_clients(path, rows))
    if not clients:
        raise rows.refuse("", f"has no client with both chunk-N{_TRACE} and chunk-N{_DATASET}")
    most = math.inf if num_requests is None else num_requests
    if num_requests is None:
        check_rows(path, int(sum(float((c.rate * (c.end_s - c.start_s)).sum()) for c in clients)))
    parts, count = list[tuple[FloatArray, IntArray, IntArray, IntArray]](), 0
    for start_s in np.unique(np.concatenate([client.start_s for client in clients])).tolist():
        if count >= most and sum(int((part[0] < start_s).sum()) for part in parts) >= most:
            break
        for client in clients:
            window = int(np.searchsorted(client.start_s, start_s))
            if window == len(client.start_s) or client.start_s[window] != start_s or not client.rate[window]:
                continue
            found = client.drawn(window)
            if isinstance(found, float):
                rows.leave_out("requests (expected) of windows without lengths", round(found))
                continue
            parts.append((*found, np.full(len(found[0]), client.number)))
            count += len(found[0])
    return _recorded(rows, clients, parts)


def _recorded(
    rows: Rows, clients: list[_Client], parts: list[tuple[FloatArray, IntArray, IntArray, IntArray]]
) -> Recorded:
    if not sum(len(part[0]) for part in parts):
        raise rows.refuse("", "no client sends a request")
    times, prompts, answers, whose = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(times, kind="stable")
    table = independent_requests(
        arrival_s=times[order] - times.min(),
        prompt_tokens=prompts[order],
        output_tokens=answers[order],
    )
    if len(clients) <= MOST_TENANTS:
        names = tuple(client.name for client in clients)
        table = replace(table, tenancy=tenancy_of_names(names, whose[order].astype(np.int32)))
    return Recorded(table=table, notes=rows.notes())


def _clients(path: Path, rows: Rows) -> Iterator[_Client]:
    pairs = [path]
    if not path.is_dir() and not path.name.endswith((_TRACE, _DATASET)):
        raise rows.refuse("", f"ServeGen's files are called chunk-N{_TRACE} and chunk-N{_DATASET}; name it so")
    if path.is_dir():
        pairs = sorted(path.glob(f"*{_TRACE}"), key=lambda each: [*map(int, re.findall(r"\d+", each.name)), 0])
    number = 0
    for each in pairs:
        name = each.name.removesuffix(_TRACE).removesuffix(_DATASET)
        trace, dataset = each.with_name(name + _TRACE), each.with_name(name + _DATASET)
        if not dataset.exists() and path.is_dir():
            rows.leave_out(f"clients without {_DATASET[1:]}")
            continue
        start_s, rate, cv = _windows(trace)
        lengths = max(np.diff(start_s), default=_WINDOW_S)
        yield _Client(name, number, start_s, np.append(start_s[1:], start_s[-1] + lengths), rate, cv, _lengths(dataset))
        number += 1


def _windows(path: Path) -> tuple[FloatArray, FloatArray, FloatArray]:
    """[windows] starts in seconds, rates, CVs."""
    found = list[tuple[float, float, float]]()
    with text_lines(path) as file:
        for line, text in enumerate(file, start=1):
            cells = text.strip().split(",")
            if len(cells) != _CELLS:
                raise InputError(f"{shown(path)}, line {line}: has {len(cells)} cells; a window has {_CELLS}")
            values = [read_number(cell) for cell in cells[:3]]
            for name, cell, value in zip(("the start", "the rate", "the CV"), cells, values, strict=False):
                if value is None:
                    told = f"{name} is {shortened(cell)!r}; it must be {A_NUMBER}"
                    raise InputError(f"{shown(path)}, line {line}: {told}")
            found.append((values[0] or 0.0, values[1] or 0.0, values[2] or 0.0))
    for line, (before, after) in enumerate(pairwise(found), start=2):
        if after[0] <= before[0]:
            raise InputError(f"{shown(path)}, line {line}: begins at {after[0]:g} s, not after the window before it")
    if not found:
        raise InputError(f"{shown(path)}: the file is empty; a client has at least one window")
    start_s, rate, cv = (np.array(column) for column in zip(*found, strict=True))
    return start_s, rate, cv


def _lengths(path: Path) -> dict[float, tuple[_Pmf | None, ...]]:
    content = typed(read_json(path, "result_bytes"), dict[str, Json], path)
    found = {}
    for name, of in content.items():
        start_s = read_number(name)
        if start_s is None:
            raise InputError(f"{shown(path)}: {shortened(name)!r} is no start; it must be {A_NUMBER}")
        found[start_s] = tuple(_pmf(of.get(what), f"{shown(path)}: {shortened(name)}.{what}") for what in _LENGTHS)
    return found


def _pmf(told: object, where: str) -> _Pmf | None:
    """From text such as `{39: 0.5, 40: 0.5}`; None where there is none."""
    try:
        shares: Any = ast.literal_eval(told) if isinstance(told, str) else told
        pairs = sorted((float(tokens), float(share)) for tokens, share in (shares or {}).items())
    except (ValueError, SyntaxError, TypeError, AttributeError, RecursionError, MemoryError):
        raise InputError(
            f"{where} is {shortened(repr(told))}; it must be text such as '{{39: 0.5, 40: 0.5}}'"
        ) from None
    pairs = [pair for pair in pairs if pair[1] != 0]
    if not pairs:
        return None
    tokens, share = (np.array(column) for column in zip(*pairs, strict=True))
    if not ((tokens >= 0) & (tokens < OPEN_END / 2) & (share > 0) & (share < np.inf)).all():
        raise InputError(f"{where} holds a length or a share that is none; lengths are tokens, shares above 0")
    until = np.cumsum(share / share.sum())
    until[-1] = 1.0
    return _Pmf(np.maximum(np.ceil(tokens), 1).astype(np.int64), until)


FORMAT: Final = TraceFormat(
    name="servegen",
    looks_like="a folder of ServeGen's chunk-N-trace.csv and chunk-N-dataset.json, or one such pair",
    recognises=recognises,
    read=read,
    source="alibaba/ServeGen, data/, Apache-2.0 (Xiang et al., ServeGen, NSDI 2026)",
)
