"""Users who come and go over a day."""

import math
from typing import Final

import numpy as np

from workloads.daily_profile import Profile
from workloads.populations.population import Population
from workloads.populations.sessions import NO_TIME, AnswerTimes, Sessions
from workloads.randomness import stream
from workloads.requests import FloatArray, RequestTable

LOOK_S: Final = 60.0  # how finely users come and go
LONGEST_S: Final = 7_200.0  # then another takes a user's place, so that tables are no longer than their busiest rows
SPARE_TURNS: Final = 20
SETTLING_THINK_TIMES: Final = 6.0
"""In which users who get slow answers come to be as many as they are in the long run."""


def presences(users: int, duration_s: float, profile: Profile | None, seed: int) -> tuple[FloatArray, FloatArray]:
    """When each presence begins and ends, in seconds: so many users at the profile's peak, its share of them else.

    Without a profile they are there all the time. Who stays longer than LONGEST_S hands over at a random time.
    """
    times_s = np.arange(0.0, duration_s, LOOK_S)
    level = np.full(len(times_s), users + 1.0) if profile is None else users * profile.over_peak(times_s)
    starts, ends = [], []
    for user in range(users):
        there = np.concatenate([[False], level > user + 0.5, [False]])
        changes = np.flatnonzero(there[1:] != there[:-1])
        starts += (changes[::2] * LOOK_S).tolist()
        ends += np.minimum(changes[1::2] * LOOK_S, duration_s).tolist()
    return _handed_over(np.array(starts), np.array(ends), seed)


def _handed_over(starts_s: FloatArray, ends_s: FloatArray, seed: int) -> tuple[FloatArray, FloatArray]:
    """Long presences cut into shorter ones, the first of a random length so that not all end at once."""
    first_s = LONGEST_S * (0.5 + 0.5 * stream(seed, "start", 1).random(len(starts_s)))
    begins, finishes = [], []
    for start_s, end_s, length_s in zip(starts_s.tolist(), ends_s.tolist(), first_s.tolist(), strict=True):
        cuts = np.arange(start_s + length_s, end_s, LONGEST_S).tolist() if end_s - start_s > LONGEST_S else []
        begins += [start_s, *cuts]
        finishes += [*cuts, end_s]
    return np.array(begins), np.array(finishes)


def users_over_time(
    population: Population,
    users: int,
    *,
    duration_s: float,
    profile: Profile | None = None,
    seed: int,
    max_model_len: int,
    answers: AnswerTimes = NO_TIME,
) -> RequestTable:
    """The requests of users who come and go: one chain of rows for each presence.

    It ends with the last turn that comes before the user leaves if answers take so long, so that as many users are
    there as were asked for; without their times those who leave would still wait for answers when others come.
    """
    starts_s, ends_s = presences(users, duration_s, profile, seed)
    longest_s = float((ends_s - starts_s).max(initial=0.0))
    think_s = max(population.think_time_s.mean(), 1.0)
    settling_s = 0.0 if answers == NO_TIME else SETTLING_THINK_TIMES * think_s
    turns = math.ceil((1.3 * longest_s + 2 * settling_s) / think_s) + SPARE_TURNS
    sessions = population.sessions(len(starts_s), turns, seed, max_model_len)
    sessions = (sessions.met_later(settling_s, answers) if settling_s else sessions).shifted(starts_s)
    until_s = ends_s if answers == NO_TIME else _last_turns(sessions, ends_s, answers)
    return population.served(sessions.table(until_s), seed, sessions.opens(until_s))


def _last_turns(sessions: Sessions, ends_s: FloatArray, answers: AnswerTimes) -> FloatArray:
    """[users] when, at the soonest, the last turn comes that comes by each one's end if answers take so long."""
    comes = (sessions.arrival_s(answers) <= ends_s[:, None]) & sessions.is_met
    soonest_s, users = sessions.arrival_s(), np.arange(sessions.num_users)
    last = np.where(comes, np.arange(comes.shape[1]), -1).max(axis=1)
    return np.where(last >= 0, soonest_s[users, last], -1.0)
