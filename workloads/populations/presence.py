"""Users who come and go over a day."""

import math
from typing import Final

import numpy as np

from workloads.daily_profile import Profile
from workloads.populations.population import Population
from workloads.randomness import stream
from workloads.requests import FloatArray, RequestTable

LOOK_S: Final = 60.0  # how finely users come and go
LONGEST_S: Final = 7_200.0  # then another takes a user's place, so that tables are no longer than their busiest rows
SPARE_TURNS: Final = 20


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
) -> RequestTable:
    """The requests of users who come and go: one chain of rows for each presence."""
    starts_s, ends_s = presences(users, duration_s, profile, seed)
    longest_s = float((ends_s - starts_s).max(initial=0.0))
    think_s = max(population.think_time_s.mean(), 1.0)
    turns = math.ceil(1.3 * longest_s / think_s) + SPARE_TURNS
    sessions = population.sessions(len(starts_s), turns, seed, max_model_len).shifted(starts_s)
    return population.served(sessions.table(ends_s), seed, sessions.opens(ends_s))
