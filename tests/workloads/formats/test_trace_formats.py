"""Every format of traces: what it reads, and that no file is two formats'."""

from __future__ import annotations

import json
import math
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from files.reading import InputError
from tests.workloads.formats.example_traces import EXAMPLES, Example, batched, lines, span
from tests.workloads.trace_files import load_trace, refusal, shared_tokens, write
from workloads.load import load_workload
from workloads.traces.trace import Trace
from workloads.traces.trace_file import TraceFile
from workloads.traces.trace_format import trace_formats

SAMPLES = Path(__file__).parents[3] / ".." / "shared" / "data" / "trace_formats"
WITHOUT_TOKENS = ("openai_batch.jsonl", "otel_genai_trace.json")


def test_every_format_has_an_example() -> None:
    assert {known.name for known in trace_formats()} == {*EXAMPLES, "parquet", "servegen", "sharegpt"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_read_as_it_says(tmp_path: Path, name: str) -> None:
    example = EXAMPLES[name]
    trace = load_trace(write(tmp_path, "trace", example.text))
    assert trace.format == name
    check(trace, example)


def check(trace: Trace, example: Example) -> None:
    table = trace.table
    table.validate()
    expected = [math.nan if time is None else time for time in example.arrival_s]
    np.testing.assert_allclose(table.arrival_s, expected, rtol=0, atol=1e-6)
    assert table.prompt_tokens.tolist() == example.prompt
    assert table.output_tokens.tolist() == example.output
    assert table.follows.tolist() == (example.follows or [-1] * len(expected))
    np.testing.assert_allclose(table.think_s, example.think_s or [0] * len(expected), rtol=0, atol=1e-6)
    assert table.priority.tolist() == (example.priority or [0] * len(expected))
    if example.shared is not None:
        one, other, tokens = example.shared
        assert shared_tokens(table, one, other) == tokens
    assert example.note in " ".join(trace.notes)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_one_format_s_alone(name: str) -> None:
    assert [known.name for known in trace_formats() if known.recognises(EXAMPLES[name].text)] == [name]


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*")), ids=lambda path: path.name)
def test_a_published_sample_is_one_format_s_alone(path: Path) -> None:
    known = [each.name for each in trace_formats() if each.recognises(path.read_text(encoding="utf-8"))]
    assert len(known) == 1, known
    if known == ["servegen"]:
        assert "chunk-N-trace.csv and chunk-N-dataset.json" in refusal(path) or "cannot be read: no such" in refusal(
            path
        )
    elif path.name in WITHOUT_TOKENS:
        assert "count tokens with the model's tokenizer" in refusal(path)
    else:
        assert load_trace(path).format == known[0]


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_more_rows_are_read_than_asked_for(tmp_path: Path, name: str) -> None:
    found = load_workload(write(tmp_path, "t", EXAMPLES[name].text), num_requests=1)
    assert isinstance(found, Trace)
    assert found.num_requests == 1


def test_files_without_tokens_say_what_to_do(tmp_path: Path) -> None:
    sharegpt = '[{"id": "a", "conversations": [{"from": "human", "value": "Hello"}]}]'
    assert "give a CSV with --columns" in refusal(write(tmp_path, "t.json", sharegpt))
    batch = lines({"custom_id": "a", "method": "POST", "url": "/v1", "body": {"messages": []}})
    assert "give the batch's output file" in refusal(write(tmp_path, "t.jsonl", batch))
    spans = f'{{"spans": [{lines(span("2026-02-25T10:00:00", None, 1)).strip()}]}}'
    assert "no span has gen_ai.usage.input_tokens" in refusal(write(tmp_path, "t.json", spans))
    assert "has no request to serve: 1 requests that failed" in refusal(
        write(tmp_path, "t.jsonl", lines(batched(1, 1, 500)))
    )


def test_a_session_s_answers_are_found_in_the_cache(tmp_path: Path) -> None:
    """As the simulated engine counts its hits, in blocks of 16 tokens."""
    from headcount.queries.simulate import simulate  # noqa: PLC0415  the product's top, for this test alone

    turns = [(1100, 500, [4, 7, 8]), (1700, 300, [4, 7, 9, 10]), (2100, 40, [4, 7, 9, 11, 12])]
    path = write(
        tmp_path, "t.jsonl",
        lines(*({"timestamp": 0, "input_length": prompt, "output_length": output, "hash_ids": ids, "session_id": "a",
                 "delay": 1000} for prompt, output, ids in turns)),
    )  # fmt: skip
    out = tmp_path / "requests.csv"
    simulate("llama-3.1-8b", "h100-sxm", workload=path, requests_out=out, latency_model="constant", step_s=0.01)
    cached = [int(line.split(",")[11]) for line in out.read_text(encoding="utf-8").splitlines()[1:]]
    assert cached == [0, 1584, 1984]  # full blocks of 1,599 and of 1,999 tokens: the last token's KV is never written


def test_parquet_holds_what_its_columns_say(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path = tmp_path / "t.parquet"
    columns = {
        "arrival_s": [5.0, 6.0, None], "input_tokens": [100, 50, 130], "output_tokens": [10, 5, 3],
        "session_id": ["a", "b", "a"], "think_time_s": [None, None, 2.5], "priority": [0, 1, 0],
        "hash_ids": [[1], [1], [1, 2]], "block_size": [64] * 3,
    }  # fmt: skip
    pandas.DataFrame(columns).to_parquet(path)
    trace = load_trace(path)
    expected = Example("", [0, 1, None], [100, 50, 130], [10, 5, 3], [-1, -1, 0], [0, 0, 2.5], [0, 1, 0], (0, 2, 110))
    check(trace, expected)
    assert shared_tokens(trace.table, 0, 1) == 0, "where there are think times, ids are the session's own"
    pandas.DataFrame(columns | {"output_tokens": [10, -5, 3]}).to_parquet(path)
    assert "t.parquet, row 2: output_tokens is '-5'; it must be a whole number of tokens" in refusal(path)
    pandas.DataFrame({"input_tokens": [1]}).to_parquet(path)
    assert "t.parquet: no column output_tokens; it has input_tokens" in refusal(path)
    path.write_bytes(path.read_bytes()[:-9])
    assert "t.parquet: not readable as Parquet" in refusal(path)


def test_a_folder_of_sessions_is_one_trace(tmp_path: Path) -> None:
    for name in ("b", "a"):
        write(tmp_path, f"{name}.json", EXAMPLES["weka"].text.replace('"x"', f'"{name}"'))
    trace = load_trace(tmp_path)
    assert (trace.num_requests, trace.num_sessions) == (6, 4)
    assert shared_tokens(trace.table, 0, 3) == 0, "block ids are the session's own"
    assert trace.notes == ("sessions have no common clock: each begins at the start",)
    write(tmp_path, "c.json", EXAMPLES["weka"].text.replace('"out": 7', '"out": -7'))
    assert "c.json, line 1: requests[3].out is -7" in refusal(tmp_path)


def test_chats_whose_parent_is_not_there_are_counted(tmp_path: Path) -> None:
    text = EXAMPLES["bailian"].text.replace('"parent_chat_id": 1,', '"parent_chat_id": 7,')
    trace = load_trace(write(tmp_path, "t", text))
    assert shared_tokens(trace.table, 0, 1) == 16, "the first block's id is the same"
    assert "1 of 2 chats go on from one that does not stand before them in the file" in trace.notes[0]


def test_a_folder_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        load_workload(tmp_path)


# Columns, patterns, names of formats


CSV_OF_MINE = (
    "ts,p_in,cached,out,user,prio\n1700000000500,100,20,5,a,1\n1700000001500,130,20,7,a,0\n1700000001000,10,0,0,b,0\n"
)


def read(file: TraceFile) -> Trace:
    found = load_workload(file)
    assert isinstance(found, Trace)
    return found


def test_columns_of_a_csv_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", CSV_OF_MINE)
    trace = read(TraceFile(path, columns="time_ms=ts,prompt=p_in+cached,output=out,session=user,priority=prio"))
    check(trace, Example("", [0, 1], [120, 150], [5, 7], priority=[1, 0], shared=(0, 1, 125)))
    assert trace.notes[0] == "left out of the trace: 1 requests without tokens"


def test_columns_of_json_lines_may_lie_within(tmp_path: Path) -> None:
    usage = [{"prompt_tokens": 100, "completion_tokens": 5}, {"prompt_tokens": 200, "completion_tokens": 6}]
    text = lines({"t": "2025-01-01T00:00:00Z", "usage": usage[0], "s": 1}, {"usage": usage[1], "s": 1, "z": 3})
    columns = {"prompt": "usage.prompt_tokens", "output": "usage.completion_tokens"}
    path = write(tmp_path, "t.jsonl", text)
    check(
        read(TraceFile(path, columns=columns | {"time": "t", "session": "s", "think": "z"})),
        Example("", [0, None], [100, 200], [5, 6], [-1, 0], [0, 3], shared=(0, 1, 105)),
    )
    with pytest.raises(InputError, match=r"t\.jsonl, line 2: t is empty; it must be a date"):
        read(TraceFile(path, columns=columns | {"time": "t"}))


def test_columns_of_parquet_are_named(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    at = pandas.to_datetime(["2025-01-01T00:00:00Z", "2025-01-01T00:00:01.500Z"], format="ISO8601")
    pandas.DataFrame({"at": at, "p": [10, 20], "o": [1, 2]}).to_parquet(tmp_path / "t.parquet")
    trace = read(TraceFile(tmp_path / "t.parquet", columns="time=at,prompt=p,output=o"))
    check(trace, Example("", [0, 1.5], [10, 20], [1, 2]))


def test_a_log_is_read_by_a_pattern(tmp_path: Path) -> None:
    text = (
        '::1 - - [10/Oct/2025:13:55:36 +0200] "POST /v1 HTTP/1.1" 200 in=310 out=42\n'
        '::1 - - [10/Oct/2025:13:55:37 +0200] "GET /health HTTP/1.1" 200\n'
        '::1 - - [10/Oct/2025:11:55:39 +0000] "POST /v1 HTTP/1.1" 200 in=1200 out=120\n'
    )
    path = write(tmp_path, "access.log", text)
    trace = read(TraceFile(path, log_pattern=r"\[(?P<time>[^]]+)\].* in=(?P<prompt>\d+) out=(?P<output>\d+)"))
    check(trace, Example("", [0, 3], [310, 1200], [42, 120]))
    assert trace.notes == ("left out of the trace: 1 lines that the log pattern does not match",)
    with pytest.raises(InputError, match=r"access\.log: no line matches the log pattern .*; the first line is '::1 "):
        read(TraceFile(path, log_pattern=r"x(?P<prompt>\d+) (?P<output>\d+)"))


def test_a_format_may_be_named(tmp_path: Path) -> None:
    path = write(tmp_path, "t", EXAMPLES["genai_perf"].text)
    assert read(TraceFile(path, format="genai_perf")).format == "genai_perf"
    with pytest.raises(InputError, match=r"t, line 1: 'arrival_time_ns' is missing"):
        read(TraceFile(path, format="llmservingsim"))
    with pytest.raises(ValueError, match=r"no trace format 'azur'; did you mean 'azure'\?"):
        read(TraceFile(path, format="azur"))
    with pytest.raises(ValueError, match="no trace format 'os:system'"):
        read(TraceFile(path, format="os:system"))


def test_two_answers_to_one_turn_share_what_came_before_alone(tmp_path: Path) -> None:
    chat = {"type": "text", "turn": 1, "timestamp": 1.0}
    lengths = [(1, -1, 20, 9), (2, 1, 40, 3), (3, 1, 50, 3), (4, 2, 60, 3)]
    text = lines(*(
        chat | {"chat_id": chat_id, "parent_chat_id": parent, "input_length": prompt, "output_length": output}
        for chat_id, parent, prompt, output in lengths
    ))  # fmt: skip
    table = load_trace(write(tmp_path, "t", text)).table
    assert [shared_tokens(table, *rows) for rows in ((0, 1), (0, 2), (1, 2), (1, 3), (2, 3))] == [29, 29, 29, 43, 29]


@pytest.mark.parametrize(
    "pattern",
    ["(?P<prompt>(.*)*)x(?P<output>y)", "(?P<prompt>(a|aa)+)$(?P<output>)", "(?P<prompt>(a|a?)+)b(?P<output>c)"],
)
def test_no_log_pattern_takes_long(tmp_path: Path, pattern: str) -> None:
    path = write(tmp_path, "access.log", f"{'a' * 100_000}c\n" * 3)
    start = time.process_time()
    with pytest.raises(InputError, match="no line matches the log pattern"):
        read(TraceFile(path, log_pattern=pattern))
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"columns": "prompt=a,output=b,time"}, "columns: 'time' is no NAME=COLUMN"),
        ({"columns": "promt=a,output=b"}, "no column 'promt'; did you mean 'prompt'?"),
        ({"columns": "prompt=a"}, "columns: no output; give prompt=COLUMN,output=COLUMN at least"),
        ({"columns": "prompt=a,prompt=b,output=c"}, "columns: prompt is given twice"),
        ({"columns": "prompt=a,output=b,time=t,time_ms=u"}, "columns: time or think is given twice"),
        ({"columns": "prompt=a,output=out"}, "t.csv, line 1: no column a; the header has ts, p_in"),
        ({"columns": "prompt=user,output=out"}, "t.csv, line 2: user is 'a'; it must be a whole number of tokens"),
        ({"log_pattern": "(?P<prompt"}, "is no regular expression of RE2: invalid named capture group"),
        ({"log_pattern": r"(?P<prompt>\d+)(?=x)"}, "invalid perl operator: (?=; use RE2's syntax, which has neither"),
        ({"log_pattern": "(?P<prompt>x{500}{999})"}, "is no regular expression of RE2"),
        ({"log_pattern": "(?P<prompt>x{999})"}, "is no regular expression of RE2: pattern too large"),
        ({"log_pattern": "(" * 100_000 + ")" * 100_000}, "is no regular expression of RE2: pattern too large"),
        ({"log_pattern": "(?P<prompt>\udc80)"}, "is no regular expression of RE2: it is not UTF-8"),
        ({"log_pattern": "(?P<prompt>x)"}, "columns: no output; give"),
        ({"columns": "prompt=a,output=b", "format": "azure"}, "a trace format and columns exclude each other"),
    ],
)
def test_a_wrong_way_to_read_is_told(tmp_path: Path, how: dict[str, str], told: str) -> None:
    path = write(tmp_path, "t.csv", CSV_OF_MINE)
    with pytest.raises(ValueError, match=re.escape(told)):
        read(TraceFile(path, **how))


def test_a_population_is_not_read_by_columns() -> None:
    with pytest.raises(InputError, match="'chat' is a population; only a trace takes columns"):
        load_workload(TraceFile("chat", columns="prompt=a,output=b"))


def test_an_answer_tells_what_was_left_out(tmp_path: Path) -> None:
    from headcount.queries.simulate import simulate  # noqa: PLC0415  the product's top, for this test alone

    path = write(tmp_path, "t.csv", EXAMPLES["burstgpt"].text)
    answer = simulate("llama-3.1-8b", "h100-sxm", workload=path, latency_model="constant", step_s=0.01)
    told = [note.text for note in answer.diagnostics if note.code == "trace"]
    assert told[0].startswith("left out of the trace: 1 failed requests")


def test_priorities_of_a_file_count_under_the_priority_policy_alone(tmp_path: Path) -> None:
    from headcount.queries.simulate import simulate  # noqa: PLC0415  the product's top, for this test alone

    rows = "".join(f"{place / 50},100,20,{place % 2}\n" for place in range(200))
    file = TraceFile(write(tmp_path, "t.csv", f"t,p,o,q\n{rows}"), columns="time=t,prompt=p,output=o,priority=q")

    def mean_ttft_s(policy: str) -> list[float]:
        engine = {"latency_model": "constant", "step_s": 0.01, "max_num_seqs": 4, "scheduling_policy": policy}
        answer = simulate("llama-3.1-8b", "h100-sxm", workload=file, **engine)
        assert [note.text for note in answer.diagnostics if note.code == "trace"] == [
            "its requests have 2 priorities; they count with a priority policy alone"
        ]
        return [float(answer.result.times.ttft_s[first::2].mean()) for first in (0, 1)]

    urgent_s, other_s = mean_ttft_s("fcfs")
    assert urgent_s == pytest.approx(other_s, rel=0.1)
    urgent_s, other_s = mean_ttft_s("priority")
    assert urgent_s < other_s / 2


def otlp(*spans: dict[str, Any], group: str = "scopeSpans") -> dict[str, Any]:
    """What an exporter sends at once, of flat spans."""

    def attribute(key: str, value: object, number: int) -> dict[str, Any]:
        kind = "stringValue" if isinstance(value, str) else "intValue"
        return {"key": key, "value": {kind: str(value) if number % 2 else value}}

    return {"resourceSpans": [{"resource": {"attributes": []}, group: [{"spans": [
        {"traceId": each["trace_id"], "startTimeUnixNano": each["ns"] if number % 2 else str(each["ns"]),
         "attributes": [attribute(key, value, number) for key, value in each["attributes"].items()]}
        for number, each in enumerate(spans)]}]}]}  # fmt: skip


@given(
    spans=st.lists(
        st.tuples(st.integers(0, 10**12), st.integers(1, 500), st.integers(1, 500), st.sampled_from("abc")),
        min_size=1, max_size=6,
    ),
    names=st.sampled_from([("input_tokens", "output_tokens"), ("prompt_tokens", "completion_tokens")]),
    per_line=st.integers(1, 3),
    group=st.sampled_from(["scopeSpans", "instrumentationLibrarySpans"]),
)  # fmt: skip
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_otlp_reads_as_flat_spans(
    spans: list[tuple[int, int, int, str]], names: tuple[str, str], per_line: int, group: str, tmp_path: Path
) -> None:
    """One object, or several lines as a collector's file exporter writes them; both generations of names."""
    prompt, output = (f"gen_ai.usage.{name}" for name in names)
    told = [
        {"ns": 1_791_190_800_000_000_000 + 1000 * us, "trace_id": name, "attributes": {
            prompt: p, output: o, "gen_ai.conversation.id": name}}
        for us, p, o, name in spans
    ]  # fmt: skip
    parts = [told[start : start + per_line] for start in range(0, len(told), per_line)]
    exported = load_trace(write(tmp_path, "otlp", lines(*(otlp(*part, group=group) for part in parts))))
    flat = [{"start_time": each["ns"], **{key: each[key] for key in ("trace_id", "attributes")}} for each in told]
    plain = load_trace(write(tmp_path, "flat", json.dumps({"spans": flat})))
    assert exported.format == plain.format == "otel"
    for name in ("arrival_s", "prompt_tokens", "output_tokens", "span_content", "span_end"):
        np.testing.assert_array_equal(getattr(exported.table, name), getattr(plain.table, name))
    assert exported.table.prompt_tokens.tolist() == [p for _, p, _, _ in sorted(spans, key=lambda each: each[0])]


LLM = {"gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 5}


def exports(*attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [otlp({"ns": 10**18 + number, "trace_id": str(number), "attributes": each})
            for number, each in enumerate(attributes)]  # fmt: skip


@pytest.mark.parametrize("indent", [None, 1])
def test_what_stores_of_traces_make_of_exports_is_read(indent: int | None, tmp_path: Path) -> None:
    """An array of exports, Tempo's `batches`, and Tempo's `trace`."""
    first, second = found = exports(LLM, LLM)
    spans = [*first["resourceSpans"], *second["resourceSpans"]]
    for document in (found, {"batches": spans}, {"trace": {"resourceSpans": spans}}):
        trace = load_trace(write(tmp_path, "stored.json", json.dumps(document, indent=indent)))
        assert (trace.format, trace.table.prompt_tokens.tolist()) == ("otel", [7, 7])
        assert not any("left out" in note for note in trace.notes)


def test_metrics_and_logs_among_spans_are_left_out(tmp_path: Path) -> None:
    first, second = exports(LLM, LLM)
    path = write(tmp_path, "collector.jsonl", lines({"resourceMetrics": []}, first, {"resourceLogs": []}, second))
    trace = load_trace(path)
    assert trace.table.prompt_tokens.tolist() == [7, 7]
    assert "left out of the trace: 2 exports of metrics or logs" in trace.notes


@pytest.mark.parametrize(
    ("documents", "says"),
    [
        (
            exports({"http.method": "GET"}),
            r"has 1 span, and none of an LLM: none has gen_ai attributes; give an export",
        ),
        (exports({"http.method": "GET"}, {"a": "b"}), "has 2 spans, and none of an LLM"),
        (exports({"gen_ai.operation.name": "chat"}), "no span has gen_ai.usage.input_tokens"),
        (
            [{"resourceMetrics": []}, {"resourceLogs": []}],
            "holds metrics or logs, and no spans; give an export of traces",
        ),
    ],
)
def test_an_export_without_spans_of_an_llm_is_told(documents: list[dict[str, Any]], says: str, tmp_path: Path) -> None:
    for text in (lines(*documents), json.dumps(documents)):
        with pytest.raises(InputError, match=says):
            load_trace(write(tmp_path, "export.json", text))


def test_a_damaged_otlp_span_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "otlp", json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "gen_ai.x"}]}]}]}))
    with pytest.raises(InputError, match=r"line 1: a span is not as OTLP has it .*; give the export unchanged"):
        load_trace(path)


@pytest.mark.parametrize("indent", [None, 1])
def test_a_json_array_s_columns_are_those_of_its_objects(indent: int | None, tmp_path: Path) -> None:
    """As LiteLLM and Langfuse export; the same as JSON lines of these objects."""
    entries = [
        {"startTime": f"2026-10-05T09:00:0{n}.5Z", "usage": {"in": 10 * n + 1, "out": n + 1}, "user": f"u{n % 2}"}
        for n in range(5)
    ]
    columns = "time=startTime,prompt=usage.in,output=usage.out,session=user"
    array = write(tmp_path, "array.json", json.dumps(entries, indent=indent))
    one, other = (
        load_trace(TraceFile(path, columns=columns)) for path in (array, write(tmp_path, "lines", lines(*entries)))
    )
    np.testing.assert_array_equal(one.table.arrival_s, other.table.arrival_s)
    assert one.table.prompt_tokens.tolist() == other.table.prompt_tokens.tolist() == [1, 11, 21, 31, 41]
    entries[3]["usage"]["in"] = "many"  # type: ignore[index]
    line = 1 if indent is None else 1 + 3 * 8 + 1
    with pytest.raises(InputError, match=f"line {line}.*usage.in"):
        load_trace(TraceFile(write(tmp_path, "array.json", json.dumps(entries, indent=indent)), columns=columns))
