"""A population's turns in equilibrium, beside what is drawn and what moments say."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from files.reading import InputError
from workloads.distributions import Exponential, Fixed, Geometric, Lognormal, RoundedUp
from workloads.load import load_preset
from workloads.populations.equilibrium import equilibrium
from workloads.populations.population import Population

CHAT = load_preset("chat")
AGENT = replace(CHAT, turns=Exponential(mean_value=40), user_tokens=Lognormal(median=800, sigma=1.5))
SHORT_TAILS = replace(CHAT, user_tokens=Exponential(mean_value=300), output_tokens=Exponential(mean_value=400))
UNBOUNDED = 2**30


def by_moments(population: Population) -> tuple[float, float]:
    """Mean context, mean squared prompt where nothing is cut: messages u and turns s = u + o are independent."""
    q = (np.arange(2_000_000) + 0.5) / 2_000_000
    turns = RoundedUp(inner=population.turns).quantile(q)
    user, output = (np.rint(each.quantile(q)) for each in (population.user_tokens, population.output_tokens))
    s, system = user.mean() + output.mean(), population.system_prompt_tokens
    before = (turns * (turns - 1) / 2).mean() / turns.mean()  # turns of the conversation that a turn finds
    before_square = (turns * (turns - 1) * (2 * turns - 1) / 6).mean() / turns.mean()
    fixed = system + user.mean()
    square = (
        fixed**2 + user.var() + before * (user.var() + output.var()) + before_square * s**2 + 2 * before * s * fixed
    )
    return system + s * (before + 1), square


def test_where_nothing_is_cut_the_means_are_those_of_the_moments() -> None:
    found = equilibrium(SHORT_TAILS, UNBOUNDED)
    assert (found.context, found.prompt_square) == pytest.approx(by_moments(SHORT_TAILS), rel=2e-3)
    assert equilibrium(CHAT, UNBOUNDED).context == pytest.approx(by_moments(CHAT)[0], rel=2e-3)


@pytest.mark.parametrize("population", [CHAT, AGENT, SHORT_TAILS], ids=["chat", "agent", "short tails"])
@pytest.mark.parametrize("max_model_len", [1024, 4096, 32_768])
def test_the_means_are_those_of_drawn_sessions(population: Population, max_model_len: int) -> None:
    users = 1000
    drawn = population.sessions(users, 60, 1, max_model_len)
    found = equilibrium(population, max_model_len)
    context = drawn.prompt_tokens + drawn.output_tokens
    prompt = drawn.prompt_tokens.astype(float)
    for mean, values in ((found.context, context), (found.prompt, prompt), (found.prompt_square, prompt**2)):
        by_user = values.mean(axis=1)
        error = by_user.std(ddof=1) / users**0.5
        assert abs(mean - by_user.mean()) < 4 * error + 1e-3 * mean
        assert error < 0.05 * mean, "too few draws to prove anything"


def test_fixed_lengths_give_the_exact_mean() -> None:
    fixed = replace(CHAT, turns=Fixed(value=1), user_tokens=Fixed(value=100), output_tokens=Fixed(value=50))
    found = equilibrium(fixed, 8192)
    assert (found.context, found.prompt, found.prompt_square) == pytest.approx((512 + 150, 612, 612**2))


@pytest.mark.slow
@settings(max_examples=20)
@given(st.integers(600, 200_000), st.integers(1, 100_000))
def test_a_longer_limit_leaves_longer_contexts(max_model_len: int, more: int) -> None:
    short, long = equilibrium(CHAT, max_model_len), equilibrium(CHAT, max_model_len + more)
    assert short.context <= long.context * 1.001
    assert short.prompt_square <= long.prompt_square * 1.001
    assert short.context <= max_model_len


def test_sessions_of_hundreds_of_turns_settle() -> None:
    found = equilibrium(replace(CHAT, turns=Geometric(mean_value=500)), 16_384)
    assert found.conversations_cut > 0.8
    assert 512 < found.context < 16_384


def test_no_room_for_the_system_prompt_is_told() -> None:
    with pytest.raises(InputError, match="needs at least 514"):
        equilibrium(CHAT, 100)
