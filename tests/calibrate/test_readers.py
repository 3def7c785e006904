"""Results of other tools say the same as they were told."""

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibrate.measured_run import REQUEST_COLUMNS, MeasuredRun
from calibrate.readers import find_format, format_names, read_file, read_measured, read_recordings, reader
from calibrate.run_figures import differences, request_figures
from kvcache.errors import UnknownNameError
from tests.calibrate.result_writers import (
    ALL,
    Run,
    Sent,
    Written,
    aiperf_record,
    finished,
    genai_perf_request,
    guidellm_benchmark,
    guidellm_nested,
    inference_perf_request,
    sglang_result,
    vllm_result,
    write_dynamo,
    write_vllm,
)

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "trace_formats"
WAYS = pytest.mark.parametrize("way", ALL.values(), ids=ALL)

sent_requests = st.builds(
    Sent,
    arrival_us=st.integers(0, 10**9),
    prompt_tokens=st.integers(1, 10**6),
    ttft_us=st.integers(1, 10**8),
    gaps_us=st.lists(st.integers(0, 10**7), max_size=6).map(tuple),
    session=st.integers(0, 3),
    cached_tokens=st.integers(0, 100),
    has_failed=st.booleans(),
)
runs = st.lists(sent_requests, min_size=1, max_size=6).filter(lambda run: any(not sent.has_failed for sent in run))
RUN = [
    Sent(arrival_us=0, prompt_tokens=100, ttft_us=30_000, gaps_us=(10_000, 12_000), session=1),
    Sent(arrival_us=5_000, prompt_tokens=120, ttft_us=45_000, gaps_us=(11_000,) * 9, session=2, cached_tokens=64),
    Sent(arrival_us=9_000, prompt_tokens=80, ttft_us=20_000, gaps_us=(), session=1, has_failed=True),
    Sent(arrival_us=60_000, prompt_tokens=90, ttft_us=25_000, gaps_us=(), session=1),
]


def written(tmp_path: Path, value: Any, name: str = "result.json") -> Path:
    path = tmp_path / name
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def only(path: Path) -> MeasuredRun:
    (run,) = read_measured(path)
    return run


@WAYS
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sent=runs)
def test_a_run_written_and_read_back_has_the_same_requests(way: Written, tmp_path: Path, sent: Run) -> None:
    run = only(way.write(tmp_path / way.name, sent))
    table, order = run.requests, list(range(len(finished(sent))))
    assert table is not None
    assert list(table) == list(REQUEST_COLUMNS)
    done = finished(sent)
    if "arrival_s" not in way.lacks:
        order.sort(key=lambda row: done[row].arrival_us)
    first_us = min(one.arrival_us for one in sent)
    expected = {
        "arrival_s": [(done[row].arrival_us - first_us) / 1e6 for row in order],
        "prompt_tokens": [done[row].prompt_tokens for row in order],
        "output_tokens": [done[row].output_tokens for row in order],
        "ttft_s": [done[row].ttft_us / 1e6 for row in order],
        "e2e_s": [done[row].e2e_us / 1e6 for row in order],
        "cached_tokens": [done[row].cached_tokens for row in order],
    }
    for name, values in expected.items():
        if name in way.lacks:
            assert table[name].isna().all()
        else:
            # A float of seconds since 1970 has steps of 0.24 µs.
            np.testing.assert_allclose(table[name], values, atol=2e-6, rtol=0)
    same_session = [[done[a].session == done[b].session for a in order] for b in order]
    numbers = table["session"].to_numpy()
    found = (numbers[:, None] == numbers[None, :]).tolist()
    assert found == (np.eye(len(order), dtype=bool).tolist() if "session" in way.lacks else same_session)
    if way.has_gaps and any(one.gaps_us for one in done):
        assert run.itl_s is not None
        for row, gaps in zip(order, run.itl_s, strict=True):
            np.testing.assert_allclose(gaps, np.array(done[row].gaps_us) / 1e6, atol=2e-6)
    else:
        assert run.itl_s is None
    failed = len(sent) - len(done)
    assert dict(run.excluded) == ({"failed": failed} if failed else {})


@WAYS
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sent=runs)
def test_latencies_from_the_requests_are_the_tool_s_own(way: Written, tmp_path: Path, sent: Run) -> None:
    run = only(way.write(tmp_path / way.name, sent))
    rates = {"duration_s", "requests_per_s", "output_tokens_per_s"}  # a tool counts its own wait for the last answer
    wrong = [found for found in differences(run, 1e-3) if found.name not in rates]
    assert not [found for found in wrong if abs(found.here - found.tool) > 2e-6]  # a wall clock's rounding


@WAYS
def test_each_format_is_known_by_its_content_alone(way: Written, tmp_path: Path) -> None:
    path = way.write(tmp_path / "file", RUN)
    assert find_format(path) == way.format
    assert [name for name in format_names() if name == way.format]


@WAYS
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused_with_its_path(way: Written, tmp_path: Path, data: Any) -> None:
    path = way.write(tmp_path / way.name, RUN)
    if path.suffix == ".gz":
        raw = bytearray(path.read_bytes())
        raw[data.draw(st.integers(2, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(raw)
    else:
        lines = path.read_text(encoding="utf-8")
        document = json.loads(lines.splitlines()[0]) if path.suffix == ".jsonl" else json.loads(lines)
        junk = st.sampled_from(
            [None, [], {}, "x", -1, 1e308, True, [[]], {"a": 1}, float("nan"), float("inf"), 10**400]
        )
        path.write_text(json.dumps(_with_junk(document, data, junk)), encoding="utf-8")
    try:
        found = read_file(path, way.format)
    except ValueError as error:
        assert str(path) in str(error)
        return
    for run in found:
        assert isinstance(run, MeasuredRun)
        request_figures(run)
        if run.requests is not None:
            assert (run.requests["output_tokens"].dropna() > 0).all()
            assert not (run.requests["e2e_s"] < run.requests["ttft_s"] - 1e-5).any()


def _with_junk(value: Any, data: Any, junk: Any) -> Any:
    """The document with one place, anywhere in it, replaced."""
    if isinstance(value, dict) and value and data.draw(st.integers(0, 5)):
        name = data.draw(st.sampled_from(sorted(value)))
        return value | {name: _with_junk(value[name], data, junk)}
    if isinstance(value, list) and value and data.draw(st.integers(0, 5)):
        place = data.draw(st.integers(0, len(value) - 1))
        return [*value[:place], _with_junk(value[place], data, junk), *value[place + 1 :]]
    return data.draw(junk)


@WAYS
def test_a_file_that_was_cut_off_says_so(way: Written, tmp_path: Path) -> None:
    path = way.write(tmp_path / way.name, RUN)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match="cut off"):
        read_measured(path)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read"),
        (b"", "the file is empty"),
        (b" \n\n", "the file is empty"),
        (bytes(random.Random(1).randbytes(500)), "no text in UTF-8"),
        (b"\x1f\x8b\x08\x00junk", "gzip data is cut off"),
        (b"[]", "an empty list"),
        (b"{}", "its JSON object is empty"),
        (b"hello\nworld", "starts with 'hello', which no format here does; there are aiperf"),
        (b'{"a": 1, "b": 2}', "its JSON has the keys a, b"),
        (b'{"a": [1, 2', "the JSON is cut off"),
        (b'{"a": 1,, }', "is not JSON"),
        (b"[" * 100_000, "starts with"),
        (b'{"a": ' + b"1" * 5000 + b"}", "a number or a nesting"),
    ],
)
def test_what_is_no_result_is_told(content: bytes | None, told: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=told) as refused:
        read_measured(path)
    assert str(path) in str(refused.value)


def test_a_line_that_is_no_object_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(sglang_result(RUN, has_times=True)) + "\n\n7\n", "r.jsonl")
    with pytest.raises(ValueError, match="line 3: holds a number where a JSON object"):
        read_measured(path)


def test_a_run_whose_requests_all_failed_is_refused(tmp_path: Path) -> None:
    path = write_vllm(tmp_path / "r.json", [replace(sent, has_failed=True) for sent in RUN])
    with pytest.raises(ValueError, match=r"no request of it can be used \(4 failed\)"):
        read_measured(path)


def test_a_run_that_failed_stays_beside_one_that_did_not(tmp_path: Path) -> None:
    failed = vllm_result([replace(sent, has_failed=True) for sent in RUN])
    path = written(tmp_path, json.dumps(failed) + "\n" + json.dumps(vllm_result(RUN)))
    counts = [len(run.requests) for run in read_measured(path) if run.requests is not None]
    assert counts == [0, 3]


# vLLM


def test_vllm_s_load_and_settings_are_read(tmp_path: Path) -> None:
    result = vllm_result(RUN) | {"tensor_parallel_size": "2", "enforce_eager": "True", "gpu": "h100", "burstiness": 0.5}
    run = only(written(tmp_path, result))
    assert dict(run.options) == {"model": "some/model", "tensor_parallel_size": 2, "enforce_eager": True}
    assert run.load["rate"] == math.inf
    assert (run.load["concurrency"], run.load["burstiness"], run.load["num_requests"]) == (4, 0.5, 4)
    assert run.load["input_len"] == pytest.approx((100 + 120 + 90) / 3)


@pytest.mark.parametrize("spelling", ["request_goodput", "request_goodput:"])
def test_both_spellings_of_goodput_are_read(spelling: str, tmp_path: Path) -> None:
    result = vllm_result(RUN)
    del result["request_goodput"]
    assert only(written(tmp_path, result | {spelling: 1.5})).aggregates["goodput_requests_per_s"] == 1.5


def test_a_result_without_details_has_figures_only(tmp_path: Path) -> None:
    run = only(written(tmp_path, vllm_result(RUN, detailed=False)))
    assert run.requests is None
    assert run.aggregates["ttft_s.mean"] == pytest.approx((0.030 + 0.045 + 0.025) / 3)
    assert dict(run.excluded) == {"failed": 1}
    assert "without --save-detailed" in run.notes[0]


def test_an_older_result_without_latencies_sums_its_gaps(tmp_path: Path) -> None:
    result = vllm_result(RUN)
    del result["latencies"], result["start_times"]
    table = only(written(tmp_path, result)).requests
    assert table is not None
    np.testing.assert_allclose(table["e2e_s"], [0.052, 0.144, 0.025])
    assert table["arrival_s"].isna().all()


def test_a_ramped_rate_is_no_rate(tmp_path: Path) -> None:
    run = only(written(tmp_path, vllm_result(RUN) | {"ramp_up_strategy": "linear"}))
    assert "rate" not in run.load
    assert "ramped up, linearly" in run.notes[0]


def test_arrays_of_unequal_length_are_refused(tmp_path: Path) -> None:
    result = vllm_result(RUN)
    result["ttfts"] = result["ttfts"][:-1]
    with pytest.raises(ValueError, match=r"unequal length .*input_lens 4, .*ttfts 3"):
        read_measured(written(tmp_path, result))


def test_a_run_of_embeddings_is_refused(tmp_path: Path) -> None:
    result = {"tokenizer_id": "m", "duration": 1.0, "completed": 3, "total_input_sequences": 3}
    with pytest.raises(ValueError, match="a run of embeddings"):
        read_measured(written(tmp_path, result))


@pytest.mark.parametrize(
    ("array", "value", "reason"),
    [
        ("output_lens", 0, "no output tokens"),
        ("input_lens", 0, "no prompt tokens"),
        ("ttfts", -0.1, "negative duration"),
        ("latencies", -1.0, "negative duration"),
        ("latencies", 0.001, "end before first token"),
        ("latencies", 0.0, "no end to end time"),
        ("ttfts", 0.0, "no time to first token"),
        ("ttfts", None, "no time to first token"),
        ("ttfts", math.inf, "infinite time or count"),
        ("start_times", "yesterday", "no time of sending"),
        ("itls", [0.01, -5.0], "negative duration"),
        ("errors", "Traceback", "failed"),
    ],
)
def test_a_request_that_cannot_be_is_counted_out(array: str, value: Any, reason: str, tmp_path: Path) -> None:
    result = vllm_result(finished(RUN))
    result[array][1] = value
    run = only(written(tmp_path, result))
    assert run.requests is not None
    assert list(run.requests["prompt_tokens"]) == [100, 90]
    assert dict(run.excluded) == {reason: 1}
    assert len(run.itl_s or ()) == 2


def test_a_tool_s_figure_that_its_requests_do_not_give_is_found(tmp_path: Path) -> None:
    result = vllm_result(RUN) | {"mean_ttft_ms": 50.0}
    (found,) = [found for found in differences(only(written(tmp_path, result))) if "ttft" in found.name]
    assert (found.name, found.tool) == ("ttft_s.mean", 0.05)
    assert found.relative == pytest.approx(-1 / 3)


# The other clients


def test_sglang_s_server_tells_its_settings(tmp_path: Path) -> None:
    run = only(written(tmp_path, sglang_result(RUN, has_times=True)))
    assert dict(run.options) == {"model": "some/model", "tensor_parallel_size": 2}
    assert run.aggregates["in_flight_mean"] == 3.0


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
    with pytest.raises(ValueError, match="the YAML is cut off"):
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
            with pytest.raises(ValueError, match="which no format here does"):
                read_measured(path)


# Finding readers


def test_an_unknown_format_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'vllm_bench'"):
        read_measured(write_vllm(tmp_path / "r.json", RUN), "vllm_bensh")


def test_a_reader_outside_the_package_is_given_by_module_and_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
from calibrate.measured_run import MeasuredRun

class Own:
    LOOKS_LIKE = "anything"
    recognizes = staticmethod(lambda path, head: True)
    read = staticmethod(lambda path: [MeasuredRun(source=path, tool="own", aggregates={"ttft_s.mean": 1.0})])
"""
    (tmp_path / "own_reader.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    path = written(tmp_path, "anything at all", "file")
    assert read_measured(path, "own_reader:Own")[0].tool == "own"
    for wrong, told in (
        ("own_reader:Missing", "Missing"),
        ("no_module:Name", "no_module"),
        ("json:JSONDecoder", "read"),
    ):
        with pytest.raises(UnknownNameError, match=told):
            reader(wrong)


def test_steps_are_not_taken_for_requests(tmp_path: Path) -> None:
    path = write_vllm(tmp_path / "r.json", RUN)
    with pytest.raises(ValueError, match="holds requests, not engine steps"):
        read_recordings(path)
