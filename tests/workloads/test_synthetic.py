"""Fixed-length loads against what a benchmark client would send."""

from __future__ import annotations

import math

import numpy as np
import pytest

from files.reading import InputError
from workloads.arrivals import Bursty
from workloads.requests import NEXT_FREE, NO_PREDECESSOR
from workloads.synthetic import closed_load, open_load, single_turn_users


def test_a_closed_load_starts_its_clients_at_once_then_takes_the_next_row() -> None:
    table = closed_load(concurrency=3, num_requests=7, input_len=100, output_len=20)
    table.validate()
    assert table.follows.tolist() == [NO_PREDECESSOR] * 3 + [NEXT_FREE] * 4
    assert table.arrival_s[:3].tolist() == [0, 0, 0]
    assert np.isnan(table.arrival_s[3:]).all()
    assert (table.prompt_tokens == 100).all()
    assert (table.output_tokens == 20).all()


def test_a_concurrency_above_the_number_of_requests_sends_all_at_once() -> None:
    assert (closed_load(concurrency=9, num_requests=4, input_len=5, output_len=5).arrival_s == 0).all()


def test_lengths_are_uniform_between_spread_and_nominal() -> None:
    table = closed_load(concurrency=1, num_requests=50_000, input_len=100, output_len=1000, length_spread=0.8, seed=4)
    assert (table.prompt_tokens.min(), table.prompt_tokens.max()) == (80, 100)
    assert (table.output_tokens.min(), table.output_tokens.max()) == (800, 1000)
    counts = np.bincount(table.prompt_tokens)[80:]
    expected = 50_000 / 21
    assert (abs(counts - expected) < 5 * math.sqrt(expected)).all()
    assert abs(np.corrcoef(table.prompt_tokens, table.output_tokens)[0, 1]) < 4 / math.sqrt(50_000)


def test_no_two_requests_share_content() -> None:
    table = closed_load(concurrency=2, num_requests=9, input_len=10, output_len=10)
    assert len(set(table.span_content.tolist())) == 9


def test_an_open_load_has_its_rate() -> None:
    table = open_load(rate_per_s=8, num_requests=10_000, input_len=10, output_len=10, seed=2)
    table.validate()
    assert abs(table.arrival_s[-1] - 1250) < 4 * math.sqrt(10_000) / 8


def test_another_rate_scales_the_same_load() -> None:
    slow = open_load(
        rate_per_s=2, num_requests=100, input_len=10, output_len=10, length_spread=0.5, arrivals=Bursty(burstiness=0.5)
    )
    fast = open_load(
        rate_per_s=8, num_requests=100, input_len=10, output_len=10, length_spread=0.5, arrivals=Bursty(burstiness=0.5)
    )
    np.testing.assert_allclose(slow.arrival_s, 4 * fast.arrival_s)
    np.testing.assert_array_equal(slow.prompt_tokens, fast.prompt_tokens)


def test_an_infinite_rate_sends_all_at_once() -> None:
    assert (open_load(rate_per_s=math.inf, num_requests=5, input_len=1, output_len=1).arrival_s == 0).all()


def test_single_turn_users_send_the_lengths_asked_for() -> None:
    population = single_turn_users(input_len=200, output_len=50, think_time_s=10, length_spread=0.5)
    table = population.draw(1000, 4, 1, 4096)
    table.validate()
    assert (table.prompt_tokens.min(), table.prompt_tokens.max()) == (100, 200)
    assert (table.output_tokens.min(), table.output_tokens.max()) == (25, 50)
    assert abs(table.think_s[table.follows >= 0].mean() - 10) < 4 * 10 / math.sqrt(3000)
    assert len(set(table.span_content.tolist())) == 4000


def test_users_who_never_think_are_possible() -> None:
    table = single_turn_users(input_len=20, output_len=5, think_time_s=0).draw(3, 3, 1, 100)
    table.validate()
    assert (table.think_s == 0).all()
    assert (table.arrival_s[::3] == 0).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"concurrency": 0}, "concurrency is 0"),
        ({"num_requests": 0}, "num_requests is 0"),
        ({"input_len": 0}, "input_len is 0"),
        ({"output_len": -1}, "output_len is -1"),
        ({"length_spread": 0.0}, "length_spread is 0.0; it must be above 0, at most 1"),
        ({"length_spread": 1.2}, "length_spread is 1.2"),
    ],
)
def test_a_load_of_nothing_is_refused(changes: dict[str, float], message: str) -> None:
    settings = {"concurrency": 2, "num_requests": 4, "input_len": 8, "output_len": 8, "length_spread": 1.0} | changes
    with pytest.raises(InputError, match=message):
        closed_load(**settings)  # type: ignore[arg-type]
