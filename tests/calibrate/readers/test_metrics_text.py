"""Prometheus' text format is read as its own client writes it, and damaged lines are not taken for others."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.readers.parsing.metrics_text import Sample, metric_lines, metric_samples

LINES = """\
vllm:num_requests_running{engine="0",model_name="m/x"} 7.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m/x"} 12.0 1790000000000
process_start_time_seconds 1.79e+09
vllm:x{said="\\"a, b\\" {c} = d\\\\"} 3
"""


def test_labels_may_hold_quotes_commas_and_lines() -> None:
    text = 'a_total{x="one, \\"two\\"",b="c\\\\d\\ne"} 1.5e3 1700000000\n# a_total 3\nb +Inf\nnonsense\nc NaN\n'
    first, second, third = metric_samples(text)
    assert first == Sample("a_total", (("b", "c\\d\ne"), ("x", 'one, "two"')), 1500.0)
    assert second == Sample("b", (), float("inf"))
    assert third.name == "c" and math.isnan(third.value)


def test_each_line_is_told_by_its_number() -> None:
    found = list(metric_lines("# TYPE a gauge\r\na 1\r\n\n  b 2\nc\n"))
    assert found == [(2, "a 1", Sample("a", (), 1.0)), (4, "b 2", Sample("b", (), 2.0)), (5, "c", None)]


@pytest.mark.parametrize(
    "line",
    [
        "a", "a{} ", "a 1 b 2", "a 1a 2", 'a{x="1" 2', 'a{x="1"}{y="2"} 1', "a{x=} 1", 'a{x="1"y="2"} 1', "a{junk} 1",
        'a{x="1",x="2"} 1', 'a b{x="1"} 1', "a 1_0", "a 0x1", "5 5", 'a{x="1\\"} 1', 'a{1x="1"} 1',
    ],
)  # fmt: skip
def test_what_is_no_whole_line_is_no_sample(line: str) -> None:
    assert not list(metric_samples(line))


@given(
    st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True), st.text(max_size=12), max_size=4),
    st.floats(),
)
@settings(max_examples=60)
def test_what_prometheus_client_writes_is_read(labels: dict[str, str], value: float) -> None:
    client = pytest.importorskip("prometheus_client", reason="it is an extra of development")
    registry = client.CollectorRegistry()
    gauge = client.Gauge("vllm:x", 'with { and "', labels.keys(), registry=registry)
    (gauge.labels(**labels) if labels else gauge).set(value)
    (found,) = metric_samples(client.generate_latest(registry).decode())
    assert (found.name, dict(found.labels)) == ("vllm:x", labels)
    assert found.value == value or (math.isnan(found.value) and math.isnan(value))


@given(st.data())
@settings(max_examples=300)
def test_a_damaged_line_is_read_as_prometheus_client_reads_it_or_not_at_all(data: Any) -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="it is an extra of development")
    start = data.draw(st.integers(0, len(LINES)))
    junk = data.draw(st.sampled_from(["", "\n", "NaN", "-", "{", "}", '"', "1e999", " ", "\\", ",", "="]))
    damaged = LINES[:start] + junk + LINES[data.draw(st.integers(start, len(LINES))) :]
    for _, line, sample in metric_lines(damaged):
        if sample is not None:
            ((theirs,),) = (family.samples for family in parser.text_string_to_metric_families(line))
            assert (sample.name, dict(sample.labels)) == (theirs.name, theirs.labels)
            assert sample.value == theirs.value or math.isnan(theirs.value)
