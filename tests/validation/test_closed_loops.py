"""Simulated closed-loop runs against runs of real vLLM."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.validation.data import DATA, needs_data
from validation.accuracy.closed_loops import DENSE_MODELS, compare
from validation.measured.closed_loops import load_of, simulate
from validation.measured.launches import Launch, launch_of
from validation.measured.settings import TF32_SCRIPT, Setting, read_settings

DENSE_ROWS, TPOT_BAR_PERCENT, TTFT_BAR_PERCENT = 24, 12.0, 30.0


@needs_data
@pytest.mark.parametrize("plain", [False, True])
def test_spread_dense_runs_are_within_the_bar(plain: bool) -> None:
    settings, _ = read_settings(DATA)
    dense = sorted((item for item in settings if item.model in DENSE_MODELS), key=repr)
    rows, failed = compare(
        dense[:: len(dense) // DENSE_ROWS], partial(simulate, launch=Launch()) if plain else simulate
    )
    assert failed == 0
    assert len(rows) >= DENSE_ROWS
    assert rows["tpot_error_percent"].abs().median() <= TPOT_BAR_PERCENT
    assert rows["ttft_error_percent"].abs().median() <= TTFT_BAR_PERCENT


@needs_data
def test_a_run_has_the_layout_that_its_launch_script_asks_for() -> None:
    """The list says attention data parallelism of every run with expert parallelism since 2026-03-27."""
    settings, _ = read_settings(DATA)
    with_dp = [item for item in settings if item.dp > 1]
    assert {(item.model, item.precision, item.tp, item.dp) for item in with_dp} == {
        ("MiniMaxAI/MiniMax-M2.5", "fp4", 1, 2)
    }
    assert min(item.concurrency for item in with_dp) == 256
    assert {item.ep for item in settings if item.model == "moonshotai/Kimi-K2.5"} == {1}
    assert all(item.ep in (1, item.gpus) for item in settings)
    changed = [item for item in settings if item.script]
    assert {launch_of(item).max_num_batched_tokens for item in changed if item.isl == 1024} == {2048}


@needs_data
def test_tf32_saves_what_runs_before_and_after_it_show() -> None:
    """MiniMax-M2.5 in fp8 under the launch scripts before and since TF32: the difference was fitted to nothing."""
    runs: dict[tuple[Any, ...], dict[str, Setting]] = {}
    for item in read_settings(DATA)[0]:
        if (item.model, item.precision, item.version) == ("MiniMaxAI/MiniMax-M2.5", "fp8", "0.19.0"):
            runs.setdefault((*item.group[:7], item.isl, item.osl, item.concurrency), {})[item.script] = item
    both = [(each[""], each[TF32_SCRIPT]) for each in runs.values() if len(each) == 2]
    assert len(both) == 16
    saved_s = np.array([before.tpot_s - since.tpot_s for before, since in both])
    simulated_s = np.array([simulate(before)[1] - simulate(since)[1] for before, since in both])
    assert np.corrcoef(saved_s, simulated_s)[0, 1] > 0.95
    assert simulated_s.sum() == pytest.approx(saved_s.sum(), rel=0.1)


@needs_data
def test_clients_send_the_lengths_that_the_benchmark_draws() -> None:
    setting = next(item for item in read_settings(DATA)[0] if item.isl == 1024 and item.concurrency == 8)
    table = load_of(setting, launch_of(setting))
    np.random.seed(0)  # as benchmark_serving.py draws them, prompts first
    for lengths in (table.prompt_tokens, table.output_tokens):
        nominal = setting.isl if lengths is table.prompt_tokens else setting.osl
        np.testing.assert_array_equal(lengths, np.random.randint(int(0.8 * nominal), nominal + 1, size=80))
    assert np.isnan(table.arrival_s).sum() == 72
