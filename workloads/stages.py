"""Requests in stages of rates, as benchmark clients climb a ladder, and prompts that share prefixes."""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from files.limits import check_limit
from files.reading import InputError
from workloads.arrivals import POISSON, Arrivals, arrival_times
from workloads.distributions import FloatArray
from workloads.randomness import stream
from workloads.requests import OPEN_END, IntArray, RequestTable

MOST_STAGES: Final = 1000


@dataclass(frozen=True)
class Stages:
    """Rates in requests/s, one after the other, each held for `length_s` seconds."""

    rates_per_s: tuple[float, ...]
    length_s: float

    def __post_init__(self) -> None:
        if not 0 < len(self.rates_per_s) <= MOST_STAGES:
            raise InputError(f"{len(self.rates_per_s):,} stages; give 1 to {MOST_STAGES:,} rates, such as 5,10,20")
        for rate in self.rates_per_s:
            if not 0 <= rate < math.inf:
                raise InputError(f"the rate of a stage is {rate:g}; it must be a finite number, at least 0")
        if not 0 < self.length_s < math.inf:
            raise InputError(f"a stage lasts {self.length_s:g} s; it must last longer than 0")
        if not sum(self.rates_per_s):
            raise InputError("all stages have a rate of 0; give at least one rate above 0")

    def times(self, seed: int, arrivals: Arrivals = POISSON) -> FloatArray:
        """[n] ascending times in seconds: those of rate 1, with time running as fast as each stage's rate."""
        passed = np.concatenate([[0.0], np.cumsum(np.array(self.rates_per_s) * self.length_s)])
        check_limit("requests", passed[-1], "requests over all stages")
        count, found = math.ceil(passed[-1] + 10 * math.sqrt(passed[-1]) + 10), np.zeros(0)
        while not len(found) or found[-1] < passed[-1]:
            found, count = arrival_times(arrivals, 1.0, count, seed), 2 * count
        found = found[found < passed[-1]]
        return np.asarray(np.interp(found, passed, self.length_s * np.arange(len(passed))), dtype=np.float64)

    def of(self, time_s: FloatArray) -> IntArray:
        """Which stage each time lies in."""
        return np.minimum((time_s // self.length_s).astype(np.int64), len(self.rates_per_s) - 1)

    @property
    def ends_s(self) -> list[tuple[float, float]]:
        """Where each stage begins and ends."""
        return list(pairwise(self.length_s * number for number in range(len(self.rates_per_s) + 1)))


@dataclass(frozen=True)
class SharedPrefixes:
    """Each prompt begins with one of `num_prefixes` prefixes of `tokens` tokens.

    Behind it stands one of `prompts_per_prefix` prompts; None: each is new. All are drawn at random, alike.
    """

    tokens: int
    num_prefixes: int = 1
    prompts_per_prefix: int | None = None

    def before(self, table: RequestTable, seed: int) -> RequestTable:
        """The requests, which share nothing yet, with their prefixes before the prompts that they have."""
        luck, rows = stream(seed, "prefixes").random((2, table.num_requests)), np.arange(table.num_requests)
        contents = [_drawn(luck[0], self.num_prefixes)]
        prompt_tokens = table.prompt_tokens.astype(np.int64) + self.tokens
        ends = [np.full(len(rows), self.tokens)]
        if self.prompts_per_prefix is not None:
            prompt = contents[0] * self.prompts_per_prefix + _drawn(luck[1], self.prompts_per_prefix)
            prompt_tokens = _first_of_each(prompt, prompt_tokens)
            contents.append(self.num_prefixes + prompt)
            ends.append(prompt_tokens)
        if int(prompt_tokens.max(initial=0)) >= OPEN_END:
            raise InputError(f"a prefix of {self.tokens:,} tokens makes a prompt of {OPEN_END:,} or more; shorten it")
        contents.append(self.num_prefixes * (1 + (self.prompts_per_prefix or 0)) + rows)  # the request's own
        ends.append(np.full(len(rows), OPEN_END))
        return replace(
            table,
            prompt_tokens=prompt_tokens.astype(np.int32),
            span_start=len(contents) * rows,
            span_count=np.full(len(rows), len(contents), np.int32),
            span_content=np.column_stack(contents).ravel(),
            span_end=np.column_stack(ends).ravel().astype(np.int32),
        )


def _drawn(luck: FloatArray, count: int) -> IntArray:
    """Whole numbers below `count`, alike for as much luck however many there are."""
    return np.minimum((luck * count).astype(np.int64), count - 1)


def _first_of_each(content: IntArray, values: IntArray) -> IntArray:
    """For each row the value of the first row with its content: a prompt that comes again is as long."""
    _, first, inverse = np.unique(content, return_index=True, return_inverse=True)
    return np.asarray(values[first][inverse])
