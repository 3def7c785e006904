"""What a trace is like, as a generative model of it."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from files.compiling.dispatchers import compiled
from files.reading import InputError
from workloads.fitted.cascade import fit_cascade
from workloads.fitted.copula import fit_copula
from workloads.fitted.fitted_trace import GOES_ON, OF_WINDOWS, FittedTrace, RequestKind, Turns
from workloads.fitted.grid import fit_grid
from workloads.fitted.marginals import FEWEST, binned
from workloads.fitted.serial import fit_serial
from workloads.fitted.sharing import Sharing, latest_sharing
from workloads.requests import NEXT_FREE, BoolArray, Int32Array, IntArray, RequestTable
from workloads.traces.trace import Trace

FEWEST_REQUESTS: Final = 100
_FEWEST_OF_KIND: Final = 3 * FEWEST
_COMMON_SHARE: Final = 0.05  # of all requests: so many share exactly as much, as a system prompt
_MOST_DEPTHS: Final = 6
_WHOLE_BLOCKS: Final = 0.9


def fit_trace(trace: Trace) -> FittedTrace:
    """Raises InputError where a trace has too few requests or sessions, or waits for any request to finish."""
    table = trace.table
    if table.num_requests < FEWEST_REQUESTS:
        raise InputError(
            f"trace '{trace.name}' has {table.num_requests:,} requests; a fit needs at least {FEWEST_REQUESTS}"
        )
    if (table.follows == NEXT_FREE).any():
        raise InputError(f"trace '{trace.name}': its requests wait for any other to finish; a fit needs arrival times")
    firsts = np.flatnonzero(table.follows < 0)
    if len(firsts) < _FEWEST_OF_KIND:
        raise InputError(f"trace '{trace.name}' has {len(firsts)} sessions; a fit needs at least {_FEWEST_OF_KIND}")
    firsts = firsts[np.argsort(table.arrival_s[firsts], kind="stable")]
    times = table.arrival_s[firsts] - table.arrival_s[firsts[0]]
    cascade, sharing = fit_cascade(times), latest_sharing(table, firsts)
    tokens, window = _tokens(table, firsts, sharing), cascade.window_of(times)
    classes = _classes(table, firsts, sharing, trace.block_size)
    return FittedTrace(
        name=trace.name,
        title=f"fitted to {trace.name}: {trace.num_requests:,} requests, {trace.format} format",
        num_requests=trace.num_requests,
        longest_prompt=_mean_of_longest(table.prompt_tokens),
        longest_context=_mean_of_longest(table.prompt_tokens.astype(np.int64) + table.output_tokens),
        block_size=trace.block_size,
        cascade=cascade,
        means={name: _means(tokens[name], window, len(cascade.windows)) for name in OF_WINDOWS},
        serial=fit_serial(tokens["new_tokens"]),
        kinds={name: _kind(tokens, rows, trace.block_size) for name, rows in classes.items()},
        turns=_turns(table) if table.num_requests - len(firsts) >= FEWEST else None,
    )


def _mean_of_longest(tokens: Int32Array | IntArray) -> int:
    return int(np.sort(tokens)[-FEWEST:].mean())


def _tokens(table: RequestTable, rows: IntArray, sharing: Sharing) -> dict[str, IntArray]:
    prompt = table.prompt_tokens[rows].astype(np.int64)
    return {
        "shared_tokens": sharing.shared,
        "new_tokens": prompt - sharing.shared,
        "output_tokens": table.output_tokens[rows].astype(np.int64),
        "lag": np.arange(len(rows)) - sharing.before,
    }


def _means(values: IntArray, window: IntArray, num_windows: int) -> tuple[float, ...]:
    """By window; one with few requests has a mean together with its neighbours'."""
    run = _runs(np.bincount(window, minlength=num_windows))
    mean = np.bincount(run[window], values) / np.bincount(run[window])
    return tuple(mean[run].round(2).tolist())


def _runs(counts: IntArray) -> IntArray:
    """[windows] numbers of runs of windows that have FEWEST requests each.

    With the mean of all instead, what lies in windows of few requests would follow by subtraction.
    """
    run, number, held = np.zeros(len(counts), np.int64), 0, 0
    for place, count in enumerate(counts.tolist()):
        run[place], held = number, held + count
        if held >= FEWEST:
            number, held = number + 1, 0
    return np.minimum(run, max(number - 1, 0))


def _classes(table: RequestTable, rows: IntArray, sharing: Sharing, block_size: int | None) -> dict[str, BoolArray]:
    """Requests by what they share: as much as many others do, all of an earlier prompt, a part of one.

    Classes of few requests are taken with others.
    """
    before = table.prompt_tokens[rows].astype(np.int64)[np.maximum(sharing.before, 0)]
    rest = sharing.before >= 0
    found = {"new": ~rest}
    depths, counts = np.unique(sharing.shared[rest], return_counts=True)
    for depth in depths[np.argsort(-counts, kind="stable")][:_MOST_DEPTHS]:
        alike = rest & (sharing.shared == depth)
        if alike.sum() >= max(_COMMON_SHARE * len(rows), _FEWEST_OF_KIND):
            found[f"shares_{depth}"] = alike
            rest = rest & ~alike
    goes_on = rest & (sharing.shared >= before // (block_size or 1) * (block_size or 1))
    parts = {GOES_ON: goes_on, "branches": rest & ~goes_on}
    if min(part.sum() for part in parts.values()) < _FEWEST_OF_KIND:
        parts = {"branches": rest}
    return _large({**found, **parts})


def _large(classes: dict[str, BoolArray]) -> dict[str, BoolArray]:
    """Those of many requests; all others go to the largest."""
    most = max(classes, key=lambda name: int(classes[name].sum()))
    large = {name: rows for name, rows in classes.items() if name == most or rows.sum() >= _FEWEST_OF_KIND}
    few = [rows for name, rows in classes.items() if name not in large]
    return {**large, most: np.any([large[most], *few], axis=0)}


def _kind(tokens: Mapping[str, IntArray], rows: BoolArray, block_size: int | None) -> RequestKind:
    names = tuple(tokens) if tokens["shared_tokens"][rows].any() else OF_WINDOWS
    return RequestKind(
        share=round(float(rows.mean()), 6),
        copula=fit_copula({key: tokens[key][rows] for key in names}),
        answers=fit_grid((tokens["shared_tokens"] + tokens["new_tokens"])[rows], tokens["output_tokens"][rows]),
        unit_tokens=_unit(tokens["shared_tokens"][rows], block_size),
    )


def _unit(shared: IntArray, block_size: int | None) -> int:
    """The block size where nearly all share whole blocks."""
    return block_size if block_size and (shared % block_size == 0).mean() > _WHOLE_BLOCKS else 1


def _turns(table: RequestTable) -> Turns:
    """What later turns are like."""
    rows = np.flatnonzero(table.follows >= 0)
    before = table.follows[rows]
    total = (table.prompt_tokens.astype(np.int64) + table.output_tokens)[before]
    shared = np.zeros(len(rows), np.int64)
    _common(
        rows, before, table.span_start, table.span_content, table.span_end,
        np.minimum(total, table.prompt_tokens[rows]), shared,
    )  # fmt: skip
    quantities = {
        "new_tokens": table.prompt_tokens[rows] - shared,
        "output_tokens": table.output_tokens[rows],
        "think_s": table.think_s[rows],
        "kept_share": shared / total,
    }
    per_session = np.bincount(table.first_turns())
    return Turns(
        per_session=binned(per_session[per_session > 0]),
        copula=fit_copula(quantities),
    )


@compiled
def _common(  # noqa: PLR0917  numba takes arrays one by one
    rows: IntArray, before: IntArray, start: IntArray, content: IntArray, end: Int32Array, most: IntArray,
    shared: IntArray,
) -> None:  # fmt: skip
    """Fill in how many tokens each row has in common with the one before it."""
    for place in range(len(rows)):
        one, other = start[rows[place]], start[before[place]]
        while content[one] == content[other] and shared[place] < most[place]:
            shared[place] = min(end[one], end[other], most[place])
            if end[one] != end[other]:
                break
            one, other = one + 1, other + 1
