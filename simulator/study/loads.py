"""A load whose size can be chosen, for searching the largest that is served well."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

import numpy as np

from files.errors import HeadcountError
from simulator.simulation import Simulation
from workloads.effects import served_requests
from workloads.populations.equilibrium import equilibrium
from workloads.populations.population import Population
from workloads.populations.presence import SETTLING_THINK_TIMES
from workloads.populations.sessions import NO_TIME, AnswerTimes, Sessions
from workloads.randomness import checked_seed
from workloads.requests import RequestTable
from workloads.traces.trace import Trace

REQUESTS_PER_REPLICATION = 6000
WARMUP_SHARE = 1 / 4  # of the horizon, in which nothing is judged
MIN_HORIZON_S = 360.0
LONGEST_S = 7200.0  # for the sake of the requests alone, where users are few
THINK_TIMES = 8.0  # sessions must cycle, caches fill, crowding come and go
ANSWERS, TOKEN_S = 20.0, 0.05  # so many mean answers, a token in such a time: requests in flight must settle
HOUR_S = 3600.0  # where hours are judged: misses of some minutes depend on those before, so that runs are as long
MAX_TURNS_PER_USER = 16_384
FIRST_REQUESTS = 300_000  # drawn before it is known how many the servers take: about 140 MB
DRAWN_STEP = 1.25  # numbers of users that are drawn: its powers, since a search tries many close to each other
NUM_KEPT, MOST_KEPT = 16, 250_000  # draws, and turns in each: 160 MB at most


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawn:
    """One replication's requests, and what chance put into them."""

    table: RequestTable
    surplus: tuple[float, ...]
    """What chance drew beyond its expectation, of the turns that would come between warm-up and horizon if answers took
    as long as expected, so that congestion does not touch it; 0 where the expectation is not known.

    First the work, squared prompt lengths, as a share of its expectation. Then, of users, how much of it comes from
    those who have more and those who have less than others together: products of the shares of any two users."""


class Load(Protocol):
    """Users in any number; `size` is what the search varies."""

    @property
    def unit(self) -> str:
        """What `size` counts: `users` or `requests/s`."""

    @property
    def seed(self) -> int: ...

    def ran_dry(self, simulation: Simulation) -> bool:
        """Whether the table ended before the horizon, so that the load was less than asked for."""

    def horizon_s(self, size: float) -> float:
        """How long one replication must run at this size."""

    def draw(self, size: float, replication: int, *, patience: int = 0) -> Drawn:
        """One replication's requests; a larger `patience` gives longer sessions."""

    def users(self, size: float, *, requests_per_s: float, e2e_mean_s: float) -> float:
        """How many active sessions the size stands for, once the load has been simulated."""

    def round(self, size: float) -> float:
        """The next smaller size that can be asked for."""

    @property
    def smallest(self) -> float:
        """No smaller load is tried."""

    def within(self, max_model_len: int, max_prompt_tokens: int) -> "Load | None":
        """The same in an engine that takes no longer requests; None where it refuses some."""


@dataclass(frozen=True, kw_only=True)
class UserLoad:
    """Closed-loop users of a population; user u does the same for every number of users.

    They are met as the long run has them if answers take as long as expected: those who say much wait longer, so that
    more of them are there than among users who only think.
    """

    population: Population
    max_model_len: int
    seed: int
    min_horizon_s: float = MIN_HORIZON_S
    answers: AnswerTimes = NO_TIME

    @property
    def unit(self) -> str:
        return "users"

    def ran_dry(self, simulation: Simulation) -> bool:
        return simulation.num_exhausted_sessions > 0

    @property
    def think_time_s(self) -> float:
        return self.population.think_time_s.mean()

    def horizon_s(self, size: float) -> float:
        return max(
            min(REQUESTS_PER_REPLICATION * self.think_time_s / size, LONGEST_S),
            THINK_TIMES * self.think_time_s,
            self.min_horizon_s,
            _settled_s(self.population.output_tokens.mean()),
        )

    def draw(self, size: float, replication: int, *, patience: int = 0) -> Drawn:
        sessions, horizon_s = self._sessions(size, replication, patience), self.horizon_s(size)
        until_s = math.inf if self.population.clients.library.abandons_session else horizon_s  # who leaves skips turns
        seed = replication_seed(self.seed, replication)
        table = self.population.served(sessions.table(until_s), seed, sessions.opens(until_s))
        return Drawn(table=table, surplus=self._surplus(sessions, horizon_s))

    def _sessions(self, size: float, replication: int, patience: int) -> Sessions:
        """What the users of one replication were drawn to do; drawn for a few more users, so that it may be kept."""
        step = math.ceil(math.log(size) / math.log(DRAWN_STEP) - 1e-9)
        fewest, most = math.floor(DRAWN_STEP ** (step - 1)), math.floor(DRAWN_STEP**step + 1e-9)
        mean_turns = self.horizon_s(max(fewest, 1)) / max(self.think_time_s, 1.0)
        first = min(3 * mean_turns + 12, max(FIRST_REQUESTS / most, 12))  # thousands of users wait more than they think
        settling = 2 * SETTLING_THINK_TIMES if self._settling_s else 0
        turns = min(math.ceil((first + settling) * 2**patience), MAX_TURNS_PER_USER)
        asked = (self.population, max(most, int(size)), turns, replication_seed(self.seed, replication))
        draw = _kept_sessions if most * turns <= MOST_KEPT else _sessions
        skips = self.population.clients.library.abandons_session
        until_s = math.inf if skips else self._settling_s + self.horizon_s(max(fewest, 1))
        found = draw(asked, self.max_model_len, until_s, self._settling_s, self.answers).head(int(size))
        if found.reach_the_start or turns == MAX_TURNS_PER_USER:
            return found
        return self._sessions(size, replication, patience + 1)

    @property
    def _settling_s(self) -> float:
        return 0.0 if self.answers == NO_TIME else SETTLING_THINK_TIMES * self.think_time_s

    def _surplus(self, sessions: Sessions, horizon_s: float) -> tuple[float, ...]:
        """A stationary start makes a user's turns a stationary process, and users are independent: exact."""
        if self.population.at_limit.goes_on:  # the equilibrium knows no turns beyond the limit
            return 0.0, 0.0
        arrival_s = sessions.arrival_s(self.answers)
        if not self.think_time_s or arrival_s[:, -1].min() < horizon_s:  # not all turns within the horizon were drawn
            return 0.0, 0.0
        counted = (arrival_s >= WARMUP_SHARE * horizon_s) & (arrival_s < horizon_s) & sessions.is_met
        squares = np.where(counted, sessions.prompt_tokens.astype(float) ** 2, 0.0).sum(axis=1)
        mean = equilibrium(self.population, self.max_model_len)
        cycle_s = self.think_time_s + float(self.answers.of(mean.prompt, mean.context - mean.prompt))
        each = squares / ((1 - WARMUP_SHARE) * horizon_s / cycle_s * mean.prompt_square) - 1
        work = float(each.mean())
        return work, work**2 - float(each @ each) / sessions.num_users**2

    def users(self, size: float, *, requests_per_s: float, e2e_mean_s: float) -> float:
        return size

    def within(self, max_model_len: int, max_prompt_tokens: int) -> "UserLoad":
        return replace(self, max_model_len=min(self.max_model_len, max_model_len))

    def round(self, size: float) -> float:
        return float(max(math.floor(size), 1))

    @property
    def smallest(self) -> float:
        return 1.0


def _sessions(
    asked: tuple[Population, int, int, int], max_model_len: int, until_s: float, settling_s: float, answers: AnswerTimes
) -> Sessions:
    found = Population.sessions(*asked, max_model_len, until_s=until_s)
    return found.met_later(settling_s, answers) if settling_s else found


_kept_sessions = lru_cache(maxsize=NUM_KEPT)(_sessions)


@dataclass(frozen=True, kw_only=True)
class TraceLoad:
    """A trace replayed faster or slower: arrival times divided by a factor, order and lengths kept.

    Each replication starts at its own random time of the trace, wrapped round. A trace without sessions says
    nothing of users: they are λ (Z + R), with think time Z given.
    """

    trace: Trace
    think_time_s: float
    seed: int
    min_horizon_s: float = MIN_HORIZON_S

    def __post_init__(self) -> None:
        if not 0 < self.trace.requests_per_s < math.inf:
            raise HeadcountError(
                f"trace '{self.trace.name}' has no rate that could be scaled: its {self.trace.num_requests:,} requests "
                "arrive at one time; replay it with 'headcount simulate', or give a longer trace"
            )

    @property
    def unit(self) -> str:
        return "requests/s"

    def ran_dry(self, simulation: Simulation) -> bool:
        return simulation.all_have_arrived

    def horizon_s(self, size: float) -> float:
        settled_s = _settled_s(float(self.trace.table.output_tokens.mean()))
        return max(REQUESTS_PER_REPLICATION / size, self.min_horizon_s, settled_s)

    def draw(self, size: float, replication: int, *, patience: int = 0) -> Drawn:
        rng = np.random.default_rng(_seed_sequence(self.seed, replication))
        start_s, horizon_s = float(rng.random()) * self.trace.period_s, self.horizon_s(size)
        count = math.ceil(1.1 * size * horizon_s * 2**patience) + 100
        table = self.trace.window(count, start_s).scaled_arrivals(size / self.trace.requests_per_s)
        surplus = self._surplus(table, size, horizon_s)
        return Drawn(table=self.trace.clients.applied(table, replication_seed(self.seed, replication)), surplus=surplus)

    def _surplus(self, table: RequestTable, size: float, horizon_s: float) -> tuple[float, ...]:
        """From a random time of a trace that is wrapped round, every request is as likely as any other."""
        if (self.trace.table.follows >= 0).any():  # when a later turn comes, the server decides
            return (0.0,)
        judged = (table.arrival_s >= WARMUP_SHARE * horizon_s) & (table.arrival_s < horizon_s)
        square = float((table.prompt_tokens[judged].astype(float) ** 2).sum())
        expected = size * (1 - WARMUP_SHARE) * horizon_s
        return (square / (expected * float((self.trace.table.prompt_tokens.astype(float) ** 2).mean())) - 1,)

    def users(self, size: float, *, requests_per_s: float, e2e_mean_s: float) -> float:
        return size * (self.think_time_s + e2e_mean_s)

    def within(self, max_model_len: int, max_prompt_tokens: int) -> "TraceLoad | None":
        fitting = fitting_trace(self.trace, max_prompt_tokens)
        if fitting.table.prompt_tokens.max() > max_prompt_tokens:
            return None
        return self if fitting is self.trace else replace(self, trace=fitting)

    def round(self, size: float) -> float:
        return size

    @property
    def smallest(self) -> float:
        return 1e-3


@lru_cache(maxsize=NUM_KEPT)
def fitting_trace(trace: Trace, max_prompt_tokens: int) -> Trace:
    """The trace without the requests that an engine refuses; itself where none is, or all are."""
    table = served_requests(trace.table, max_prompt_tokens)
    return trace if table is trace.table else replace(trace, table=table)


def _settled_s(output_tokens: float) -> float:
    """How long a run that starts empty takes to forget that its first requests met nobody."""
    return ANSWERS * TOKEN_S * output_tokens


def replication_seed(seed: int, replication: int) -> int:
    """Independent of the seeds of all other replications."""
    return int(_seed_sequence(seed, replication).generate_state(1)[0])


def _seed_sequence(seed: int, replication: int) -> np.random.SeedSequence:
    return np.random.SeedSequence([checked_seed(seed), replication])
