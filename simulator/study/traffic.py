"""What a load's requests ask of one engine: two thousand of them, drawn once."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from files import special
from files.errors import HeadcountError
from simulator.fleet.pool_sizes import DECODE, PREFILL
from simulator.study.loads import Load, TraceLoad, UserLoad
from workloads.clients import Clients, Library
from workloads.distributions import Gamma
from workloads.populations.sessions import NO_TIME
from workloads.randomness import stream
from workloads.requests import OPEN_END, RequestTable

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Rows = IntArray | slice

ROWS: Final = 2048  # of a path
_USERS, _TURNS = 2048, 8
_SETTLING_TURNS: Final = 2  # the first of them, which only are what later ones may find in the cache
_TRACE_ROWS: Final = 20_000  # of a trace, from its first
_CACHE_TIMES, _CACHE_SPAN = 64, 1e4  # times at which the cache's content is tabulated; the longest over the shortest
_COMMON_SHARE: Final = 1 / 8  # of requests that begin alike: others of them run at any time
_DISPERSION_WINDOWS: Final = 2.0 ** np.arange(9)  # mean gaps
_FEWEST_WINDOWS: Final = 8  # that show a variance


@dataclass(frozen=True, kw_only=True, eq=False)
class Cache:
    """What a prefix cache holds of the path's prompts if it keeps what was used within `kept_for`.

    `kept_for` is in seconds for users, in requests at all engines for a trace, whose time is scaled with its rate.
    """

    kept_for: FloatArray  # [times], the first 0
    tokens: IntArray  # [times, rows] found of each prompt
    size: FloatArray  # [times] tokens kept, over the engine's requests/s for users, over engines for a trace
    common: float  # mean tokens of what many prompts begin with, which those running hold together


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenImages:
    """The images of a path's prompts, all of one size."""

    ends: IntArray  # [rows, images] token positions, in order; 0 where a prompt has fewer
    patches: int  # of one
    pairs: float  # of these, one of which attends to the other

    def num_behind(self, tokens: IntArray, rows: Rows) -> IntArray:
        """Of each of the rows, how many end behind so many tokens."""
        return np.asarray((self.ends[rows] > tokens[:, None]).sum(axis=1))


@dataclass(frozen=True, kw_only=True, eq=False)
class Traffic:
    """A path of requests in their order of arrival at one engine of several; lengths in tokens."""

    gap: FloatArray  # the time before each arrival over its mean
    prompt: IntArray
    output: IntArray
    cache: Cache
    think_time_s: float
    is_closed: bool  # users wait for their answers
    uniform: FloatArray  # where in a step each request arrives
    normal: FloatArray  # each request's luck with how many run beside it
    dispersion: FloatArray  # variance over mean of arrivals in windows of _DISPERSION_WINDOWS
    patience_s: FloatArray  # of each request's client, to the first token
    library: Library  # of all clients: when it gives up an answer and tries again
    images: SeenImages | None = None

    def first(self, rows: int) -> "Traffic":
        """The beginning of the path."""
        by_row = ("gap", "prompt", "output", "uniform", "normal", "patience_s")
        shorter = {name: getattr(self, name)[:rows] for name in by_row}
        images = self.images and replace(self.images, ends=self.images.ends[:rows])
        return replace(self, **shorter, cache=replace(self.cache, tokens=self.cache.tokens[:, :rows]), images=images)

    def in_role(self, role: str | None) -> "Traffic":
        """What comes to a prefill engine ends with its first token; a decode engine has every prompt as if cached."""
        if role == PREFILL:
            return replace(self, output=np.ones_like(self.output))
        if role == DECODE:
            known = np.broadcast_to(self.prompt, self.cache.tokens.shape)
            return replace(self, cache=replace(self.cache, tokens=known))
        return self

    def dispersion_at(self, arrivals: float) -> float:
        """Of the number of arrivals in a time that has so many on average; 1 for Poisson's."""
        return float(np.interp(np.log(max(arrivals, 1e-9)), np.log(_DISPERSION_WINDOWS), self.dispersion))


def traffic_of(load: Load, engines: int, caches: int | None = None) -> Traffic:
    """What comes to one of so many engines, behind a router that evens out numbers and does not look at caches.

    There are as many `caches` as engines, or one that all share.

    Raises HeadcountError for a load that is neither users nor a trace.
    """
    if not isinstance(load, UserLoad | TraceLoad):
        raise HeadcountError(f"no estimate for a load of type {type(load).__name__}; give a UserLoad or a TraceLoad")
    return _traffic(replace(load, answers=NO_TIME) if isinstance(load, UserLoad) else load, engines, caches or engines)


def usual_context(load: Load) -> int:
    """Tokens of prompt and answer together that 99 % of requests do not pass."""
    found = traffic_of(load, 1)
    return round(float(np.percentile(found.prompt + found.output, 99)))


@lru_cache(maxsize=32)
def _traffic(load: UserLoad | TraceLoad, engines: int, caches: int) -> Traffic:
    return _of_users(load, engines, caches) if isinstance(load, UserLoad) else _of_trace(load, engines, caches)


def _of_users(load: UserLoad, engines: int, caches: int) -> Traffic:
    table = _drawn(load)
    time = np.cumsum(table.think_s.reshape(_USERS, _TURNS), axis=1).ravel()
    reuse = _reuse(table, time, caches)
    judged = np.flatnonzero(np.arange(table.num_requests) % _TURNS >= _SETTLING_TURNS)
    rng = stream(load.seed, "arrivals", engines)
    rows = rng.permutation(_representatives(judged, table.prompt_tokens - reuse.found))
    return Traffic(
        gap=Gamma(shape=engines, mean_value=1.0).quantile(_even_spread(rng)),  # as if engines took turns
        prompt=table.prompt_tokens[rows].astype(np.int64),
        output=table.output_tokens[rows].astype(np.int64),
        cache=reuse.cache(rows, judged),
        think_time_s=load.think_time_s,
        is_closed=True,
        uniform=_even_spread(rng),
        normal=special.ndtri(_even_spread(rng)),
        dispersion=np.ones(len(_DISPERSION_WINDOWS)),
        patience_s=_patience_s(load.population.clients, rng),
        library=load.population.clients.library,
        images=_images(table, rows),
    )


def _images(table: RequestTable, rows: IntArray) -> SeenImages | None:
    """Of these rows; None where all prompts are text."""
    found = table.images
    if found is None:
        return None
    (shape,) = found.shapes
    place = np.arange(max(found.most, 1))
    has = place < found.num[rows][:, None]
    at = np.where(has, found.start[rows][:, None] + place, 0)
    ends = np.where(has, found.offset[at] + shape.length, 0).astype(np.int64)
    return SeenImages(ends=ends, patches=shape.patches, pairs=float(shape.patches) * shape.attended)


@lru_cache(maxsize=4)
def _drawn(load: UserLoad) -> RequestTable:
    population = load.population
    return population.of_tenants(population.draw(_USERS, _TURNS, load.seed, load.max_model_len), load.seed)


def _of_trace(load: TraceLoad, engines: int, caches: int) -> Traffic:
    table = load.trace.window(min(load.trace.num_requests, _TRACE_ROWS), 0.0)
    arrival = _arrival_times(table)
    order = np.argsort(arrival, kind="stable")
    rows = order[:: max(min(engines, len(order) // ROWS), 1)][:ROWS]
    gap = np.diff(arrival[rows], prepend=arrival[rows[0]])
    rng = stream(load.seed, "arrivals", engines)
    return Traffic(
        gap=gap / (gap.mean() or 1.0),
        prompt=table.prompt_tokens[rows].astype(np.int64),
        output=table.output_tokens[rows].astype(np.int64),
        cache=_reuse(table, arrival * load.trace.requests_per_s, caches).cache(rows, order),
        think_time_s=load.think_time_s,
        is_closed=False,
        uniform=_even_spread(rng, len(rows)),
        normal=special.ndtri(_even_spread(rng, len(rows))),
        dispersion=_dispersion(arrival[order]),
        patience_s=_patience_s(load.trace.clients, rng, len(rows)),
        library=load.trace.clients.library,
    )


def _even_spread(rng: np.random.Generator, count: int = ROWS) -> FloatArray:
    """Numbers evenly over (0, 1), in random order."""
    return (rng.permutation(count) + 0.5) / count


def _patience_s(clients: Clients, rng: np.random.Generator, count: int = ROWS) -> FloatArray:
    if clients.patience_s is None:
        return np.full(count, np.inf)
    return clients.patience_s.quantile(_even_spread(rng, count))


def _representatives(rows: IntArray, amount: IntArray) -> IntArray:
    """ROWS of the rows, evenly from the least to the largest amount, so that few stand for many."""
    ordered = rows[np.argsort(amount[rows], kind="stable")]
    return ordered[((np.arange(ROWS) + 0.5) / ROWS * len(ordered)).astype(np.int64)]


def _arrival_times(table: RequestTable) -> FloatArray:
    """Of all rows: a turn comes a think time after the one before it, whose answer takes no time."""
    arrival = table.arrival_s.copy()
    while (missing := np.isnan(arrival)).any():
        arrival[missing] = arrival[table.follows[missing]] + table.think_s[missing]
    return arrival


def _dispersion(arrival: FloatArray) -> FloatArray:
    """Of windows that are too few: that of the longest that are not."""
    found = [1.0]
    since, gap = arrival - arrival[0], (arrival[-1] - arrival[0]) / max(len(arrival) - 1, 1)
    for window in _DISPERSION_WINDOWS:
        is_shown = gap > 0 and len(arrival) >= _FEWEST_WINDOWS * window
        counts = np.bincount((since / (window * gap)).astype(np.int64)) if is_shown else np.zeros(1)
        found.append(float(counts.var() / counts.mean()) if is_shown else found[-1])
    return np.array(found[1:])


@dataclass(frozen=True, eq=False)
class _Reuse:
    """Parts of prompts that an earlier request left in the cache of the same engine."""

    row: IntArray  # [parts]
    tokens: IntArray  # [parts]
    age: FloatArray  # [parts] since that request
    is_common: NDArray[np.bool_]  # [parts]
    left: IntArray  # [rows] tokens that a request leaves behind

    @property
    def found(self) -> IntArray:
        """Tokens of each row, were nothing ever dropped."""
        return np.bincount(self.row, self.tokens, len(self.left)).astype(np.int64)

    def cache(self, rows: IntArray, judged: IntArray) -> Cache:
        """For these rows, from the statistics of those that are judged."""
        is_judged = np.zeros(len(self.left), bool)
        is_judged[judged] = True
        used = is_judged[self.row] & (self.tokens > 0)
        row, tokens, age = self.row[used], self.tokens[used], self.age[used]
        longest = max(float(age.max(initial=0.0)), 1e-3)
        times = np.geomspace(longest / _CACHE_SPAN, longest, _CACHE_TIMES)
        found = [np.bincount(row[at], tokens[at], len(self.left))[rows] for at in (age <= time for time in times)]
        # What is used again is kept until then, what is not is kept until its time is over.
        never = float(self.left[judged].sum() - tokens.sum())
        kept = [(float((tokens * np.minimum(age, time)).sum()) + never * time) / len(judged) for time in times]
        return Cache(
            kept_for=np.concatenate([[0.0], times]),
            tokens=np.array([np.zeros(len(rows)), *found]).astype(np.int64),
            size=np.array([0.0, *kept]),
            common=float(tokens[self.is_common[used]].sum()) / len(judged),
        )


def _reuse(table: RequestTable, time: FloatArray, engines: int) -> _Reuse:
    """From the spans' contents; each earlier request was at the same engine with one chance in so many."""
    count = table.span_count.astype(np.int64)
    first = np.cumsum(count) - count
    row = np.repeat(np.arange(table.num_requests), count)
    span = np.repeat(table.span_start - first, count) + np.arange(count.sum())
    content, left = table.span_content[span], table.prompt_tokens.astype(np.int64) + table.output_tokens
    end = np.where(table.span_end[span] == OPEN_END, left[row], table.span_end[span])
    order = np.lexsort((time[row], content))
    ordered = content[order]
    before = np.arange(len(order)) - stream(0, "window", engines).geometric(1 / engines, len(order))
    seen = (before >= 0) & (ordered[np.maximum(before, 0)] == ordered)
    at, earlier = order[seen], order[before[seen]]
    found, age = np.zeros(len(order), np.int64), np.zeros(len(order))
    found[at] = np.minimum(np.minimum(end[at], end[earlier]), table.prompt_tokens[row[at]] - 1)
    age[at] = time[row[at]] - time[row[earlier]]
    inner = np.concatenate([[0], found[:-1]])  # of the span before, which this one goes beyond
    inner[first] = 0
    begins = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    uses = np.diff(np.append(np.flatnonzero(begins), len(order)))[np.cumsum(begins) - 1]
    is_common = np.zeros(len(order), bool)
    is_common[order] = uses >= _COMMON_SHARE * table.num_requests
    return _Reuse(row, np.maximum(found - inner, 0), age, is_common, left)
