"""What each client writes in its own way, SGLang's to Dynamo's, is read as it was meant."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrate.check.run_figures import differences, request_figures
from calibrate.readers import find_format, read_measured
from tests.calibrate.readers.one_run import RUN, only, written
from tests.calibrate.readers.result_writers import (
    ALL,
    aiperf_record,
    finished,
    genai_perf_request,
    guidellm_benchmark,
    guidellm_nested,
    inference_perf_request,
    sglang_result,
    write_dynamo,
)

SHARED = Path(__file__).parents[3].parent / "shared" / "data" / "trace_formats"


def test_sglang_s_server_tells_its_settings(tmp_path: Path) -> None:
    run = only(written(tmp_path, sglang_result(RUN, has_times=True)))
    assert dict(run.options) == {"engine": "sglang", "model": "some/model", "tensor_parallel_size": 2}
    assert run.aggregates["in_flight_mean"] == 3.0


def test_a_benchmark_of_an_sglang_server_with_a_host_cache_is_refused(tmp_path: Path) -> None:
    result = sglang_result(RUN, has_times=True) | {"server_info": {"enable_hierarchical_cache": True}}
    with pytest.raises(ValueError, match="HiCache is not simulated with SGLang"):
        read_measured(written(tmp_path, result))


def test_sglang_s_successes_count_where_errors_are_silent(tmp_path: Path) -> None:
    result = sglang_result(finished(RUN), has_times=True) | {"successes": [True, False, True]}
    assert dict(only(written(tmp_path, result)).excluded) == {"failed": 1}


def test_each_line_of_sglang_is_a_run(tmp_path: Path) -> None:
    lines = [json.dumps(sglang_result(RUN, has_times=times)) for times in (True, False)]
    assert len(read_measured(written(tmp_path, "\n".join(lines), "r.jsonl"))) == 2


@pytest.mark.parametrize(
    ("strategy", "load"),
    [
        ({"type_": "concurrent", "streams": 8}, {"concurrency": 8}),
        ({"type_": "synchronous"}, {"concurrency": 1}),
        ({"kind": "poisson", "rate": 3.0}, {"rate": 3.0, "burstiness": 1.0}),
        ({"type_": "constant", "rate": 3.0}, {"rate": 3.0, "burstiness": math.inf}),
        ({"type_": "throughput", "max_concurrency": 64}, {"rate": math.inf, "concurrency": 64}),
        ({"type_": "unheard_of"}, {}),
    ],
)
def test_guidellm_s_strategies_are_loads(strategy: dict[str, Any], load: dict[str, float], tmp_path: Path) -> None:
    benchmark = guidellm_benchmark(RUN, guidellm_nested) | {"config": {"strategy": strategy}}
    run = only(written(tmp_path, {"metadata": {"version": 2}, "benchmarks": [benchmark]}))
    assert dict(run.load) == {**load, "num_requests": 4}


def test_each_benchmark_of_guidellm_is_a_run_and_a_sample_is_told(tmp_path: Path) -> None:
    sampled = guidellm_benchmark(RUN, guidellm_nested) | {"request_totals": {"total": 10, "successful": 9}}
    path = written(tmp_path, {"benchmarks": [guidellm_benchmark(RUN, guidellm_nested), sampled]})
    first, second = read_measured(path)
    assert dict(first.excluded) == {"failed": 1}
    assert dict(second.excluded) == {"failed": 1, "not written down: the report holds a sample": 6}


def test_guidellm_in_yaml_is_read_alike(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    report = {"args": {"model": "m"}, "benchmarks": [guidellm_benchmark(RUN, guidellm_nested)]}
    path = written(tmp_path, yaml.safe_dump(report), "benchmarks.yaml")
    assert find_format(path) == "guidellm"
    assert only(path).requests is not None
    path.write_text("benchmarks:\n- requests: {successful: [", encoding="utf-8")
    with pytest.raises(ValueError, match=r"line \d+: is not readable as YAML"):
        read_measured(path)


def test_an_unknown_version_of_guidellm_is_refused(tmp_path: Path) -> None:
    report = {"metadata": {"version": 3}, "benchmarks": [guidellm_benchmark(RUN, guidellm_nested)]}
    with pytest.raises(ValueError, match="version 3; versions 1 and 2"):
        read_measured(written(tmp_path, report))


def test_aiperf_s_warm_up_and_cancelled_requests_are_counted_out(tmp_path: Path) -> None:
    records = [aiperf_record(sent) for sent in RUN]
    records[0]["metadata"]["benchmark_phase"] = "warmup"
    records[1]["metadata"]["was_cancelled"] = True
    run = only(written(tmp_path, "\n".join(map(json.dumps, records)), "profile_export.jsonl"))
    assert dict(run.excluded) == {"of the phase warmup": 1, "cancelled": 1, "failed": 1}


def test_an_unknown_unit_is_refused(tmp_path: Path) -> None:
    record = aiperf_record(RUN[0])
    record["metrics"]["time_to_first_token"]["unit"] = "fortnights"
    with pytest.raises(ValueError, match="time_to_first_token is in 'fortnights'"):
        read_measured(written(tmp_path, record))


METRICS = {
    "time_to_first_token": {"unit": "ms", "avg": 33.3, "p50": 30.0, "p90": 42.0, "p99": 44.7},
    "inter_token_latency": {"unit": "ms", "avg": 11.0, "p50": 11.0},
    "request_latency": {"unit": "ms", "avg": 73.7},
    "request_throughput": {"unit": "requests/sec", "avg": 2.0},
    "output_sequence_length": {"unit": "tokens", "avg": 4.7},
}


@pytest.mark.parametrize(
    "config",
    [
        {
            "models": {"items": [{"name": "m"}]},
            "phases": [{"exclude_from_results": True, "concurrency": 99}, {"concurrency": 4, "requests": 96}],
        },
        {"endpoint": {"model_names": ["m"]}, "loadgen": {"concurrency": 4, "request_count": 96}},
    ],
)
def test_aiperf_s_figures_are_read_with_every_config(config: dict[str, Any], tmp_path: Path) -> None:
    path = written(tmp_path, {"schema_version": "1.3", "input_config": config, **METRICS})
    run = only(path)
    assert (find_format(path), run.options["model"]) == ("aiperf_aggregate", "m")
    assert dict(run.load) == {"concurrency": 4, "num_requests": 96, "output_len": 4.7}
    assert run.aggregates["ttft_s.p99"] == pytest.approx(0.0447)
    assert run.aggregates["tpot_s.mean"] == pytest.approx(0.011)
    assert run.requests is None


@pytest.mark.parametrize(
    ("requests", "beside", "value"),
    [
        ("profile_export.jsonl", "profile_export_aiperf.json", {"aiperf_version": "0.13.0", **METRICS}),
        ("profile_export.json", "profile_export_genai_perf.json", {"input_config": {"model": ["m"]}, **METRICS}),
        (
            "per_request_lifecycle_metrics.json",
            "summary_lifecycle_metrics.json",
            {
                "load_summary": {"count": 4, "requested_rate": 3.0},
                "successes": {"count": 3, "latency": {"time_to_first_token": {"mean": 0.0333, "median": 0.03}}},
                "failures": {"count": 1},
            },
        ),
    ],
)
def test_figures_that_lie_beside_are_laid_beside(requests: str, beside: str, value: Any, tmp_path: Path) -> None:
    writer = {"profile_export.jsonl": "aiperf", "profile_export.json": "genai-perf"}.get(requests, "inference-perf")
    path = ALL[writer].write(tmp_path / requests, RUN)
    written(tmp_path, value, beside)
    run = only(path)
    assert run.aggregates["ttft_s.mean"] == pytest.approx(0.0333)
    assert not [found for found in differences(run) if found.name.startswith("ttft_s")]
    alone = only(tmp_path / beside)
    assert (alone.requests, alone.aggregates["ttft_s.mean"]) == (None, pytest.approx(0.0333))


def test_genai_perf_joins_torn_events_and_waits_for_text(tmp_path: Path) -> None:
    request = genai_perf_request(replace(RUN[0], gaps_us=(10_000, 12_000)))
    outputs, times = request["response_outputs"], request["response_timestamps"]
    role = 'data: {"object": "chat.completion.chunk", "choices": [{"delta": {"role": "assistant", "content": ""}}]}\n\n'
    torn = outputs[1]["response"]
    outputs[1:2] = [{"response": torn[:20]}, {"response": torn[20:]}]
    times[1:2] = [times[1], times[1] + 500_000]
    outputs.insert(0, {"response": role})
    times.insert(0, request["timestamp"] + 1000)
    path = written(
        tmp_path, {"experiments": [{"experiment": {"mode": "request_rate", "value": 2.5}, "requests": [request]}]}
    )
    run = only(path)
    assert run.requests is not None
    assert run.requests.loc[0, "ttft_s"] == pytest.approx(0.030)
    np.testing.assert_allclose(run.itl_s or (), [(0.010, 0.012)])
    assert run.load["rate"] == 2.5


def test_genai_perf_without_usage_knows_no_token_counts(tmp_path: Path) -> None:
    request = genai_perf_request(RUN[0])
    del request["response_outputs"][-2], request["response_timestamps"][-2]
    run = only(written(tmp_path, {"experiments": [{"requests": [request]}]}))
    assert run.requests is not None
    assert run.requests["output_tokens"].isna().all()
    assert "TPOT is unknown" in run.notes[-1]
    figures = request_figures(run)
    assert "tpot_s.mean" not in figures
    assert figures["e2e_s.mean"] == pytest.approx(0.052)


def test_each_stage_of_inference_perf_is_a_run(tmp_path: Path) -> None:
    requests = [inference_perf_request(sent) | {"stage_id": stage} for stage in (0, 1) for sent in RUN]
    summary = {"load_summary": {"requested_rate": 7.0}, "successes": {"count": 3}, "failures": {"count": 1}}
    written(tmp_path, summary, "stage_1_lifecycle_metrics.json")
    first, second = read_measured(written(tmp_path, requests))
    assert (first.load.get("rate"), second.load.get("rate")) == (None, 7.0)
    assert dict(first.excluded) == dict(second.excluded) == {"failed": 1}


def test_each_model_of_a_dynamo_trace_is_a_run(tmp_path: Path) -> None:
    path = write_dynamo(tmp_path / "trace.jsonl.gz", RUN)
    assert only(path).options["model"] == "some/model"
    sample = SHARED / "dynamo_request_trace_v1.jsonl"
    if not sample.exists():
        pytest.skip(f"no sample at {sample}")
    run = only(sample)
    assert run.requests is not None
    assert run.options["model"] == "Qwen/Qwen3-14B-FP8"
    assert run.requests.loc[0, "ttft_s"] == pytest.approx(1.328418365)
    # Its own mean gap of the second request, over 708 gaps.
    figures = (run.requests.loc[1, "e2e_s"] - run.requests.loc[1, "ttft_s"]) / 708
    assert figures == pytest.approx(0.028783503923728816)


def test_traces_without_times_of_service_are_told_apart(tmp_path: Path) -> None:
    if not SHARED.exists():
        pytest.skip(f"no samples at {SHARED}")
    for path in sorted(SHARED.iterdir()):
        if not path.name.startswith("dynamo_"):
            with pytest.raises(ValueError, match="which no known format does"):
                read_measured(path)
