"""What max_model_len makes of a workload."""

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from files.reading import InputError
from tests.workloads.populations.test_population import CHAT, SHORT, UNBOUNDED, contents
from workloads.distributions import Fixed, Geometric
from workloads.effects import traffic_effects
from workloads.populations.population import Population
from workloads.requests import independent_requests

BY_HAND = Population(
    name="by hand", system_prompt_tokens=10, turns=Fixed(value=3), user_tokens=Fixed(value=20),
    output_tokens=Fixed(value=30), think_time_s=Fixed(value=1),
)  # fmt: skip


@pytest.mark.parametrize(
    ("max_model_len", "cut", "shortened", "answers"),
    [(160, 0, 0, 0), (159, 1, 0, 0), (60, 1, 0, 0), (59, 1, 0, 1), (40, 1, 1, 1)],
)
def test_effects_are_those_worked_out_by_hand(max_model_len: int, cut: float, shortened: float, answers: float) -> None:
    found = traffic_effects(BY_HAND, max_model_len)
    assert (found.conversations_cut, found.messages_shortened, found.answers_cut) == (cut, shortened, answers)
    assert found.prompts_refused is None
    assert found.worst == max(cut, shortened, answers)


@pytest.mark.slow
@given(pair=st.tuples(st.integers(600, 100_000), st.integers(600, 100_000)))
@settings(max_examples=15)
def test_a_longer_limit_never_cuts_more(pair: tuple[int, int]) -> None:
    less, more = (traffic_effects(CHAT, limit) for limit in sorted(pair))
    assert more.conversations_cut <= less.conversations_cut
    assert more.messages_shortened <= less.messages_shortened


def test_without_a_limit_in_reach_nothing_is_rewritten() -> None:
    assert traffic_effects(CHAT, UNBOUNDED).worst == 0


@pytest.mark.parametrize("max_model_len", [600, 2048])
def test_the_share_cut_is_that_of_the_drawn_conversations(max_model_len: int) -> None:
    users, turns = 3000, 40
    tables = [SHORT.draw(users, turns, 5, limit, stationary_start=False) for limit in (UNBOUNDED, max_model_len)]
    whole, limited = ((contents(table).reshape(users, turns) % 2**24 == 1).sum(axis=1) for table in tables)
    found = traffic_effects(SHORT, max_model_len).conversations_cut
    assert found == pytest.approx((limited < whole).mean(), abs=0.03)
    assert found > 0.01


def test_the_same_question_has_the_same_effects() -> None:
    assert traffic_effects(CHAT, 4096) == traffic_effects(CHAT, 4096)


@pytest.mark.parametrize("turns", [CHAT.turns, Fixed(value=10_000), Geometric(mean_value=500)], ids=str)
def test_effects_take_a_fraction_of_a_second(turns: Fixed | Geometric) -> None:
    population = replace(CHAT, turns=turns)
    took = []
    for _ in range(3):
        start = time.perf_counter()
        traffic_effects(population, 16_384)
        took.append(time.perf_counter() - start)
    assert min(took) < 0.3


def test_a_trace_s_shares_are_counted() -> None:
    table = independent_requests(
        arrival_s=np.arange(4), prompt_tokens=[50, 100, 50, 110], output_tokens=[10, 50, 70, 5]
    )
    found = traffic_effects(table, 110)
    assert found.to_json() == {
        "max_model_len": 110, "prompt_tokens": pytest.approx(200 / 3), "output_tokens": pytest.approx(80 / 3),
        "conversations_cut": None, "conversations_truncated": None,
        "conversations_summarized": None, "messages_shortened": None, "prompts_refused": 0.25,
        "answers_cut": 0.5,
        "asked_context_tokens": 0.0, "keeps_context": False, "held_from_tokens": None,
    }  # fmt: skip


def test_a_limit_without_room_for_a_message_is_refused() -> None:
    with pytest.raises(InputError, match="needs at least 514: its system prompt has 512 tokens"):
        traffic_effects(CHAT, 513)
