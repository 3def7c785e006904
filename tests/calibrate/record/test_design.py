"""The plan is precise, no longer than needed, within what the engine takes; the fit finds what is there."""

import time
from dataclasses import asdict
from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import convert

from calibrate.record.design import candidates, expected_table, pilot, plan_loads, warm_up
from calibrate.record.loads import Limits, Load, Phase, expected_steps
from calibrate.record.record_model import TINY_CONFIG, assumed_limits, attention_window, guessed_seconds, record_config
from calibrate.record.step_terms import TERMS, fit_terms, term_matrix

LIMITS = Limits(max_num_seqs=32, max_num_batched_tokens=512, max_model_len=2048, kv_tokens=60_000)
GUESS = guessed_seconds(TINY_CONFIG, "cpu")
SOME_LIMITS = st.builds(
    Limits,
    max_num_seqs=st.integers(1, 64),
    max_num_batched_tokens=st.integers(64, 2048),
    max_model_len=st.integers(32, 4096),
    kv_tokens=st.integers(64, 100_000),
    window=st.none() | st.integers(1, 5000),
)


def most_held(load: Load, limits: Limits) -> tuple[int, int, int]:
    """The longest request, the most requests and the most tokens that a load holds at once."""
    alive: list[list[int]] = []
    longest = most = tokens = 0
    rows = expected_table(load, limits)
    steps = rows.groupby("phase").size()
    for number, phase in enumerate(load.phases):
        alive = alive[: phase.keep] + [[length] for length in phase.add]
        alive = [[length + int(steps.get(number, 0))] for (length,) in alive]
        longest = max(longest, *(length for (length,) in alive))
        most, tokens = max(most, len(alive)), max(tokens, sum(length for (length,) in alive))
    return longest, most, tokens


@settings(max_examples=10)
@given(SOME_LIMITS)
def test_every_load_fits_the_engine(limits: Limits) -> None:
    for load in [pilot(limits), warm_up(limits), *candidates(limits)]:
        steps = [sums for _, sums in expected_steps(load, limits)]
        assert steps and all(0 < sums.tokens <= limits.max_num_batched_tokens for sums in steps), load
        assert all(phase.add == () or min(phase.add) >= 1 for phase in load.phases)


@pytest.mark.parametrize(
    "limits",
    [
        LIMITS,
        Limits(max_num_seqs=1024, max_num_batched_tokens=8192, max_model_len=131_072, kv_tokens=450_000),
        Limits(max_num_seqs=256, max_num_batched_tokens=2048, max_model_len=8192, kv_tokens=20_000, window=1024),
    ],
)
def test_no_load_needs_a_preemption_or_passes_the_longest_context(limits: Limits) -> None:
    for load in candidates(limits):
        longest, most, tokens = most_held(load, limits)
        assert longest < limits.max_model_len, load.name
        assert most <= limits.max_num_seqs, load.name
        assert tokens <= limits.kv_tokens, load.name


@pytest.mark.slow
@pytest.mark.parametrize(
    "engine",
    [
        {"max_num_batched_tokens": 64},
        {"max_num_batched_tokens": 1},
        {"max_model_len": 10**9},
        {"max_num_seqs": 10**6, "max_num_batched_tokens": 10**6, "num_gpu_blocks_override": 10**9},
    ],
)
def test_an_unusual_engine_is_planned_for_in_time(engine: dict[str, int]) -> None:
    """64 tokens a step hold 64 sequences, though vLLM would take 256; loads of millions of steps are left out."""
    limits = assumed_limits(record_config("llama-3.1-8b"), engine)
    assert limits.max_num_seqs <= limits.max_num_batched_tokens
    begin_s = time.process_time()
    plan = plan_loads(limits, GUESS, precision=0.05, done=[pilot(limits)])
    assert time.process_time() - begin_s < 20
    longest = [load.num_steps(limits) for load in plan.loads]
    assert max(steps for steps, _ in longest) <= 10_000 and max(rows for _, rows in longest) <= 250_000


def test_the_steps_of_a_load_are_counted_before_they_are_foreseen() -> None:
    for load in candidates(LIMITS):
        steps, rows = load.num_steps(LIMITS)
        table = expected_table(load, LIMITS)
        assert len(table) <= steps and table["sequences"].sum() <= rows


def test_steps_foreseen_compute_every_prompt_once() -> None:
    load = Load(name="one", phases=(Phase(add=(700, 30), steps=2), Phase(keep=1, add=(90,), budget=31, steps=1)))
    table = expected_table(load, LIMITS)
    assert table["tokens"].tolist() == [512, 218, 2, 2, 31, 31, 31, 2]
    assert table["phase"].tolist() == [0] * 4 + [1] * 4
    assert table["sampled"].tolist() == [0, 2, 2, 2, 1, 1, 2, 2]
    assert table["decode_context"].tolist()[:4] == [0, 0, 701 + 31, 702 + 32]
    assert table["prefill_work"].iloc[0] == 512 * 512 / 2


def test_a_load_survives_json() -> None:
    for load in candidates(LIMITS):
        assert convert(asdict(load), Load) == load


def test_a_plan_is_as_precise_as_asked_for_and_costs_what_precision_costs() -> None:
    plans = [plan_loads(LIMITS, GUESS, precision=precision) for precision in (0.1, 0.05, 0.03)]
    assert [plan.is_reached for plan in plans] == [True] * 3
    assert all(plan.relative_error <= precision for plan, precision in zip(plans, (0.1, 0.05, 0.03), strict=True))
    seconds = [sum(plan.seconds) for plan in plans]
    assert seconds[0] < seconds[1] < seconds[2]
    assert len({load.seed for load in plans[-1].loads}) == len(plans[-1].loads)


def test_what_is_done_need_not_be_planned_again() -> None:
    first = plan_loads(LIMITS, GUESS, precision=0.05)
    assert plan_loads(LIMITS, GUESS, precision=0.05, done=first.loads).loads == ()
    assert len(plan_loads(LIMITS, GUESS, precision=0.05, done=first.loads[:-1]).loads) == 1


@pytest.mark.slow
def test_no_load_of_a_plan_is_superfluous() -> None:
    plan = plan_loads(LIMITS, GUESS, precision=0.1)
    for number in range(len(plan.loads)):
        others = [load for place, load in enumerate(plan.loads) if place != number]
        assert plan_loads(LIMITS, GUESS, precision=0.1, done=others).loads, plan.loads[number].name


def test_a_plan_keeps_to_its_time_and_says_what_it_leaves_out() -> None:
    short = plan_loads(LIMITS, GUESS, precision=0.01, max_seconds=2.0)
    assert sum(short.seconds) <= 2.0
    assert not short.is_reached and short.relative_error > 0.01
    assert short.too_long > 0


@cache
def planned_steps() -> pd.DataFrame:
    loads = plan_loads(LIMITS, GUESS, precision=0.05).loads
    return pd.concat([expected_table(load, LIMITS).assign(load=load.name) for load in loads], ignore_index=True)


def noisy_steps(spread: float, seed: int = 1) -> tuple[pd.DataFrame, np.ndarray]:
    """Steps of the plan's loads as they would take with the guessed times."""
    table = planned_steps().copy()
    exact_s = term_matrix(table) @ GUESS
    table["cycle_s"] = exact_s * np.exp(np.random.default_rng(seed).normal(0, spread, len(table)))
    return table, exact_s


def test_the_fit_finds_the_times_behind_steps_that_scatter() -> None:
    table, exact_s = noisy_steps(0.08)
    times = fit_terms(table, list(zip(table["load"], table["phase"], strict=True)))
    assert (
        np.abs((term_matrix(table) @ times.seconds) / exact_s - 1).max() < 3 * 0.05
    )  # three of the plan's standard errors
    assert (times.seconds >= 0).all()
    assert times.median_error == pytest.approx(0.08 * 0.6745, rel=0.2)  # a normal's median absolute deviation


def test_a_few_steps_that_something_else_held_up_do_not_decide() -> None:
    table, exact_s = noisy_steps(0.02)
    table.loc[::25, "cycle_s"] *= 10
    table.loc[5, "cycle_s"] = np.nan
    times = fit_terms(table, range(len(table)))
    assert np.abs((term_matrix(table) @ times.seconds) / exact_s - 1).max() < 0.1


def test_the_stated_error_is_the_one_that_repeated_recordings_show() -> None:
    predictions, stated = [], []
    for seed in range(20):
        table, exact_s = noisy_steps(0.08, seed)
        times = fit_terms(table, range(len(table)))
        predictions.append((term_matrix(table) @ times.seconds) / exact_s - 1)
        stated.append(times.relative_error)
    seen = np.std(predictions, axis=0).max()
    assert 0.5 < np.median(stated) / seen < 2


def test_steps_without_a_time_cannot_be_fitted() -> None:
    table, _ = noisy_steps(0.01)
    with pytest.raises(ValueError, match="no recorded step has a time"):
        fit_terms(table.assign(cycle_s=np.nan), range(len(table)))


def test_windows_are_read_as_the_simulator_reads_them() -> None:
    assert attention_window(TINY_CONFIG, []) is None
    hybrid = TINY_CONFIG | {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 128}
    assert attention_window(hybrid, []) == 128
    assert attention_window({"model_type": "unheard-of"}, [(100, 1), (None, 5), (200, 1)]) == 150


def test_limits_are_assumed_before_an_engine_tells_them() -> None:
    limits = assumed_limits(TINY_CONFIG, {"num_gpu_blocks_override": 100, "block_size": 32, "max_num_seqs": 7})
    assert asdict(limits) == {
        "max_num_seqs": 7, "max_num_batched_tokens": 8192, "max_model_len": 8192, "kv_tokens": 3200, "window": None,
    }  # fmt: skip
    assert (GUESS[: TERMS.index("prefill_work") + 1] > 0).all()


def test_several_packs_of_prompts_follow_each_other_in_one_phase() -> None:
    """The first step of a phase may have no time: each load still times a pack."""
    limits = Limits(max_num_seqs=256, max_num_batched_tokens=8192, max_model_len=8192, kv_tokens=200_000)
    packs = [load for load in candidates(limits) if load.name.startswith("pack-")]
    assert packs
    for load in packs:
        full = [sums for phase, sums in expected_steps(load, limits) if phase == 1 and sums.sequences > 1]
        assert len(full) >= 2
