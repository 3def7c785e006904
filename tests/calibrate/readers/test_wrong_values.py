"""A field of the wrong type in a file of another program is told with its place and value, in bounded time."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from calibrate.readers import find_format, read_file
from calibrate.readers.parsing.startup_log import read_startup_log
from files.reading import InputError
from tests.calibrate.readers.one_run import RUN, only, written
from tests.calibrate.readers.result_writers import (
    ALL,
    aiperf_record,
    dynamo_record,
    genai_perf_request,
    guidellm_benchmark,
    guidellm_nested,
    inference_perf_request,
    sglang_result,
    vllm_result,
)
from tests.calibrate.readers.test_reader_of_metrics import snapshot
from tests.calibrate.readers.test_startup_log import log_text

LONG = "9" * 10_000_000


def changed(value: Any, *way: Any) -> Any:
    """The document with the last of `way` at the place that the others lead to."""
    *steps, last, new = way
    document = json.loads(json.dumps(value))
    inner = document
    for step in steps:
        inner = inner[step]
    inner[last] = new
    return document


def told(path: Path) -> str:
    begin_s = time.process_time()
    with pytest.raises(InputError) as error:
        read_file(path)
    assert time.process_time() - begin_s < 30  # seconds; in the square of its length it would take hours
    message = str(error.value)
    assert message.startswith(str(path)) and "\n" not in message and len(message) < 1000
    return message.removeprefix(str(path))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("tp", {"a": 1}, ": tp is a table; it must be a whole number, at least 0"),
        ("tp", [1, 2], ": tp is a list of 2; it must be a whole number, at least 0"),
        ("tp", True, ": tp is true; it must be a whole number, at least 0"),
        ("tp", "two", ": tp is 'two'; it must be a whole number, at least 0"),
        ("tp", 10**400, f": tp is 1{'0' * 58}…; it must be a whole number, at least 0, at most 9.0072e+15"),
        ("tp", "9" * 400, f": tp is {'9' * 59}…; it must be a whole number, at least 0, at most 9.0072e+15"),
        ("tp", LONG, ": tp is inf; it must be a whole number, at least 0"),
        ("tp", "-" * 3000 + "1", f": tp is '{'-' * 58}…; it must be a whole number, at least 0"),
        ("max_model_len", 0, ": max_model_len is 0; it must be a whole number, at least 1"),
        ("enforce-eager", "maybe", ": enforce-eager is 'maybe'; it must be true or false"),
        ("gpu_memory_utilization", "nan", ": gpu_memory_utilization is nan; it must be a finite number"),
        ("quant", ["fp8"], ": quant is a list of 1; it must be text"),
        ("model_id", LONG, f": model_id is '{'9' * 58}…; it must be text, at most 300"),
        ("completed", "3", ": completed is '3'; it must be a number or nothing"),
        ("ttfts", 3, ": ttfts is 3; it must be a list or nothing"),
        ("mean_ttft_ms", [1.0], ": mean_ttft_ms is a list of 1; it must be a number"),
        ("duration", 10**400, f": duration is 1{'0' * 58}…; it must be a number that a double can hold"),
    ],
)
def test_settings_and_figures_of_vllm_s_client(name: str, value: Any, message: str, tmp_path: Path) -> None:
    assert told(written(tmp_path, vllm_result(RUN) | {name: value})) == message


def test_none_is_a_setting_that_was_not_made(tmp_path: Path) -> None:
    for none in (None, "None"):
        assert only(written(tmp_path, vllm_result(RUN) | {"quant": none})).options["quantization"] is None


WRONG: dict[str, tuple[Any, str]] = {
    "sglang": (
        sglang_result(RUN, has_times=True) | {"server_info": {"tp_size": {}}},
        ": server_info.tp_size is a table; it must be a whole number, at least 0",
    ),
    "guidellm": (
        changed(
            {"benchmarks": [guidellm_benchmark(RUN, guidellm_nested)]},
            "benchmarks", 0, "requests", "successful", 1, "info", "timings", "request_end", "soon",
        ),
        ": benchmarks[1].requests.successful[2].info.timings.request_end is 'soon'; it must be a number or nothing",
    ),
    "aiperf": (
        changed(aiperf_record(RUN[0]), "metrics", "request_latency", "value", "long"),
        ": metrics.request_latency: value is 'long'; it must be a number or a list or nothing",
    ),
    "genai_perf": (
        changed({"experiments": [{"requests": [genai_perf_request(RUN[0])]}]},
                "experiments", 0, "requests", 0, "timestamp", -3),
        ": experiments[1].requests[1].timestamp is -3; it must be a clock's whole nanoseconds",
    ),
    "inference_perf": (
        changed([inference_perf_request(sent) for sent in RUN], 1, "info", "response_metrics", [1]),
        ": line 1, entry 2: info.response_metrics is a list of 1; it must be a table or nothing",
    ),
    "dynamo": (
        "\n".join(map(json.dumps, [dynamo_record(RUN[0]),
                                    changed(dynamo_record(RUN[1]), "event", "request", "ttft_ms", {})])),
        ": line 2: event.request.ttft_ms is a table; it must be a number or nothing",
    ),
    "inference_perf_summary": (
        {"successes": {"latency": {"request_latency": {"mean": "x"}}}, "failures": None},
        ": successes.latency.request_latency.mean is 'x'; it must be a number or nothing",
    ),
    "genai_perf_aggregate": (
        {"input_config": [], "request_latency": {"unit": "ms", "avg": 1.0}},
        ": input_config is an empty list; it must be a table or nothing",
    ),
    "aiperf_aggregate": (
        {"schema_version": "1", "request_latency": {"unit": 3, "avg": 1.0}},
        ": request_latency: unit is 3; it must be text or nothing",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("value", "message"), WRONG.values(), ids=WRONG)
def test_fields_of_the_other_clients(value: Any, message: str, tmp_path: Path) -> None:
    assert told(written(tmp_path, value)) == message


@pytest.mark.parametrize("name", ["block_size", "gpu_memory_utilization", "enable_prefix_caching", "num_gpu_blocks"])
def test_settings_among_a_server_s_metrics(name: str, tmp_path: Path) -> None:
    for value in ("much", "nan", "²", LONG[:100_000]):
        lines = [f'vllm:cache_config_info{{{name}="{value}"}} 1.0']
        lines += [line for line in snapshot([0.1]).splitlines() if "cache_config_info" not in line]
        path = written(tmp_path, "\n".join(lines) + "\n", "metrics.txt")
        assert f"vllm:cache_config_info: {name} is " in told(path)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("{1, 2}", "tensor_parallel_size is {1, 2}; it must be a whole number, at least 0"),
        ("[1]", "tensor_parallel_size is a list of 1; it must be a whole number, at least 0"),
        ("'two'", "tensor_parallel_size is 'two'; it must be a whole number, at least 0"),
        ("9" * 400, "tensor_parallel_size is " + "9" * 59 + "…; it must be a whole number, at least 0"),
        ("-" * 3000 + "1", "cannot be read; remove the line"),
        ("-" * 90_000 + "1", "cannot be read; remove the line"),
        ("[" * 90 + "]" * 90, "is a list of 1; it must be a whole number"),
        ("9" * 5000, "cannot be read; remove the line"),
        (f"'{LONG}'", "cannot be read; remove the line"),
        ("{[1]: 2}", "cannot be read; remove the line"),
    ],
)
def test_arguments_of_a_start_up_log(argument: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, log_text(arguments=f"{{'model': 'm', 'tensor_parallel_size': {argument}}}"), "server.log")
    assert find_format(path) == "vllm_startup"
    said = told(path)
    assert said.startswith(": line 3: ") and message in said


def test_an_argument_of_none_is_vllm_s_default(tmp_path: Path) -> None:
    path = written(tmp_path, log_text(arguments="{'model': 'm', 'tensor_parallel_size': None}"), "server.log")
    assert read_startup_log(path).tensor_parallel_size == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "non-default args: {" * 500_000,
        "INFO Maximum concurrency for " + LONG,
        "INFO GPU KV cache size: " + "1," * 5_000_000,
        "▀" + " " * 10_000_000,
        "Iteration(1): 1 context requests, 1 context tokens, 1 generation requests, 1 generation tokens, iteration "
        "elapsed time: 1." + LONG,
    ],
)
def test_a_line_of_ten_million_characters_is_read_in_time(line: str, tmp_path: Path) -> None:
    path = written(tmp_path, log_text(arguments="{'model': 'm'}").replace("\nINFO Graph", f"\n{line}\nINFO Graph"))
    begin_s = time.process_time()
    assert read_startup_log(path).max_model_len == 8192
    read_file(path)
    assert time.process_time() - begin_s < 30  # seconds; in the square of its length it would take hours


@pytest.mark.parametrize("way", ALL.values(), ids=ALL)
def test_a_list_in_place_of_a_document_is_told(way: Any, tmp_path: Path) -> None:
    assert "it must be" in told_by(way.format, written(tmp_path, "[[1]]"))


def told_by(name: str, path: Path) -> str:
    with pytest.raises(InputError) as error:
        read_file(path, name)
    return str(error.value)
