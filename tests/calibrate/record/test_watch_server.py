"""A live server is told by its own counters, through restarts, resets and silence."""

import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrate.fit.inputs import read_inputs
from calibrate.readers.parsing.metrics_text import Sample, metric_samples
from calibrate.readers.parsing.server_metrics import histogram, total
from calibrate.record.server_series import ServerSeries
from calibrate.record.watch_server import metrics_address, read_server_recording, watch_server

LABELS = 'engine="0",model_name="m/x"'
EDGES = (0.1, 0.25, 0.5, 1.0)
SILENT = ""


def page(
    *,
    requests: int = 0,
    output: int = 0,
    running: int = 0,
    ttft: Sequence[float] = (),
    usage: float = 0.0,
    started: float = 1000.0,
) -> str:
    """What vLLM serves, as far as it matters here."""
    buckets = [
        f'vllm:time_to_first_token_seconds_bucket{{{LABELS},le="{edge}"}} {sum(each <= edge for each in ttft)}'
        for edge in (*EDGES, "+Inf")
        if edge != "+Inf"
    ]
    return "\n".join(
        [
            "# HELP python_info Python platform information",
            'python_info{implementation="CPython"} 1.0',
            f"process_start_time_seconds {started}",
            f"vllm:num_requests_running{{{LABELS}}} {running}",
            f"vllm:num_requests_waiting{{{LABELS}}} 0.0",
            f"vllm:kv_cache_usage_perc{{{LABELS}}} {usage}",
            f"vllm:num_preemptions_total{{{LABELS}}} 0.0",
            f"vllm:prefix_cache_queries_total{{{LABELS}}} {requests * 100}",
            f"vllm:prefix_cache_hits_total{{{LABELS}}} {requests * 25}",
            f"vllm:prompt_tokens_total{{{LABELS}}} {requests * 100}",
            f"vllm:generation_tokens_total{{{LABELS}}} {output}",
            f'vllm:request_success_total{{{LABELS},finished_reason="stop"}} {requests - requests // 2}',
            f'vllm:request_success_total{{{LABELS},finished_reason="length"}} {requests // 2}',
            'vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="0",'
            'gpu_memory_utilization="0.9",num_gpu_blocks="1234",sliding_window="None"} 1.0',
            *buckets,
            f'vllm:time_to_first_token_seconds_bucket{{{LABELS},le="+Inf"}} {len(ttft)}',
            f"vllm:time_to_first_token_seconds_sum{{{LABELS}}} {sum(ttft)}",
            f"vllm:time_to_first_token_seconds_count{{{LABELS}}} {len(ttft)}",
        ]
    )


Serve = Callable[[Sequence[str]], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve one page after the other, the last one for ever; an empty page is an error."""
    servers = []

    def start(pages: Sequence[str]) -> str:
        left = list(pages)
        asked = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                text = left.pop(0) if len(left) > 1 else left[0]
                self.send_response(200 if text and self.path == "/metrics" else 503)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def watched(url: str, out: Path, *, polls: int = 4, **options: Any) -> Any:
    return watch_server(url, out, seconds=0.05 * (polls - 1), interval_s=0.05, **options)


def test_what_happened_between_the_first_and_the_last_answer_is_told(serve: Serve, tmp_path: Path) -> None:
    before = [0.05, 0.3]
    after = [*before, 0.05, 0.3, 0.3, 0.7]
    url = serve(
        [
            page(requests=10, output=1000, running=4, ttft=before, usage=0.2),
            page(requests=11, output=1100, running=6, ttft=before, usage=0.4),
            page(requests=14, output=1400, running=2, ttft=after, usage=0.3),
        ]
    )
    run = watched(url, tmp_path / "server", polls=3)
    assert run.load["num_requests"] == 4
    assert run.aggregates["ttft_s.mean"] == pytest.approx((0.05 + 0.3 + 0.3 + 0.7) / 4)
    assert run.aggregates["ttft_s.p50"] == pytest.approx(0.25 + 0.25 * 0.5)  # the second of four: halfway in its bucket
    assert run.aggregates["ttft_s.p99"] == pytest.approx(0.5 + 0.5 * 0.96)
    assert run.aggregates["running_mean"] == pytest.approx(4)
    assert run.aggregates["kv_usage_max"] == pytest.approx(0.4)
    assert run.aggregates["prefix_hit_rate"] == pytest.approx(0.25)
    series = pd.read_csv(tmp_path / "server" / "series.csv")
    lasted_s = series["unix_s"].iloc[-1] - series["unix_s"].iloc[0]
    assert run.aggregates["output_tokens_per_s"] == pytest.approx(400 / lasted_s, rel=1e-3)
    assert series["running"].tolist() == [4, 6, 2] and series["requests"].tolist() == [10, 11, 14]
    assert run.options == {
        "model": "m/x", "block_size": 16, "kv_cache_dtype": "auto", "gpu_memory_utilization": 0.9,
        "enable_prefix_caching": True, "num_gpu_blocks_override": 1234,
    }  # fmt: skip
    assert not run.excluded


def test_a_restarted_server_is_counted_on(serve: Serve, tmp_path: Path) -> None:
    url = serve(
        [
            page(requests=10, output=1000),
            page(requests=12, output=1200),
            page(requests=3, output=300, started=2000.0),  # 3 since its start
            page(requests=20, output=900, started=3000.0),  # more than before, and yet another server
        ]
    )
    run = watched(url, tmp_path / "server")
    assert run.load["num_requests"] == 2 + 3 + 20
    assert run.excluded["restarts; requests that ran then are lost"] == 2


def test_a_server_that_is_silent_for_a_while_is_asked_again(serve: Serve, tmp_path: Path) -> None:
    notes: list[str] = []
    url = serve([page(requests=1), page(requests=1), SILENT, page(requests=5)])
    run = watched(url, tmp_path / "server", watch=notes.append)
    assert run.load["num_requests"] == 4
    assert run.excluded == {"requests for metrics without an answer": 1}
    assert notes.count("no answer") == 1


def test_a_second_call_adds_to_the_first(serve: Serve, tmp_path: Path) -> None:
    url = serve([page(requests=1), page(requests=1), page(requests=2), page(requests=8)])
    assert watched(url, tmp_path / "server", polls=2).load["num_requests"] == 0
    assert watched(url, tmp_path / "server", polls=2).load["num_requests"] == 7
    assert read_server_recording(tmp_path / "server").load["num_requests"] == 7
    (run,) = read_inputs([tmp_path / "server"]).runs
    assert run.load["input_len"] == pytest.approx(100)
    assert run.load["rate"] == pytest.approx(run.aggregates["requests_per_s"])
    with pytest.raises(ValueError, match="holds a recording of http"):
        watched(serve([page()]), tmp_path / "server")


def test_a_snapshot_that_was_cut_off_is_passed_over(serve: Serve, tmp_path: Path) -> None:
    out = tmp_path / "server"
    url = serve([page(requests=1), page(requests=4), page(requests=9)])
    watched(url, out, polls=2)
    text = (out / "metrics.txt").read_text(encoding="utf-8")
    cut = "# headcount: at 1.5\nvllm:num_requests_running{} 3\nvllm:generation_tok"
    (out / "metrics.txt").write_text(text + cut, encoding="utf-8")
    run = read_server_recording(out)
    assert run.load["num_requests"] == 3
    assert run.excluded == {"requests for metrics without an answer": 1}
    assert watched(url, out, polls=2).load["num_requests"] == 8


def test_the_log_s_iteration_details_become_a_table(serve: Serve, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    detail = (
        "Iteration({}): 1 context requests, 100 context tokens, 3 generation requests, 3 generation tokens, "
        "iteration elapsed time: 12.50 ms, GPU KV cache usage: 1.0%\n"
    )
    log.write_text("INFO something else\n" + "".join("INFO " + detail.format(n) for n in (7, 8)), encoding="utf-8")
    watched(serve([page()]), tmp_path / "a", polls=2, log=log)
    table = pd.read_csv(tmp_path / "a" / "iterations.csv")
    assert table["iteration"].tolist() == [7, 8] and table["elapsed_ms"].tolist() == [12.5, 12.5]
    log.write_text("INFO nothing\n", encoding="utf-8")
    run = watched(serve([page()]), tmp_path / "b", polls=2, log=log)
    assert any("without iteration details" in reason for reason in run.excluded)


def test_what_is_no_vllm_server_is_told_and_nothing_is_written(serve: Serve, tmp_path: Path) -> None:
    out = tmp_path / "server"
    with pytest.raises(ValueError, match=r"cannot be reached \(Connection refused\)"):
        watched("http://127.0.0.1:1", out)
    with pytest.raises(ValueError, match="answers without vLLM's metrics"):
        watched(serve(["up 1.0\n"]), out)
    with pytest.raises(ValueError, match="answers 503"):
        watched(serve([SILENT]), out)
    with pytest.raises(ValueError, match=r"nowhere.log cannot be read: no such file"):
        watched(serve([page()]), out, log=tmp_path / "nowhere.log")
    assert not out.exists()


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("http://host:8000", "http://host:8000/metrics"),
        ("http://host:8000/", "http://host:8000/metrics"),
        ("https://host/v1", "https://host/metrics"),
        ("http://host/behind/proxy/metrics", "http://host/behind/proxy/metrics"),
    ],
)
def test_a_server_s_metrics_are_at_its_address(given: str, asked: str) -> None:
    assert metrics_address(given) == asked


@pytest.mark.parametrize("url", ["host:8000", "ftp://host", "http://", ""])
def test_what_is_no_address_is_told(url: str) -> None:
    with pytest.raises(ValueError, match="is not the address of a server"):
        metrics_address(url)


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=6), min_size=1, max_size=5),
)
def test_a_counter_s_growth_is_the_sum_over_the_lives_of_the_server(lives: list[list[int]]) -> None:
    series, wanted = ServerSeries(), 0
    for life, grown in enumerate(lives):
        count = 0
        for number, more in enumerate(grown):
            count += more
            wanted += more if life or number else 0  # what was counted before the first snapshot is not ours
            samples = [
                Sample("process_start_time_seconds", (), float(life)),
                Sample("vllm:generation_tokens_total", (), count),
            ]
            series.add(float(len(series.rows)), samples)
    assert total(series.increase, ["vllm:generation_tokens_total"]) == wanted
    assert series.restarts == len(lives) - 1


@given(st.lists(st.floats(0.001, 0.999), min_size=1, max_size=200), st.sampled_from([50, 90, 99]))
def test_a_percentile_from_buckets_is_off_by_less_than_a_bucket(values: list[float], percent: int) -> None:
    edges = np.arange(0.05, 1.01, 0.05)
    series = ServerSeries()
    for seen in ([], values):
        buckets = [
            Sample("vllm:e2e_request_latency_seconds_bucket", (("le", f"{edge}"),), sum(v <= edge for v in seen))
            for edge in (*edges, float("inf"))
        ]
        series.add(0.0, [*buckets, Sample("vllm:e2e_request_latency_seconds_count", (), len(seen))])
    counted = histogram(series.increase, "e2e_s")
    assert counted is not None
    found = counted.percentile(percent)
    exact = np.quantile(values, percent / 100, method="inverted_cdf")
    assert (found is None) == (exact <= edges[0])  # nothing is known of where in the first bucket it is
    assert found is None or abs(found - exact) <= 0.05 + 1e-9


def test_buckets_without_a_bound_are_passed_over() -> None:
    name, series = "vllm:time_to_first_token_seconds", ServerSeries()
    for count in (0, 4):
        bounds = [(), (("le", "high"),), (("le", "0.1"),), (("le", "0.2"),)]
        buckets = [Sample(f"{name}_bucket", labels, count * (labels != bounds[2])) for labels in bounds]
        series.add(0.0, [*buckets, Sample(f"{name}_count", (), count), Sample(f"{name}_sum", (), count * 0.15)])
    found = series.aggregates()
    assert (found["ttft_s.p50"], found["ttft_s.mean"]) == (pytest.approx(0.15), pytest.approx(0.15))


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e308", "2"])
def test_values_that_no_server_has_are_left_out_and_counted(value: str) -> None:
    series = ServerSeries()
    for usage in ("0.5", value):
        text = f"vllm:kv_cache_usage_perc {usage}\nvllm:num_requests_running 3\n"
        series.add(0.0, metric_samples(text))
    found = series.aggregates()
    assert (found["kv_usage_mean"], found["kv_usage_max"], found["running_mean"]) == (0.5, 0.5, 3.0)
    assert series.unsound == 1
