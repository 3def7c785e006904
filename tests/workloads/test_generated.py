"""Generated traces hold what their population does, in order of arrival."""

import numpy as np
import pytest

from boundary.files import InputError
from workloads.arrivals import POISSON, GammaGaps, arrival_times
from workloads.description.arrivals import earliest_arrival_s
from workloads.load import load_preset
from workloads.requests import RequestTable
from workloads.synthetic import single_turn_users
from workloads.traces.blocks import shares_content
from workloads.writing.generated import requests_at, requests_over

CHAT = load_preset("chat")


def over(duration_s: float, users: int = 40) -> RequestTable:
    return requests_over(CHAT, num_users=users, duration_s=duration_s, seed=3, max_model_len=8192)


def test_requests_come_in_order_of_arrival_within_the_time() -> None:
    table = over(1800)
    table.validate()
    at_s = earliest_arrival_s(table)
    assert (np.diff(at_s) >= 0).all()
    assert at_s[0] >= 0
    assert at_s[-1] <= 1800
    rate = table.num_requests / 1800
    assert rate == pytest.approx(40 / CHAT.think_time_s.mean(), rel=0.2)


def test_a_longer_time_begins_as_a_shorter_one() -> None:
    short, long = over(300), over(3000)
    n = short.num_requests
    for name in ("arrival_s", "follows", "think_s", "prompt_tokens", "output_tokens"):
        np.testing.assert_array_equal(getattr(short, name), getattr(long, name)[:n])
    assert earliest_arrival_s(long)[n] > 300


def test_at_a_rate_requests_come_at_the_times_of_the_process() -> None:
    bursty = GammaGaps(cv=2)
    table = requests_at(CHAT, bursty, rate_per_s=2, num_requests=3000, seed=5, max_model_len=8192)
    table.validate()
    np.testing.assert_array_equal(table.arrival_s, arrival_times(bursty, 2, 3000, 5))
    assert shares_content(table)
    assert table.output_tokens.mean() == pytest.approx(CHAT.output_tokens.mean(), rel=0.1)


def test_few_requests_and_users_without_thought_can_be_generated_at_a_rate() -> None:
    users = single_turn_users(input_len=100, output_len=10, think_time_s=0)
    with pytest.raises(InputError, match="has no think time"):
        requests_over(users, num_users=2, duration_s=10, seed=0, max_model_len=1000)
    one = requests_at(CHAT, POISSON, rate_per_s=1, num_requests=1, seed=0, max_model_len=8192)
    assert one.num_requests == 1
