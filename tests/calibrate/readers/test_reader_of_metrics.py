"""Snapshots of vLLM's /metrics: counts, means and the bucket of every percentile."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibrate.measured_run import MeasuredRun
from calibrate.readers import find_format, read_measured
from calibrate.readers.vllm_metrics import read_between

BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.5, 2.5)
QUICK = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
latencies_s = st.lists(st.floats(0.001, 5.0), min_size=1, max_size=30)
INFO = 'vllm:cache_config_info{block_size="16",cache_dtype="fp8",enable_prefix_caching="True",engine="0",\
gpu_memory_utilization="0.92",num_gpu_blocks="27000",sliding_window="None"} 1.0\n'


def snapshot(
    ttfts_s: Sequence[float], *, model: str = "m", engine: int = 0, aborted: int = 0, start_s: float = 1e9
) -> str:
    """What a server says that answered these requests."""
    labels = f'engine="{engine}",model_name="{model}"'
    name = "vllm:time_to_first_token_seconds"
    lines = [f"# TYPE {name} histogram"]
    for bound in (*BOUNDS, math.inf):
        count = sum(ttft_s <= bound for ttft_s in ttfts_s)
        lines.append(f'{name}_bucket{{{labels},le="{"+Inf" if math.isinf(bound) else bound}"}} {count}.0')
    lines += [
        f"{name}_count{{{labels}}} {len(ttfts_s)}.0",
        f"{name}_sum{{{labels}}} {math.fsum(ttfts_s)!r}",
        f"{name}_created{{{labels}}} 1.79e+09",
        f'vllm:request_success_total{{{labels},finished_reason="length"}} {len(ttfts_s)}.0',
        f'vllm:request_success_total{{{labels},finished_reason="abort"}} {aborted}.0',
        f"vllm:num_preemptions_total{{{labels}}} 3.0",
        f"vllm:prefix_cache_queries_total{{{labels}}} {10 * len(ttfts_s)}.0",
        f"vllm:prefix_cache_hits_total{{{labels}}} {4 * len(ttfts_s)}.0",
        f"vllm:kv_cache_usage_perc{{{labels}}} 0.25",
        f"vllm:num_requests_running{{{labels}}} 7.0",
        f"process_start_time_seconds {start_s!r}",
    ]
    return "\n".join(lines) + "\n"


def put(tmp_path: Path, text: str, name: str = "metrics.prom") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def only(runs: list[MeasuredRun]) -> MeasuredRun:
    (run,) = runs
    return run


def close(first: MeasuredRun, second: MeasuredRun) -> bool:
    return first.aggregates.keys() == second.aggregates.keys() and all(
        math.isclose(first.aggregates[name], second.aggregates[name], rel_tol=1e-6) for name in first.aggregates
    )


def test_lengths_come_from_counters_where_no_histogram_tells_them(tmp_path: Path) -> None:
    """39 requests ended: 17,810 generated tokens are 457 each; the prompts' histogram wins over their counter."""
    labels = '{engine="0",model_name="m"}'
    ended = "".join(
        f'vllm:request_success_total{{engine="0",finished_reason="{reason}",model_name="m"}} {count}.0\n'
        for reason, count in (("stop", 30), ("length", 9))
    )
    counters = f"vllm:prompt_tokens_total{labels} 960968.0\nvllm:generation_tokens_total{labels} 17810.0\n"
    histogram = f"vllm:request_prompt_tokens_sum{labels} 900000.0\nvllm:request_prompt_tokens_count{labels} 39.0\n"
    run = only(read_measured(put(tmp_path, ended + counters + histogram)))
    assert run.load == {"input_len": pytest.approx(900_000 / 39), "output_len": pytest.approx(456.67, abs=0.01),
                        "num_requests": 39}  # fmt: skip
    assert "output_len is generation_tokens_total over the 39 requests that ended" in run.notes
    assert "input_len" not in " ".join(run.notes)
    assert only(read_measured(put(tmp_path, ended + counters))).load["input_len"] == pytest.approx(960_968 / 39)
    assert "output_len" not in only(read_measured(put(tmp_path, counters))).load


@QUICK
@given(ttfts_s=latencies_s)
def test_means_are_exact_and_percentiles_lie_in_their_bucket(ttfts_s: list[float], tmp_path: Path) -> None:
    found = only(read_measured(put(tmp_path, snapshot(ttfts_s)))).aggregates
    assert found["ttft_s.count"] == found["num_finished"] == len(ttfts_s)
    assert found["ttft_s.mean"] == pytest.approx(np.mean(ttfts_s))
    for percentile in (50, 90, 95, 99):
        truth = np.percentile(ttfts_s, percentile, method="inverted_cdf")
        name = f"ttft_s.p{percentile}"
        if truth > BOUNDS[-1]:
            assert not [key for key in found if key.startswith(name)]
        else:
            assert found[f"{name}.low"] <= truth <= found[f"{name}.high"]
            assert found[f"{name}.low"] <= found.get(name, math.inf)
            assert found.get(name, 0) <= found[f"{name}.high"]
            assert (name in found) == (found[f"{name}.high"] <= 2.6 * found[f"{name}.low"])


@QUICK
@given(earlier=st.lists(st.floats(0.001, 5.0), max_size=10), later=latencies_s)
def test_two_snapshots_tell_what_came_between(earlier: list[float], later: list[float], tmp_path: Path) -> None:
    before, after = put(tmp_path, snapshot(earlier), "before"), put(tmp_path, snapshot(earlier + later), "after")
    between = only(read_between(before, after))
    alone = only(read_measured(put(tmp_path, snapshot(later))))
    expected = dict(alone.aggregates) | {"num_preemptions": 0.0}
    assert between.aggregates.keys() == expected.keys()
    for name, value in expected.items():
        assert between.aggregates[name] == pytest.approx(value, rel=1e-6, abs=1e-9), name


@QUICK
@given(ttfts_s=latencies_s, split=st.integers(0, 30))
def test_engines_of_a_model_add_up(ttfts_s: list[float], split: int, tmp_path: Path) -> None:
    parts = snapshot(ttfts_s[:split]) + snapshot(ttfts_s[split:], engine=1)
    both, one = (only(read_measured(put(tmp_path, text))) for text in (parts, snapshot(ttfts_s)))
    for name in ("ttft_s.count", "ttft_s.mean", "ttft_s.p50.low", "num_finished", "prefix_hit_rate", "kv_usage_now"):
        assert both.aggregates.get(name) == pytest.approx(one.aggregates.get(name))
    assert both.aggregates["running_now"] == 14


def test_each_model_is_a_run(tmp_path: Path) -> None:
    path = put(tmp_path, snapshot([0.02, 0.03]) + snapshot([0.2], model="a") + INFO)
    assert find_format(path) == "vllm_metrics"
    first, second = read_measured(path)
    assert (dict(first.options), first.aggregates["ttft_s.count"]) == ({"model": "a"}, 1)
    assert (dict(second.options), second.aggregates["ttft_s.count"]) == ({"model": "m"}, 2)


def test_settings_are_read_where_one_model_is_served(tmp_path: Path) -> None:
    run = only(read_measured(put(tmp_path, snapshot([0.02], aborted=2) + INFO)))
    assert dict(run.options) == {
        "model": "m",
        "block_size": 16,
        "gpu_memory_utilization": 0.92,
        "enable_prefix_caching": True,
        "kv_cache_dtype": "fp8",
    }
    assert run.aggregates["num_gpu_blocks"] == 27000
    assert dict(run.excluded) == {"ended by abort": 2}
    assert run.aggregates["prefix_hit_rate"] == pytest.approx(0.4)


@pytest.mark.parametrize(("count", "start_s"), [(2, 1e9), (9, 2e9)], ids=["counters fell", "a later start"])
def test_a_server_that_was_started_again_is_told(count: int, start_s: float, tmp_path: Path) -> None:
    before = put(tmp_path, snapshot([0.02] * 5), "before")
    after = put(tmp_path, snapshot([0.02] * count, start_s=start_s), "after")
    run = only(read_between(before, after))
    assert run.aggregates["ttft_s.count"] == count
    assert "restarted after before" in run.notes[0]


def test_older_names_are_read(tmp_path: Path) -> None:
    series = {
        "time_per_output_token_seconds_count": 4,
        "time_per_output_token_seconds_sum": 0.2,
        "gpu_cache_usage_perc": 0.5,
        "gpu_prefix_cache_queries_total": 10,
        "gpu_prefix_cache_hits_total": 3,
    }
    text = "".join(f'vllm:{name}{{model_name="m"}} {value}\n' for name, value in series.items())
    found = only(read_measured(put(tmp_path, text))).aggregates
    assert found["itl_s.mean"] == pytest.approx(0.05)
    assert (found["kv_usage_now"], found["prefix_hit_rate"]) == (0.5, 0.3)


def test_a_histogram_without_its_sum_has_no_mean(tmp_path: Path) -> None:
    lines = [line for line in snapshot([0.02, 0.03]).splitlines() if "seconds_sum" not in line]
    found = only(read_measured(put(tmp_path, "\n".join(lines)))).aggregates
    assert "ttft_s.mean" not in found
    assert found["ttft_s.count"] == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (snapshot([0.02]) + "vllm:num_requests_wait", r"line \d+: 'vllm:num_requests_wait' is not a sample"),
        (snapshot([0.02]) + snapshot([0.02]), "line 21: .* appears twice; put each snapshot in its own file"),
        (snapshot([0.02]) + "vllm:x NaN\n", "'vllm:x NaN' is not a sample"),
        (snapshot([0.02]) + "vllm:x{a=} one\n", "is not a sample in Prometheus' text format"),
        (snapshot([0.02]) + 'vllm:x{a="1",model_na 1\n', "line 20: .* is not a sample in Prometheus' text format"),
        (snapshot([0.02]) + 'vllm:x{a="1",b} 1\n', "line 20: .* is not a sample in Prometheus' text format"),
        (snapshot([0.02]) + 'vllm:x_bucket{a="1"} 1\n', "line 20: .* is not a sample in Prometheus' text format"),
    ],
)
def test_a_broken_snapshot_is_refused(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=told):
        read_measured(put(tmp_path, text))


def test_a_snapshot_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no vllm: series"):
        read_measured(put(tmp_path, "python_info 1.0\n"), "vllm_metrics")


@QUICK
@given(data=st.data())
def test_a_damaged_snapshot_is_read_or_refused_with_its_path(data: st.DataObject, tmp_path: Path) -> None:
    text = snapshot([0.02, 0.3, 4.0]) + INFO
    start = data.draw(st.integers(0, len(text)))
    junk = data.draw(st.sampled_from(["", "\n", "NaN", "-", "{", '"', "1e999", "vllm:", " ", "9" * 400]))
    path = put(tmp_path, text[:start] + junk + text[data.draw(st.integers(start, len(text))) :])
    try:
        runs = read_measured(path, "vllm_metrics")
    except ValueError as error:
        assert str(path) in str(error)
        return
    for run in runs:
        assert all(math.isfinite(value) for value in run.aggregates.values())
