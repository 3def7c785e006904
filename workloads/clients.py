"""How long clients wait for an answer, what they do then, and whose they are.

A person has patience until the first token; a client library has a time-out for the whole answer, and tries again. Both
cancel what they no longer wait for. Who has given up goes on after the think time, or abandons the session.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np
from msgspec import Meta

from files.reading import InputError
from files.schema import Strict
from workloads.distributions import Distribution
from workloads.randomness import hashed_uniforms
from workloads.requests import BoolArray, FloatArray, Int32Array, IntArray, RequestTable, Waits, with_waits
from workloads.tenants import Tenants

MOST_RETRIES: Final = 10
LIBRARY_TIMEOUT_S: Final = 600.0  # openai-python 3.54, `_constants.py`: DEFAULT_TIMEOUT
LIBRARY_RETRIES: Final = 2  # openai-python 3.54, `_constants.py`: DEFAULT_MAX_RETRIES


_Seconds = Annotated[float, Meta(ge=0, le=86400, description="a time in seconds, 0 to 86,400")]
_Share = Annotated[float, Meta(ge=0, le=1, description="a share from 0 to 1")]


class Library(Strict, frozen=True, kw_only=True):
    """When a client library gives up an attempt, and when it tries again.

    Back-offs are those of openai-python 3.54 (`_constants.py`; `_base_client.py`, `_calculate_retry_timeout`): they
    double from `backoff_s` to `max_backoff_s`, each shortened by a random part of up to `jitter`.
    """

    timeout_s: Annotated[float, Meta(gt=0, description="a time in seconds above 0")] = math.inf
    """Of each attempt, to the end of its answer; openai-python's own counts from chunk to chunk where it streams."""
    retries: Annotated[int, Meta(ge=0, le=MOST_RETRIES, description=f"a whole number from 0 to {MOST_RETRIES}")] = (
        LIBRARY_RETRIES
    )
    """Further attempts after a time-out, or after the gateway has rejected one."""
    backoff_s: _Seconds = 0.5
    backoff_factor: Annotated[float, Meta(ge=1, le=100, description="a factor from 1 to 100")] = 2.0
    max_backoff_s: _Seconds = 8.0
    jitter: _Share = 0.25
    abandons_session: Annotated[bool, Meta(description="true or false")] = False
    """Who gives up a turn leaves, and a population's user opens the next conversation; else the next turn comes."""
    source: str = ""

    @property
    def num_retries(self) -> int:
        """Only time-outs are followed by retries."""
        return self.retries if self.timeout_s < math.inf else 0

    def backoffs_s(self, number: int, uniforms: FloatArray) -> FloatArray:
        """Before retry `number`, counted from 0."""
        longest_s = min(self.backoff_s * self.backoff_factor**number, self.max_backoff_s)
        return longest_s * (1 - self.jitter * uniforms)


_PATIENT: Final = Library()


@dataclass(frozen=True, kw_only=True)
class Clients:
    """How long people wait, and what their client library does; without either, for ever. Whose people they are."""

    patience_s: Distribution | None = None
    """From the first attempt to the first token; None: for ever."""
    library: Library = _PATIENT
    tenants: Tenants | None = None

    def __post_init__(self) -> None:
        if self.patience_s is not None and not self.patience_s.mean() > 0:
            raise InputError("patience_s is always 0; give a mean above 0")

    def applied(self, table: RequestTable, seed: int, opens: BoolArray | None = None) -> RequestTable:
        """The table with these clients; turn k of session s waits as (seed, s, k) says, whatever else is in it.

        `opens` marks the rows that open a conversation of a user, whose rows follow each other.
        """
        library = self.library
        if self.tenants is not None:
            table = self.tenants.applied(table, seed)
        if self.patience_s is None and library.timeout_s == math.inf:
            return table
        first = table.first_turns()
        session = (np.cumsum(table.follows < 0) - 1)[first]
        turn = np.arange(table.num_requests) - first
        patience_s = np.full(table.num_requests, math.inf)
        if self.patience_s is not None:
            patience_s = self.patience_s.quantile(hashed_uniforms(seed, "patience", session, turn))
        backoff_s = np.empty((library.num_retries, table.num_requests))
        for number, row in enumerate(backoff_s):
            row[:] = library.backoffs_s(number, hashed_uniforms(seed, "backoff", session, turn, number))
        timeout_s = np.full(table.num_requests, library.timeout_s)
        return with_waits(table, Waits(patience_s, timeout_s, backoff_s, self._resumes(table, opens)))

    def _resumes(self, table: RequestTable, opens: BoolArray | None) -> Int32Array:
        """[n] the turn that comes after one that was given up, -1 for none."""
        found = np.full(table.num_requests, -1, np.int32)
        if not self.library.abandons_session:
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


WAIT_FOR_EVER: Final = Clients()
