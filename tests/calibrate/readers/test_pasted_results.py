"""What people paste: printed result blocks and tables, with prose around."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibrate.readers import find_format, read_measured
from tests.calibrate.readers.one_run import RUN, only, written
from tests.calibrate.readers.result_writers import sglang_result, vllm_result

QUICK = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
LABELS = {
    "completed": "Successful requests",
    "failed": "Failed requests",
    "duration": "Benchmark duration (s)",
    "total_input_tokens": "Total input tokens",
    "total_output_tokens": "Total generated tokens",
    "request_throughput": "Request throughput (req/s)",
    "output_throughput": "Output token throughput (tok/s)",
    "total_token_throughput": "Total Token throughput (tok/s)",
    "concurrency": "Concurrency",
}
STATISTICS = {"mean": "Mean", "median": "Median", "p99": "P99"}
LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2EL", "e2e_latency": "E2E Latency"}
PROSE = (
    "",
    "Is this expected? I have 2 x H100 and the mean TTFT (ms) looks too high.\n",
    "```\n$ vllm bench serve --model some/model --num-prompts 4\nStarting initial single prompt test run...\n",
    "```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
)


def block(result: dict[str, Any], concurrency: str = "Maximum request concurrency") -> str:
    """As the clients print a result: a label, padding, two decimals."""
    lines = ["============ Serving Benchmark Result ============"]
    lines += [f"{concurrency + ':':<40} {result['max_concurrency']:<10}"]
    for name, label in LABELS.items():
        if (value := result.get(name)) is not None:
            lines.append(f"{label + ':':<40} {value if isinstance(value, int) else f'{value:.2f}':<10}")
    for latency, shown in LATENCIES.items():
        told = [name for name in STATISTICS if f"{name}_{latency}_ms" in result]
        lines += [f"{shown:-^50}"] * bool(told)
        lines += [f"{f'{STATISTICS[n]} {shown} (ms):':<40} {result[f'{n}_{latency}_ms']:<10.2f}" for n in told]
    return "\n".join([*lines, "=" * 50, ""])


RESULTS = {
    "vllm bench serve": (vllm_result(RUN, detailed=False), "Maximum request concurrency"),
    "sglang bench_serving": (sglang_result(RUN, has_times=True), "Max request concurrency"),
}


@QUICK
@given(
    parts=st.lists(st.tuples(st.sampled_from(sorted(RESULTS)), st.sampled_from(PROSE)), min_size=1, max_size=4),
    prefix=st.sampled_from(["", "> ", "bench-1  | ", "# "]),
    last=st.sampled_from(PROSE),
)
def test_every_block_of_a_paste_reads_as_its_result_file(
    parts: list[tuple[str, str]], prefix: str, last: str, tmp_path: Path
) -> None:
    text = "".join(before + block(*RESULTS[tool]) for tool, before in parts) + last
    path = written(tmp_path, "".join(prefix + line for line in text.splitlines(keepends=True)))
    assert find_format(path) == "printed_result"
    runs = read_measured(path)
    assert [run.tool for run in runs] == [tool for tool, _ in parts]
    for run in runs:
        original = only(written(tmp_path, RESULTS[run.tool][0], "result.json"))
        assert run.load["concurrency"] == original.load["concurrency"] == 4
        assert run.load["input_len"] == pytest.approx(original.load["input_len"])
        for name, value in run.aggregates.items():
            assert value == pytest.approx(original.aggregates[name], abs=0.00501), name
        assert {"ttft_s.mean", "ttft_s.p99", "itl_s.p50", "output_tokens_per_s", "e2e_s.mean"} <= run.aggregates.keys()


def test_the_load_is_found_in_the_lines_before_a_block(tmp_path: Path) -> None:
    """vLLM's client prints them when it starts; they are those of the next block alone."""
    without = block(RESULTS["vllm bench serve"][0]).replace("Maximum request concurrency:", "Duration of a ramp:")
    text = "Traffic request rate: 4.0\nBurstiness factor: 0.5 (Gamma distribution)\nMaximum request concurrency: None\n"
    first, second, third = read_measured(
        written(tmp_path, f"{text}{without}--model x/y --max-concurrency 16\n{without}{without}")
    )
    assert (first.load["rate"], first.load["burstiness"]) == (4.0, 0.5)
    assert (second.load["concurrency"], second.options["model"]) == (16, "x/y")
    assert "rate" not in second.load
    assert third.notes[-1] == "its load is not printed"
    assert "model" not in third.options


def test_a_block_without_what_completed_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, block(RESULTS["vllm bench serve"][0]).replace("Successful", "Other"))
    with pytest.raises(ValueError, match="block 1 lacks 'Successful requests:' or every figure; paste the block whole"):
        read_measured(path)


@QUICK
@given(
    rows=st.lists(st.tuples(st.integers(1, 512), st.floats(0.1, 9e4), st.floats(0.1, 900.0)), min_size=1, max_size=6),
    in_seconds=st.booleans(),
    unit_in_cells=st.booleans(),
    prose=st.sampled_from(PROSE[:3]),
)
def test_a_table_is_a_run_per_row(
    rows: list[tuple[int, float, float]], in_seconds: bool, unit_in_cells: bool, prose: str, tmp_path: Path
) -> None:
    unit, scale = ("s", 1e-3) if in_seconds else ("ms", 1.0)
    title = "" if unit_in_cells else f" ({unit})"
    cell = f" {unit}" if unit_in_cells else ""
    lines = [f"| Concurrency | **Mean TTFT{title}** | P99 TPOT{title} | Output tok/s |", "|---:|:--|---|---|"]
    lines += [f"| {n} | {ttft * scale:,.9f}{cell} | {tpot * scale:.9f}{cell} | {n}00 |" for n, ttft, tpot in rows]
    path = written(tmp_path, prose + "\n".join(lines) + "\n\nThanks!")
    assert find_format(path) == "markdown_table"
    for run, (concurrency, ttft_ms, tpot_ms) in zip(read_measured(path), rows, strict=True):
        assert dict(run.load) == {"concurrency": concurrency}
        assert math.isclose(run.aggregates["ttft_s.mean"], ttft_ms / 1e3, rel_tol=1e-4)
        assert math.isclose(run.aggregates["tpot_s.p99"], tpot_ms / 1e3, rel_tol=1e-4)
        assert run.aggregates["output_tokens_per_s"] == 100 * concurrency


def test_a_latency_without_a_unit_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "| users | TTFT | \n|---|---|\n| 1 | 40 |\n")
    with pytest.raises(ValueError, match=r"column 'TTFT' has no unit; write 'TTFT \(ms\)' or 'TTFT \(s\)'"):
        read_measured(path)


def test_a_table_of_something_else_is_no_result(tmp_path: Path) -> None:
    path = written(tmp_path, "| users | name |\n|---|---|\n| 1 | a |\n")
    with pytest.raises(ValueError, match="which no known format does"):
        read_measured(path)
