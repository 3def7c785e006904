"""A mean context that was asked for, where max_model_len cuts the longest conversations."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.effects import KEPT, traffic_effects
from workloads.load import load_preset
from workloads.populations.at_limit import AtLimit
from workloads.populations.equilibrium import equilibrium
from workloads.requests import OPEN_END
from workloads.traffic import changed
from workloads.traffic_changes import Amount

LIMIT = 131_072
CODE, CHAT = load_preset("code"), load_preset("chat")


def tokens(value: float) -> dict[str, Amount]:
    return {"context": Amount(value=value)}


@pytest.mark.parametrize("name", ["chat", "code", "rag"])
@pytest.mark.parametrize("asked", [8192, 32_768, 98_304])
def test_a_mean_context_that_a_model_holds_is_kept(name: str, asked: int) -> None:
    found = traffic_effects(changed(load_preset(name), tokens(asked)), LIMIT)
    assert found.context_tokens == pytest.approx(asked, rel=0.01)
    assert found.is_as_asked
    assert found.held_from_tokens is None


@given(asked=st.integers(4_000, 200_000), limit=st.integers(9_000, 200_000))
@settings(max_examples=10, deadline=None)
def test_a_mean_is_the_one_asked_for_or_the_limit_and_is_said_to_be_cut(asked: int, limit: int) -> None:
    found = traffic_effects(changed(CODE, tokens(asked)), limit)
    assert found.context_tokens == pytest.approx(min(asked, limit), rel=0.02)
    assert found.is_as_asked == (found.context_tokens >= KEPT * found.asked_context_tokens)
    assert found.is_as_asked or asked > limit


def test_a_longer_context_has_no_shorter_message() -> None:
    users = [changed(CHAT, tokens(asked)).within(LIMIT) for asked in (4096, 16_384, 40_000, 80_000, 120_000, 200_000)]
    lengths = [each.user_tokens.quantile(np.linspace(0, 0.999, 50)) for each in users]
    assert all((shorter <= longer).all() for shorter, longer in pairwise(lengths))


def test_drawn_requests_have_the_mean_that_was_asked_for() -> None:
    table = changed(CODE, tokens(65_536)).draw(400, 30, 1, LIMIT)
    assert (table.prompt_tokens + table.output_tokens).mean() == pytest.approx(65_536, rel=0.02)


def test_without_a_limit_in_reach_asking_changes_nothing() -> None:
    asked = changed(CODE, tokens(4096))
    assert asked.within(LIMIT) == replace(asked, asked_context=None)
    assert asked.within(OPEN_END - 1) == replace(asked, asked_context=None)
    assert CODE.within(600) is CODE


def test_a_multiple_of_what_the_limit_cuts_itself_is_cut_like_it() -> None:
    agent = load_preset("agent")
    half, own, twice = (
        traffic_effects(changed(agent, {"context": Amount(value=factor, is_factor=True)}), LIMIT)
        for factor in (0.5, 1, 2)
    )
    assert half.context_tokens < own.context_tokens < twice.context_tokens
    assert not any(each.is_as_asked for each in (half, own, twice))


def test_the_context_that_is_named_holds_the_traffic() -> None:
    agent = load_preset("agent")
    held = traffic_effects(agent, LIMIT).held_from_tokens
    assert held is not None
    assert traffic_effects(agent, held).is_as_asked
    assert not traffic_effects(agent, held // 2).is_as_asked


def test_conversations_that_go_on_beyond_the_limit_are_as_long_as_they_are() -> None:
    goes_on = replace(changed(CHAT, tokens(32_768)), at_limit=AtLimit(does="truncate", kept_share=0.5))
    found = traffic_effects(goes_on, LIMIT)
    assert not found.keeps_context
    assert found.context_tokens == equilibrium(replace(goes_on, asked_context=None), LIMIT).context
