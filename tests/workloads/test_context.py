"""The mean context of a population."""

from dataclasses import replace

import numpy as np
import pytest

from boundary.files import InputError
from workloads.distributions import Fixed
from workloads.load import load_preset
from workloads.population import TURNS_DRAWN, mean_context_tokens

CHAT = load_preset("chat")


def test_the_chat_preset_s_mean_is_what_its_moments_say() -> None:
    """System prompt + (message + answer) × E[T (T + 1) / 2] / E[T], to within four standard errors."""
    u = (np.arange(200_000) + 0.5) / 200_000
    turns = np.maximum(np.ceil(CHAT.turns.quantile(u)), 1)
    per_turn = CHAT.user_tokens.mean() + CHAT.output_tokens.mean()
    exact = CHAT.system_prompt_tokens + per_turn * (turns * (turns + 1) / 2).mean() / turns.mean()
    table = CHAT.draw(TURNS_DRAWN, 1, 0, 2**30)
    error = (table.prompt_tokens + table.output_tokens).std() / TURNS_DRAWN**0.5
    assert mean_context_tokens(CHAT, 2**30) == pytest.approx(exact, abs=4 * error)


def test_fixed_lengths_give_the_exact_mean() -> None:
    fixed = replace(CHAT, turns=Fixed(value=1), user_tokens=Fixed(value=100), output_tokens=Fixed(value=50))
    assert mean_context_tokens(fixed, 8192) == 512 + 150


def test_a_shorter_limit_cuts_conversations() -> None:
    means = [mean_context_tokens(CHAT, limit) for limit in (2048, 8192, 131072)]
    assert means == sorted(means)
    assert means[0] < 2048


def test_no_room_for_the_system_prompt_is_told() -> None:
    with pytest.raises(InputError, match="needs at least 514"):
        mean_context_tokens(CHAT, 100)
