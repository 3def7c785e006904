"""Users who come and go over a day."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.daily_profile import MEAN_DAY, Profile
from workloads.load import load_preset
from workloads.populations.presence import LONGEST_S, presences, users_over_time
from workloads.populations.sessions import AnswerTimes


def there(starts_s: np.ndarray, ends_s: np.ndarray, times_s: np.ndarray) -> np.ndarray:
    return np.array([((starts_s <= time_s) & (ends_s > time_s)).sum() for time_s in times_s])


@settings(max_examples=20)
@given(users=st.integers(1, 60), seed=st.integers(0, 2**16))
def test_as_many_are_there_as_the_profile_says(users: int, seed: int) -> None:
    starts_s, ends_s = presences(users, 86_400.0, MEAN_DAY, seed)
    times_s = np.arange(0.0, 86_400.0, 600.0)
    level = users * MEAN_DAY.over_peak(times_s)
    assert np.abs(there(starts_s, ends_s, times_s + 1.0) - level).max() <= 1.0
    assert (ends_s - starts_s).max() <= LONGEST_S + 1e-6
    assert (ends_s > starts_s).all()


def test_without_a_profile_all_are_there_all_the_time() -> None:
    starts_s, ends_s = presences(7, 30_000.0, None, 1)
    assert (there(starts_s, ends_s, np.arange(0.0, 30_000.0, 100.0)) == 7).all()


def test_requests_follow_the_profile_and_are_the_same_again() -> None:
    hours = tuple(float(hour in (8, 9)) for hour in range(24))
    given_to = {"duration_s": 86_400.0, "profile": Profile(hours=hours), "seed": 3, "max_model_len": 8192}
    table, again = (users_over_time(load_preset("chat"), 20, **given_to) for _ in range(2))  # type: ignore[arg-type]
    assert table.arrival_s.tobytes() == again.arrival_s.tobytes()
    first_s = table.arrival_s[table.follows < 0]
    assert first_s.min() > 7.4 * 3600
    assert first_s.max() < 10.6 * 3600
    table.validate()


@pytest.mark.parametrize("answer_s", [2.0, 60.0])
def test_users_who_wait_for_answers_send_by_little_s_law(answer_s: float) -> None:
    """λ = N / (Z + R): nobody is still waiting when another takes the place."""
    chat, users, duration_s = load_preset("chat"), 200, 3 * LONGEST_S
    answers = AnswerTimes(answer_s=answer_s)
    table = users_over_time(chat, users, duration_s=duration_s, seed=1, max_model_len=131_072, answers=answers)
    expected = users * duration_s / (chat.think_time_s.mean() + answer_s)
    assert table.num_requests == pytest.approx(expected, rel=0.03)
    table.validate()


@pytest.mark.parametrize("hour", [0.5, 10.5, 23.5])
def test_the_profile_is_met_in_the_middle_of_each_hour(hour: float) -> None:
    share = MEAN_DAY.over_peak(np.array([hour * 3600]))[0]
    assert share == pytest.approx(MEAN_DAY.hours[int(hour)] / max(MEAN_DAY.hours))
