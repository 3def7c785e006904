"""A run without requests is sent again as its client sent it."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.check.client_load import MOST_COUNTED, sent_s, waits_for_answers, with_load
from calibrate.check.replay import replay, request_table, simulated_figures
from calibrate.measured_run import SNAPSHOT, MeasuredRun
from calibrate.readers import read_measured
from tests.calibrate.check.test_replay import run_of, table_of
from tests.calibrate.readers.one_run import RUN, written
from tests.calibrate.readers.result_writers import sglang_result, vllm_result
from workloads.requests import NEXT_FREE

Gaps = np.random.Generator
LAWS: dict[str, tuple[Callable[[Gaps, int, float], np.ndarray], float]] = {
    # Times of sending after the client's start, and the burstiness that its file tells.
    "vllm bench serve, rescaled": (
        lambda rng, n, rate: (times := np.cumsum(rng.gamma(0.7, 1, n))) * (n / rate / times[-1]), 0.7
    ),
    "vllm bench serve, as drawn": (lambda rng, n, rate: np.cumsum(rng.exponential(1 / rate, n)), 1.0),
    "sglang bench_serving": (
        lambda rng, n, rate: np.concatenate([[0.0], np.cumsum(rng.exponential(1 / rate, n - 1))]), 1.0
    ),
    "guidellm, constant": (lambda rng, n, rate: np.arange(n) / rate, math.inf),
    "guidellm, poisson": (lambda rng, n, rate: np.cumsum(rng.exponential(1 / rate, n)), 1.0),
    "aiperf": (lambda rng, n, rate: np.concatenate([[0.0], np.cumsum(rng.exponential(1 / rate, n - 1))]), 1.0),
    "inference-perf": (
        lambda rng, n, rate: (times := np.cumsum(rng.exponential(1, n))) * (n / rate / times[-1]), 1.0
    ),
}  # fmt: skip


def result_file(law: str, *, rate: float, count: int, seed: int) -> MeasuredRun:
    """What a client's summary says of a run that a simulated server served."""
    sent, burstiness = LAWS[law]
    times_s = sent(np.random.default_rng(seed), count, rate)
    result = replay(run_of(table_of(count, arrival_s=times_s))).simulate()
    ends_s = times_s + np.asarray(result.times.e2e_s)
    duration_s = float(ends_s.max())
    figures = simulated_figures(result)
    told = {name: figures[name] for name in ("ttft_s.mean", "tpot_s.mean", "e2e_s.mean")}
    load = {"rate": rate, "burstiness": burstiness, "num_requests": count, "input_len": 100.0, "output_len": 20.0}
    aggregates = {**told, "duration_s": duration_s, "requests_per_s": count / duration_s, "num_finished": float(count)}
    return replace(run_of(None, **load), tool=law.partition(",")[0], aggregates=aggregates)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("seed", range(3))
def test_the_replayed_rate_is_the_file_s(law: str, seed: int) -> None:
    """Of 200 requests a Poisson client's own rate lies within 14 % of the one it was asked for; the replay's, 1 %."""
    run = result_file(law, rate=2.0, count=200, seed=seed)
    simulated = simulated_figures(replay(run).simulate())
    assert simulated["requests_per_s"] == pytest.approx(run.aggregates["requests_per_s"], rel=0.01)
    assert simulated["ttft_s.mean"] == pytest.approx(run.aggregates["ttft_s.mean"], rel=0.1)


@settings(max_examples=60, deadline=None)
@given(
    rate=st.floats(0.1, 50),
    count=st.integers(1, 500),
    burstiness=st.one_of(st.floats(0.2, 5), st.just(math.inf)),
    held_up=st.floats(1, 5),
)
def test_a_rate_sends_that_many_requests_in_that_time(
    rate: float, count: int, burstiness: float, held_up: float
) -> None:
    """Without a duration, or where an overloaded server made it longer, at the rate that was asked for."""
    run = run_of(None, rate=rate, burstiness=burstiness)
    times_s = sent_s(run, rate, count)
    assert (np.diff(times_s) >= 0).all()
    assert times_s[0] == 0
    assert times_s[-1] == pytest.approx((count - 1) / rate)
    late = replace(run, aggregates={"duration_s": held_up * (count - 1) / rate + 100 / rate, "e2e_s.mean": 0.0})
    span_s = sent_s(late, rate, count)[-1]
    sds = 4 / math.sqrt(count * min(burstiness, 1e9)) + 1 / count
    assert abs(span_s - (count - 1) / rate) <= sds * (count - 1) / rate * (1 + 1e-9)


@pytest.mark.parametrize(("served", "is_closed"), [(4.0, False), (3.9, False), (2.0, True)])
def test_of_a_rate_and_a_concurrency_the_one_that_held_is_replayed(served: float, is_closed: bool) -> None:
    load = {"rate": 4.0, "concurrency": 8, "num_requests": 64, "input_len": 100, "output_len": 20}
    run = replace(run_of(None, **load), aggregates={"requests_per_s": served})
    assert waits_for_answers(run) == is_closed
    assert (request_table(run).follows == NEXT_FREE).any() == is_closed


def test_requests_without_times_are_sent_at_the_file_s_rate() -> None:
    """As SGLang's older detailed files tell them."""
    requests = table_of(5, arrival_s=np.nan, prompt_tokens=[10, 20, 30, 40, 50])
    table = request_table(run_of(requests, rate=2.0))
    assert table.prompt_tokens.tolist() == [10, 20, 30, 40, 50]
    assert table.arrival_s[-1] == pytest.approx(2.0)


@pytest.mark.parametrize(("ratio", "least"), [(0.0, 1), (0.5, 512), (1.0, 1024)])
def test_sglang_s_range_ratio_is_the_share_of_the_longest(ratio: float, least: int, tmp_path: Path) -> None:
    """From `ratio` × nominal to nominal, uniformly: lengths are those, about the mean that the file tells."""
    mean = 1024 * (1 + ratio) / 2
    changed = {"random_range_ratio": ratio, "total_input_tokens": round(3 * mean), "completed": 3}
    result = {**sglang_result(RUN, has_times=True), **changed}
    for name in ("input_lens", "output_lens", "ttfts", "itls", "errors", "start_times", "generated_texts"):
        result.pop(name)
    (run,) = read_measured(written(tmp_path, result))
    load = {**run.load, "num_requests": 4000.0, "concurrency": 8.0}
    prompts = request_table(replace(run, load=load, options={})).prompt_tokens
    assert prompts.min() == pytest.approx(least, abs=5)
    assert prompts.max() == pytest.approx(1024, abs=5)
    assert prompts.mean() == pytest.approx(mean, rel=0.03)


def test_a_vllm_file_tells_its_rate(tmp_path: Path) -> None:
    result = {**vllm_result(RUN, detailed=False), "request_rate": 40.0, "max_concurrency": None}
    (run,) = read_measured(written(tmp_path, result))
    assert (run.load["rate"], run.load["burstiness"]) == (40.0, 1.0)


def counted(*, requests: int, hits: float = 0.0) -> MeasuredRun:
    """What a server's counters tell: no load."""
    run = run_of(None, input_len=1000.0, output_len=8.0, num_requests=requests)
    return replace(run, tool=SNAPSHOT, aggregates={"prefix_hit_rate": hits, "e2e_s.mean": 60.0})


def test_a_counted_run_is_sent_at_the_rate_that_its_time_gives() -> None:
    """The server goes on serving: the last request does not come a response before the end."""
    run = with_load(counted(requests=600), {"duration_s": 300.0})
    table = request_table(run)
    assert (run.load["rate"], table.num_requests) == (2.0, 600)
    assert table.arrival_s[-1] == pytest.approx(599 / 2.0)
    many = with_load(counted(requests=1_000_000), {"duration_s": 1e5})
    assert (many.load["rate"], request_table(many).num_requests) == (10.0, MOST_COUNTED)


def test_a_counted_run_in_flight_waits_for_answers_and_finds_what_the_server_found() -> None:
    run = with_load(counted(requests=40, hits=0.5), {"concurrency": 4})
    ready = replay(run)
    assert (ready.table.follows == NEXT_FREE).sum() == 36
    found = simulated_figures(ready.simulate())["prefix_hit_rate"]
    assert 0.5 * 36 / 40 <= found <= 0.5  # those of the first step find nothing yet


@pytest.mark.parametrize(
    ("run", "load", "told"),
    [
        (
            run_of(None, concurrency=3.0, input_len=9, output_len=9),
            {"rate": 1.0},
            "its own load .concurrency 3.; leave",
        ),
        (run_of(table_of(3)), {"concurrency": 2}, "says when each request was sent; leave --concurrency out"),
        (run_of(None, input_len=9, output_len=9), {"duration_s": 9.0}, "give --rate instead of --duration"),
    ],
)
def test_a_load_that_cannot_be_told_is_refused(run: MeasuredRun, load: dict[str, float], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        with_load(run, load)
