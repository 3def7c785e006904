"""How long clients wait for an answer, and what they do then.

A person has patience until the first token; a client library has a time-out for the whole answer, and tries again. Both
cancel what they no longer wait for. Who has given up goes on after the think time, or abandons the session.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from boundary.files import InputError
from workloads.distributions import Distribution
from workloads.randomness import hashed_uniforms
from workloads.requests import BoolArray, Int32Array, IntArray, RequestTable, Waits, with_waits

MOST_RETRIES: Final = 10
LIBRARY_TIMEOUT_S: Final = 600.0  # openai-python 3.54, `_constants.py`: DEFAULT_TIMEOUT
LIBRARY_RETRIES: Final = 2  # openai-python 3.54, `_constants.py`: DEFAULT_MAX_RETRIES


@dataclass(frozen=True, kw_only=True)
class Clients:
    """Waits in seconds; raises InputError for what is out of range.

    Back-offs are those of openai-python 3.54 (`_constants.py`; `_base_client.py`, `_calculate_retry_timeout`): they
    double from `backoff_s` to `max_backoff_s`, each shortened by a random part of up to `jitter`.
    """

    patience_s: Distribution | None = None
    """From the first attempt to the first token; None: for ever."""
    timeout_s: float = math.inf
    """Of each attempt, to the end of its answer."""
    retries: int = LIBRARY_RETRIES
    """Further attempts after a time-out."""
    backoff_s: float = 0.5
    backoff_factor: float = 2.0
    max_backoff_s: float = 8.0
    jitter: float = 0.25
    abandons_session: bool = False
    """Who gives up a turn leaves; a population's user opens the next conversation. Else the next turn comes."""

    def __post_init__(self) -> None:
        if not self.timeout_s > 0:
            raise InputError(f"client: timeout_s is {self.timeout_s:g}; it must be above 0")
        if not 0 <= self.retries <= MOST_RETRIES:
            raise InputError(f"client: retries is {self.retries}; give 0 to {MOST_RETRIES}")
        for name in ("backoff_s", "max_backoff_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"client: {name} is {getattr(self, name):g}; give a finite time, at least 0")
        if not 1 <= self.backoff_factor <= 100 or not 0 <= self.jitter <= 1:
            given = f"backoff_factor is {self.backoff_factor:g}, jitter {self.jitter:g}"
            raise InputError(f"client: {given}; give a factor from 1 to 100, a jitter from 0 to 1")
        if self.patience_s is not None and not self.patience_s.mean() > 0:
            raise InputError("patience_s is always 0; give a mean above 0")

    @property
    def num_retries(self) -> int:
        """Only time-outs are followed by retries."""
        return self.retries if self.timeout_s < math.inf else 0

    def applied(self, table: RequestTable, seed: int, opens: BoolArray | None = None) -> RequestTable:
        """The table with these clients; turn k of session s waits as (seed, s, k) says, whatever else is in it.

        `opens` marks the rows that open a conversation of a user, whose rows follow each other.
        """
        if self.patience_s is None and self.timeout_s == math.inf:
            return table
        first = table.first_turns()
        session = (np.cumsum(table.follows < 0) - 1)[first]
        turn = np.arange(table.num_requests) - first
        patience_s = np.full(table.num_requests, math.inf)
        if self.patience_s is not None:
            patience_s = self.patience_s.quantile(hashed_uniforms(seed, "patience", session, turn))
        backoff_s = np.empty((self.num_retries, table.num_requests))
        for number, row in enumerate(backoff_s):
            longest_s = min(self.backoff_s * self.backoff_factor**number, self.max_backoff_s)
            row[:] = longest_s * (1 - self.jitter * hashed_uniforms(seed, "backoff", session, turn, number))
        resumes = self._resumes(table, opens)
        return with_waits(table, Waits(patience_s, self.timeout_s, backoff_s, resumes))

    def _resumes(self, table: RequestTable, opens: BoolArray | None) -> Int32Array:
        """[n] the turn that comes after one that was given up, -1 for none."""
        found = np.full(table.num_requests, -1, np.int32)
        if not self.abandons_session:
            turns = np.flatnonzero(table.follows >= 0)
            found[table.follows[turns]] = turns
        elif opens is not None:
            rows = np.arange(table.num_requests)
            later = np.where(opens | (table.follows < 0), rows, len(rows))
            next_opening: IntArray = np.minimum.accumulate(later[::-1])[::-1]
            after = np.append(next_opening[1:], len(rows))
            is_own = np.append(table.follows, -1)[after] >= 0  # else it is another user's
            found[is_own] = after[is_own]
        return found
