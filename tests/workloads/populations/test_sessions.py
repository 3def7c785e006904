"""Users met in mid-conversation, as the long run has them when answers take their time."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.load import load_preset
from workloads.populations.equilibrium import equilibrium
from workloads.populations.sessions import NO_TIME, AnswerTimes

CHAT = load_preset("chat")
SLOW = AnswerTimes(answer_s=2.0, prompt_token_s=3e-3, output_token_s=0.03)
LIMIT = 8192


@settings(max_examples=20)
@given(
    st.floats(0, 900),
    st.builds(
        AnswerTimes, answer_s=st.floats(0, 9), prompt_token_s=st.floats(0, 1e-2), output_token_s=st.floats(0, 0.1)
    ),
)
def test_turns_that_come_later_are_those_that_would_have_come(time_s: float, answers: AnswerTimes) -> None:
    sessions = CHAT.sessions(60, 30, 3, LIMIT)
    before, met = sessions.arrival_s(answers), sessions.met_later(time_s, answers)
    later = before >= time_s
    assert (met.is_met == later).all()
    np.testing.assert_allclose(met.arrival_s(answers)[later], before[later] - time_s, atol=1e-6)
    table = met.table()
    table.validate()
    assert table.num_requests == later.sum()
    assert (table.prompt_tokens == sessions.prompt_tokens[later]).all()
    assert met.reach_the_start == later.any(axis=1).all()


def test_time_zero_changes_nothing() -> None:
    sessions = CHAT.sessions(50, 12, 1, LIMIT)
    met = sessions.met_later(0.0, SLOW)
    assert (met.met_at == 0).all()
    assert met.table().prompt_tokens.tolist() == sessions.table().prompt_tokens.tolist()
    assert (met.opens() == sessions.opens()).all()


def share_late(answers: AnswerTimes, met: bool) -> tuple[float, float]:
    """Squared prompt tokens that come in the first think time, over their expectation, and in a late one."""
    sessions = CHAT.sessions(40_000, 32, 11, LIMIT)
    mean, think_s = equilibrium(CHAT, LIMIT), CHAT.think_time_s.mean()
    if met:
        sessions = sessions.met_later(8 * think_s, answers)
    arrival_s = sessions.arrival_s(answers)
    square = np.where(sessions.is_met, sessions.prompt_tokens.astype(float) ** 2, 0.0)
    cycle_s = think_s + float(answers.of(mean.prompt, mean.context - mean.prompt))
    expected = sessions.num_users * think_s / cycle_s * mean.prompt_square
    first, late = (square[(arrival_s >= at) & (arrival_s < at + think_s)].sum() for at in (0.0, 8 * think_s))
    return first / expected, late / expected


def test_from_the_start_as_much_comes_as_in_the_long_run() -> None:
    first, late = share_late(SLOW, met=True)
    assert (first, late) == pytest.approx((1.0, 1.0), abs=0.03)


def test_users_who_only_thought_before_ask_for_less_at_first() -> None:
    first, late = share_late(SLOW, met=False)
    assert first < 0.95
    assert late == pytest.approx(1.0, abs=0.03)
    assert share_late(NO_TIME, met=False)[0] == pytest.approx(1.0, abs=0.03)


def test_without_the_compiler_many_users_are_the_same() -> None:
    """`NUMBA_DISABLE_JIT=1` is how kernels are debugged; 2,049 users have more conversations than 32 bits count."""
    code = (
        "from workloads.load import load_preset; table = load_preset('chat').draw(2_049, 1, 1, 131_072);"
        "print(table.prompt_tokens.sum(), table.follows.sum(), hash(table.arrival_s.tobytes()))"
    )
    own = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONWARNINGS": "ignore"}
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=own | {"NUMBA_DISABLE_JIT": disabled},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for disabled in ("0", "1")
    }
    assert len(found) == 1
