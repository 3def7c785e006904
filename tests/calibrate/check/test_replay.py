"""A measured run is served as it was sent, and its figures are compared."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from calibrate.check.replay import client_lag_s, measured_figures, replay, request_table, simulated_figures
from calibrate.check.runs import check_run, measured_overload, summary_rows
from calibrate.measured_run import MeasuredRun
from simulator.latency.forms import latency_model
from simulator.latency.gpu_constants import constants_for
from tests.calibrate.recorded import OPTIONS, closed_run
from workloads.requests import NEXT_FREE


def table_of(count: int, *, gap_s: float = 0.2, **columns: Any) -> pd.DataFrame:
    made = {
        "arrival_s": 5 + gap_s * np.arange(count), "prompt_tokens": 100, "output_tokens": 20, "ttft_s": 0.1,
        "e2e_s": 0.5, "cached_tokens": np.nan, "session": np.nan,
    }  # fmt: skip
    return pd.DataFrame({**made, **columns}, index=range(count))


def run_of(requests: pd.DataFrame | None, **load: float) -> MeasuredRun:
    return MeasuredRun(source=Path("run.json"), tool="made up", options=OPTIONS, load=load, requests=requests)


def served(rate: float, *, count: int = 60, seed: int = 0) -> MeasuredRun:
    """An open run with the times that a simulation gave it."""
    gaps = np.random.default_rng(seed).exponential(1 / rate, count)
    return as_simulated(run_of(table_of(count, arrival_s=np.cumsum(gaps)), rate=rate))


def as_simulated(run: MeasuredRun) -> MeasuredRun:
    times = replay(run).simulate().times
    assert run.requests is not None
    return replace(run, requests=run.requests.assign(ttft_s=times.ttft_s, e2e_s=times.e2e_s))


def test_arrivals_are_replayed_from_the_first_request() -> None:
    table = request_table(run_of(table_of(4), rate=5.0))
    np.testing.assert_allclose(table.arrival_s, [0, 0.2, 0.4, 0.6])


@pytest.mark.parametrize("requests", [None, table_of(6)])
def test_a_client_with_a_concurrency_sends_when_one_finishes(requests: pd.DataFrame | None) -> None:
    load = {"concurrency": 2, "input_len": 100, "output_len": 20, "num_requests": 6, "rate": math.inf}
    table = request_table(run_of(requests, **load))
    assert table.arrival_s[:2].tolist() == [0, 0]
    assert (table.follows[2:] == NEXT_FREE).all()
    assert table.num_requests == 6


@pytest.mark.parametrize("spread", [1.0, 0.8, 0.2])
def test_lengths_are_drawn_about_the_measured_means(spread: float) -> None:
    load = {"concurrency": 8, "input_len": 1000, "output_len": 200, "num_requests": 2000, "rate": math.inf}
    table = request_table(run_of(None, **load), length_spread=spread)
    for tokens, mean in ((table.prompt_tokens, 1000), (table.output_tokens, 200)):
        assert tokens.mean() == pytest.approx(mean, rel=0.03)
        assert tokens.min() / tokens.max() == pytest.approx(spread, abs=0.03)


def cold_run(stalled_s: float) -> MeasuredRun:
    """Requests of 100 s; those of the first 2 s waited."""
    run = served(10.0, count=1000)
    assert run.requests is not None
    waited = np.where(run.requests["arrival_s"] < 2, stalled_s, 0.0)
    columns = {name: run.requests[name] + waited for name in ("ttft_s", "e2e_s")}
    return replace(run, requests=run.requests.assign(**columns), aggregates={"ttft_s.mean": 9.0})


def test_what_happens_in_a_warm_up_is_not_compared() -> None:
    run = cold_run(1.5)
    whole, warm = (check_run(replay(run, {"warmup_s": seconds})) for seconds in (0.0, 20.0))
    assert [note for note in whole.notes if "--warmup" in note]
    assert not [note for note in warm.notes if "--warmup" in note]
    assert whole.row("ttft_s.p99").error_percent < -50
    assert warm.row("ttft_s.p99").error_percent == pytest.approx(0, abs=5)
    assert warm.row("ttft_s.mean").error_percent == pytest.approx(0, abs=2)


def test_a_warm_server_is_not_called_cold() -> None:
    assert not check_run(replay(served(10.0, count=1000))).notes


def test_a_warm_up_that_leaves_nothing_is_told() -> None:
    with pytest.raises(ValueError, match=r"sent no request from 1e\+03 .* s after its first; --warmup must be shorter"):
        check_run(replay(served(5.0), {"warmup_s": 1000.0}))
    means_only = MeasuredRun(
        source=Path("run.json"), tool="made up", options=OPTIONS, aggregates={"ttft_s.mean": 0.1},
        load={"concurrency": 2, "input_len": 100, "output_len": 20, "num_requests": 6},
    )  # fmt: skip
    with pytest.raises(ValueError, match="does not say when each request was sent"):
        check_run(replay(means_only, {"warmup_s": 1.0}))


def test_requests_sent_after_the_end_are_load_that_is_not_compared() -> None:
    """Prompts of 8,000 tokens come at 9.5 s and hold up what was sent before."""
    prompts = np.where(np.arange(60) < 20, 100, 8000)
    sent_s = np.where(np.arange(60) < 20, np.arange(60) / 2.2, 9.5)
    whole = as_simulated(run_of(table_of(60, arrival_s=sent_s, prompt_tokens=prompts, output_tokens=200)))
    assert whole.requests is not None
    part = check_run(replay(whole, {"until_s": 9.2}))
    cut = check_run(replay(replace(whole, requests=whole.requests[whole.requests["arrival_s"] < 9.2])))
    assert part.row("e2e_s.mean").measured == pytest.approx(cut.row("e2e_s.mean").measured)
    assert part.row("e2e_s.mean").error_percent == pytest.approx(0, abs=1e-6)
    assert cut.row("e2e_s.mean").error_percent < -1
    assert part.row("requests_per_s") is None  # it is of the whole run


def test_an_end_before_the_first_request_is_told() -> None:
    with pytest.raises(ValueError, match="--until must be longer"):
        check_run(replay(served(5.0), {"warmup_s": 0.0, "until_s": 0.0}))


def test_a_cold_start_is_replayed_under_any_constants() -> None:
    run = run_of(table_of(4, gap_s=5.0), rate=0.2)
    warm, cold = replay(run), replay(run, {"cold_start_s": 0.7})
    constants = constants_for(cold.deployment.gpu)
    for found in (cold.simulate(), cold.simulate(constants)):
        waited_s = found.times.ttft_s - warm.simulate().times.ttft_s
        np.testing.assert_allclose(waited_s, [0.7, 0, 0, 0], atol=1e-9)


def test_a_session_finds_its_earlier_turns_in_the_cache() -> None:
    requests = table_of(
        4, gap_s=5.0, prompt_tokens=[320, 640, 320, 640], cached_tokens=[0, 320, 0, 0], session=[7, 7, 8, 8],
        output_tokens=1,
    )  # fmt: skip
    figures = simulated_figures(replay(run_of(requests)).simulate())
    assert figures["prefix_hit_rate"] == pytest.approx(320 / 1920)


def test_requests_without_sessions_share_what_was_found_in_the_cache() -> None:
    requests = table_of(3, gap_s=5.0, prompt_tokens=320, cached_tokens=[160, 160, 160], output_tokens=1)
    figures = simulated_figures(replay(run_of(requests)).simulate())
    assert figures["prefix_hit_rate"] == pytest.approx(2 * 160 / 960)  # the first one finds nothing yet


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (
            run_of(None),
            "neither requests nor input and output lengths are known; give the trace that was sent .--workload",
        ),
        (run_of(None, input_len=9, output_len=9), "its load is unknown: .* give the trace that was sent .--workload"),
        (run_of(table_of(2, prompt_tokens=np.nan)), "prompt or output tokens"),
        (run_of(table_of(2, arrival_s=np.nan)), "no arrival times, the load neither a concurrency nor a rate"),
        (replace(closed_run(1), options={"model": "llama-3.1-8b"}), "give --gpu"),
        (replace(closed_run(1), options={"gpu": "h100-sxm"}), "give --model"),
    ],
)
def test_a_run_that_cannot_be_replayed_is_told(run: MeasuredRun, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        replay(run)


def test_options_given_win_over_the_run_s_own() -> None:
    assert replay(closed_run(1), {"max_num_seqs": 7}).deployment.engine.max_num_seqs == 7
    assert replay(closed_run(1), {"max_num_seqs": None}).deployment.engine.max_num_seqs == 128


def test_a_fit_starts_from_the_dtype_that_the_run_is_simulated_in() -> None:
    ready = replay(closed_run(4), {"dtype": "float32"})
    shipped = latency_model(ready.deployment.served).step_times.decode
    assert shipped.tolist() == ready.deployment.latency.step_times.decode.tolist()
    assert shipped[1] > 1.5 * replay(closed_run(4)).deployment.latency.step_times.decode[1]


def test_figures_come_from_the_requests_where_they_are_known() -> None:
    run = replace(run_of(table_of(10)), aggregates={"ttft_s.mean": 9.0, "kv_usage_max": 0.5})
    figures = measured_figures(replace(run, itl_s=((0.1, 0.3),)))
    assert figures["ttft_s.mean"] == pytest.approx(0.1)
    assert figures["tpot_s.p99"] == pytest.approx(0.4 / 19)
    assert figures["itl_s.mean"] == pytest.approx(0.2)
    assert figures["kv_usage_max"] == 0.5
    assert figures["requests_per_s"] == pytest.approx(10 / (9 * 0.2 + 0.5))


def test_a_run_beside_its_own_simulation_has_no_error() -> None:
    run = served(5.0)
    checked = check_run(replay(run))
    errors = {row.name: row.error_percent for row in checked.rows}
    assert {"ttft_s.mean", "tpot_s.p99", "e2e_s.p50", "output_tokens_per_s"} <= errors.keys()
    assert all(error == pytest.approx(0, abs=0.5) for error in errors.values())
    assert not checked.is_overloaded


def test_overload_is_told_by_failures_by_a_growing_queue_by_unserved_load() -> None:
    growing = run_of(table_of(40, ttft_s=np.linspace(0.1, 9, 40)), rate=5.0)
    assert "the queue grew" in measured_overload(growing, {})[0]
    closed = run_of(table_of(40, ttft_s=np.linspace(0.1, 9, 40)), concurrency=8)
    assert measured_overload(closed, {}) == ()  # its clients wait: a burst at the start is no overload
    failing = replace(run_of(table_of(40)), excluded={"failed": 4})
    assert measured_overload(failing, {}) == ("4 of 44 requests failed",)
    assert "were served" in measured_overload(run_of(None, rate=10.0), {"requests_per_s": 6.0})[0]
    assert measured_overload(run_of(None, rate=10.0), {"requests_per_s": 9.8}) == ()


def test_overloaded_runs_are_in_no_average() -> None:
    good = check_run(replay(served(5.0)))
    bad = check_run(replay(replace(served(5.0, seed=1), excluded={"failed": 30})))
    assert summary_rows([good, bad])["ttft_s.mean"]["runs"] == 1


@pytest.mark.parametrize("concurrency", [1, 16])
def test_a_client_of_one_process_sees_answers_later_but_not_slower(concurrency: int) -> None:
    run = closed_run(concurrency)
    at_engine = replay(run).simulate().times
    at_client = replay(replace(run, tool="vllm bench serve")).simulate().times
    lag_s = client_lag_s("vllm bench serve", concurrency)
    assert lag_s > 0
    np.testing.assert_allclose(at_client.ttft_s - at_engine.ttft_s, lag_s)
    np.testing.assert_allclose(at_client.e2e_s - at_engine.e2e_s, lag_s)
    np.testing.assert_array_equal(at_client.tpot_s, at_engine.tpot_s)


def test_requests_at_a_rate_are_seen_when_they_come() -> None:
    run = served(5.0)
    figures = [simulated_figures(replay(replace(run, tool=tool)).simulate()) for tool in ("vllm bench serve", "other")]
    assert figures[0] == figures[1]
