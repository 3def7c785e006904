"""A generative model of a trace: arrivals, lengths, sessions, shared prefixes, and draws from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from files.compiling.dispatchers import compiled
from workloads.distributions import Empirical
from workloads.fitted.cascade import Cascade
from workloads.fitted.copula import Copula
from workloads.fitted.grid import Grid
from workloads.fitted.prefix_tree import PrefixTree, grow_prefixes
from workloads.fitted.serial import Serial, lined_up
from workloads.fitted.turns import with_turns
from workloads.randomness import stream
from workloads.requests import NO_PREDECESSOR, OPEN_END, BoolArray, FloatArray, IntArray, RequestTable

OF_WINDOWS: Final = ("new_tokens", "output_tokens")
GOES_ON: Final = "goes_on"
"""The kind of requests that begin with the whole of an earlier one."""
MOST_TOKENS: Final = OPEN_END // 4  # of prompt, and of answer
_EXCHANGES: Final = 20  # drawn for each request, so that busy times have the lengths that the trace's had


@dataclass(frozen=True, kw_only=True)
class RequestKind:
    """Requests of one kind: `new_tokens` of the prompt and `output_tokens`; where they share also `shared_tokens` and
    `lag`, by how many requests the one that they begin like is before them."""

    share: float
    """Of all requests that follow none."""
    copula: Copula
    answers: Grid | None = None
    """Of whole prompts and answers; None: the copula says it."""
    unit_tokens: int = 1
    """What is shared is a multiple of it: of whole blocks, where the trace tells no more."""

    def draw(self, count: int, rng: np.random.Generator, longest_prompt: int) -> dict[str, IntArray]:
        """Tokens and lags of so many requests."""
        drawn = self.copula.draw(count, rng)
        none = np.zeros(count)
        shared = drawn.get("shared_tokens", none)
        if self.answers is not None:
            scores = self.answers.scores(shared + drawn["new_tokens"], rng)
            drawn["output_tokens"] = self.copula.evenly("output_tokens", scores)
        prompt = np.minimum(_tokens(shared + drawn["new_tokens"]), longest_prompt)
        units = np.minimum(np.rint(shared / self.unit_tokens).astype(np.int64), prompt // self.unit_tokens)
        return {
            "shared": units * self.unit_tokens,
            "new_tokens": prompt - units * self.unit_tokens,
            "output_tokens": _tokens(drawn["output_tokens"]),
            "lag": _tokens(drawn.get("lag", none)),
        }


@dataclass(frozen=True, kw_only=True)
class Turns:
    """What follows a session's first request: each turn waits for the answer before it."""

    per_session: Empirical
    """Turns, the first one included."""
    copula: Copula
    """`new_tokens`, `output_tokens`, `think_s`, and `kept_share` of prompt and answer before."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedTrace:
    """What a trace is like, without any of its requests."""

    name: str
    title: str
    num_requests: int
    """Of the trace."""
    longest_prompt: int
    """Tokens: no prompt is longer."""
    longest_context: int = MOST_TOKENS
    """Tokens: no prompt is longer with its answer."""
    block_size: int | None
    """Tokens that its block ids named; None where it has none."""
    cascade: Cascade
    """Of the requests that follow none."""
    means: Mapping[str, tuple[float, ...]]
    """Of OF_WINDOWS: mean of the requests in each window of the cascade."""
    serial: Serial
    """Of `new_tokens`."""
    kinds: Mapping[str, RequestKind]
    turns: Turns | None = None
    tables: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What its file says."""

    def draw(self, num_requests: int | None = None, seed: int = 0) -> RequestTable:
        """Requests as the trace's, by default as many; sessions by their first request, ties by row."""
        n = num_requests or self.num_requests
        firsts, per_period = self._num_sessions(n), self._num_sessions(self.num_requests)
        arrival_s = self.cascade.times(firsts, per_period, stream(seed, "arrivals", 3))
        drawn = self._firsts(arrival_s, seed)
        total = drawn["shared"] + drawn["new_tokens"] + drawn["output_tokens"]
        tree = grow_prefixes(drawn["lag"], drawn["shared"], total, drawn["goes_on"].astype(np.bool_))
        prompt = np.minimum(tree.total - drawn["output_tokens"], self.longest_prompt)
        table = _table(arrival_s, prompt, drawn["output_tokens"], tree)
        return table if self.turns is None else self._with_turns(table, n, seed)

    def _num_sessions(self, num_requests: int) -> int:
        turns = 1.0 if self.turns is None else self.turns.per_session.mean()
        return max(round(num_requests / turns), 1)

    def _firsts(self, arrival_s: FloatArray, seed: int) -> dict[str, IntArray]:
        """Tokens and lags of the requests that follow none."""
        n = len(arrival_s)
        shares = np.cumsum([0.0, *(kind.share for kind in self.kinds.values())])
        bounds = np.rint(shares / shares[-1] * n).astype(np.int64)
        places = np.split(stream(seed, "window", 1).permutation(n), bounds[1:-1])
        found = {name: np.zeros(n, np.int64) for name in ("shared", *OF_WINDOWS, "lag", "goes_on")}
        for place, ((name, kind), rows) in enumerate(zip(self.kinds.items(), places, strict=True)):
            drawn = kind.draw(len(rows), stream(seed, "user_tokens", 1, place), self.longest_prompt)
            for key, values in drawn.items():
                found[key][rows] = values
            found["goes_on"][rows] = name == GOES_ON
        order = self._arrangement(found, arrival_s, seed)
        answers = np.minimum(found["output_tokens"], self.longest_context - found["shared"] - found["new_tokens"])
        return {name: values[order] for name, values in (found | {"output_tokens": np.maximum(answers, 1)}).items()}

    def _arrangement(self, tokens: Mapping[str, IntArray], arrival_s: FloatArray, seed: int) -> IntArray:
        """Places of requests in random order, so that each window has its means, and alike ones follow one another."""
        period = (arrival_s // self.cascade.period_s).astype(np.int64) if self.cascade.period_s else 0
        window = self.cascade.window_of(arrival_s) + period * len(self.cascade.windows)
        targets = np.array([self.means[name] for name in OF_WINDOWS])
        targets = np.tile(targets, int(window.max(initial=0)) // len(self.cascade.windows) + 1)
        values = np.stack([tokens[name] for name in OF_WINDOWS]).astype(np.float64)
        order = arranged(values, window, targets, stream(seed, "window", 2))
        if not self.serial.share:
            return order
        return lined_up(order, window, values[0], self.serial.scores(len(order), stream(seed, "window", 3)))

    def _with_turns(self, firsts: RequestTable, num_requests: int, seed: int) -> RequestTable:
        assert self.turns is not None
        n = firsts.num_requests
        luck = (stream(seed, "turns", 1).permutation(n) + 0.5) / n
        per_session = np.maximum(np.rint(self.turns.per_session.quantile(luck)).astype(np.int64), 1)
        more = int(per_session.sum()) - n
        drawn = self.turns.copula.draw(more, stream(seed, "user_tokens", 2)) if more else {}
        return with_turns(firsts, per_session, drawn, self.longest_prompt).head(num_requests)


def _tokens(values: FloatArray) -> IntArray:
    return np.clip(np.rint(values), 1, MOST_TOKENS).astype(np.int64)


def _table(arrival_s: FloatArray, prompt: IntArray, output: IntArray, tree: PrefixTree) -> RequestTable:
    n = len(arrival_s)
    return RequestTable(
        arrival_s=arrival_s,
        follows=np.full(n, NO_PREDECESSOR, np.int64),
        think_s=np.zeros(n),
        prompt_tokens=prompt.astype(np.int32),
        output_tokens=output.astype(np.int32),
        priority=np.zeros(n, np.int32),
        span_start=tree.span_start,
        span_count=tree.span_count,
        span_content=tree.span_content,
        span_end=tree.span_end,
    )


def arranged(values: FloatArray, window: IntArray, targets: FloatArray, rng: np.random.Generator) -> IntArray:
    """[n] an order of requests, so that those that then stand in a window have its means.

    `values` [quantities, n] are the requests', `window` [n] is that of each place, `targets` [quantities, windows] are
    means, NaN for any. Pairs are drawn at random, and change places where that brings both windows nearer.
    """
    n, order = len(window), np.arange(len(window))
    count = np.bincount(window, minlength=targets.shape[1])
    wanted: BoolArray = np.asarray(np.isfinite(targets).all(axis=0), np.bool_)
    spread = values.std(axis=1) if n else np.zeros(len(values))
    if n < 2 or not wanted.any() or not (spread > 0).any():
        return order
    scaled = values / np.where(spread > 0, spread, np.inf)[:, None]
    goal = np.where(wanted, targets, 0) / np.where(spread > 0, spread, np.inf)[:, None] * count
    # The draw's own total is shared out: nobody gains a token.
    goal *= (scaled[:, wanted[window]].sum(axis=1) / np.maximum(goal.sum(axis=1), 1e-300))[:, None]
    excess = np.stack([np.bincount(window, row, len(count)) for row in scaled]) - goal
    excess[:, ~wanted] = 0
    for _ in range(_EXCHANGES):
        _exchange(rng.integers(0, n, (n, 2)), scaled, window, wanted, excess, order)
    return order


@compiled
def _exchange(  # noqa: PLR0917  numba takes arrays one by one
    pairs: IntArray, values: FloatArray, window: IntArray, wanted: BoolArray, excess: FloatArray, order: IntArray
) -> None:
    for pair in range(len(pairs)):
        one, other = pairs[pair, 0], pairs[pair, 1]
        first, second = window[one], window[other]
        if first == second or not (wanted[first] and wanted[second]):
            continue
        gain = 0.0
        for quantity in range(len(values)):
            more = values[quantity, order[other]] - values[quantity, order[one]]
            gain -= more * (excess[quantity, first] - excess[quantity, second] + more)
        if gain <= 0:
            continue
        for quantity in range(len(values)):
            more = values[quantity, order[other]] - values[quantity, order[one]]
            excess[quantity, first] += more
            excess[quantity, second] -= more
        order[one], order[other] = order[other], order[one]
