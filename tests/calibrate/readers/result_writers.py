"""One synthetic run, written as each tool writes it."""

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

EPOCH_S = 1_790_000_000  # tools with a wall clock
PERF_COUNTER_S = 1046.09896051  # tools with a clock that means nothing
MODEL = "some/model"


@dataclass(frozen=True)
class Sent:
    """A request, times in whole microseconds; one gap per token after the first."""

    arrival_us: int
    prompt_tokens: int
    ttft_us: int
    gaps_us: tuple[int, ...]
    session: int = 0
    cached_tokens: int = 0
    has_failed: bool = False

    @property
    def output_tokens(self) -> int:
        return 1 + len(self.gaps_us)

    @property
    def e2e_us(self) -> int:
        return self.ttft_us + sum(self.gaps_us)

    @property
    def token_times_us(self) -> list[int]:
        """From the run's clock zero."""
        return list(accumulate(self.gaps_us, initial=self.arrival_us + self.ttft_us))


Run = Sequence[Sent]


def figures_ms(values_us: Sequence[float]) -> dict[str, float]:
    values = np.array(values_us or [0.0]) / 1e3
    return {
        "mean": float(values.mean()),
        "median": float(np.median(values)),
        **{f"p{q}": float(np.percentile(values, q)) for q in (50, 90, 99)},
    }


def finished(run: Run) -> list[Sent]:
    return [sent for sent in run if not sent.has_failed]


def tpots_us(run: Run) -> list[float]:
    return [sum(sent.gaps_us) / len(sent.gaps_us) for sent in finished(run) if sent.gaps_us]


def all_gaps_us(run: Run) -> list[int]:
    return [gap for sent in finished(run) for gap in sent.gaps_us]


def client_result(run: Run, *, e2e_name: str) -> dict[str, Any]:
    """What vLLM's and SGLang's clients have in common."""
    done = finished(run)
    duration_s = max(sent.arrival_us + sent.e2e_us for sent in run) / 1e6
    result: dict[str, Any] = {
        "request_rate": "inf",
        "max_concurrency": 4,
        "duration": duration_s,
        "completed": len(done),
        "total_input_tokens": sum(sent.prompt_tokens for sent in done),
        "total_output_tokens": sum(sent.output_tokens for sent in done),
        "request_throughput": len(done) / duration_s,
        "output_throughput": sum(sent.output_tokens for sent in done) / duration_s,
    }
    for name, values in (
        ("ttft", [sent.ttft_us for sent in done]),
        ("tpot", tpots_us(run)),
        ("itl", all_gaps_us(run)),
        (e2e_name, [sent.e2e_us for sent in done]),
    ):
        result |= {f"{statistic}_{name}_ms": value for statistic, value in figures_ms(values).items()}
    return result


def client_arrays(run: Run) -> dict[str, list[Any]]:
    return {
        "input_lens": [sent.prompt_tokens for sent in run],
        "output_lens": [0 if sent.has_failed else sent.output_tokens for sent in run],
        "ttfts": [0.0 if sent.has_failed else sent.ttft_us / 1e6 for sent in run],
        "itls": [[] if sent.has_failed else [gap / 1e6 for gap in sent.gaps_us] for sent in run],
        "generated_texts": ["" for _ in run],
        "errors": ["Bad Request" if sent.has_failed else "" for sent in run],
    }


def vllm_result(run: Run, *, detailed: bool = True) -> dict[str, Any]:
    """Keys of vllm/benchmarks/serve.py of 0.32.0."""
    head = {
        "date": "20261121-235627", "endpoint_type": "openai", "backend": "openai", "label": None, "model_id": MODEL,
        "tokenizer_id": MODEL, "num_prompts": len(run), "burstiness": 1.0,
    }  # fmt: skip
    later = {
        "failed": len(run) - len(finished(run)),
        "request_goodput": None,
        "latencies": [0.0 if sent.has_failed else sent.e2e_us / 1e6 for sent in run],
        "queue_times": [0.0 for _ in run],
    }
    arrays = client_arrays(run) | {"start_times": [PERF_COUNTER_S + sent.arrival_us / 1e6 for sent in run]}
    return head | client_result(run, e2e_name="e2el") | later | (arrays if detailed else {})


def write_vllm(path: Path, run: Run) -> Path:
    path.write_text(json.dumps(vllm_result(run)), encoding="utf-8")
    return path


def sglang_result(run: Run, *, has_times: bool) -> dict[str, Any]:
    result = {"backend": "sglang", "dataset_name": "random", **client_result(run, e2e_name="e2e_latency")}
    result |= {"concurrency": 3.0, "accept_length": None, **client_arrays(run)}
    if has_times:
        result["start_times"] = [PERF_COUNTER_S + sent.arrival_us / 1e6 for sent in run]
        result["errors"] = ["failed" if sent.has_failed else None for sent in run]
        result["server_info"] = {"model_path": MODEL, "tp_size": 2}
    return result


def write_sglang(path: Path, run: Run) -> Path:
    path.write_text(json.dumps(sglang_result(run, has_times=True)) + "\n", encoding="utf-8")
    return path


def write_old_sglang(path: Path, run: Run) -> Path:
    path.write_text(json.dumps(sglang_result(run, has_times=False)) + "\n", encoding="utf-8")
    return path


def guidellm_metrics(run: Run) -> dict[str, Any]:
    done = finished(run)

    def summary(values: Sequence[float], scale: float = 1.0) -> dict[str, Any]:
        found = {name: value / scale for name, value in figures_ms(values).items()}
        return {"successful": {"mean": found["mean"], "count": len(values), "percentiles": found}}

    return {
        "time_to_first_token_ms": summary([sent.ttft_us for sent in done]),
        "inter_token_latency_ms": summary(all_gaps_us(run)),
        "request_latency": summary([sent.e2e_us for sent in done], 1e3),
    }


def guidellm_nested(sent: Sent) -> dict[str, Any]:
    start_s = EPOCH_S + sent.arrival_us / 1e6
    timings = {"request_start": start_s, "request_end": start_s + sent.e2e_us / 1e6}
    if not sent.has_failed:
        timings["first_token_iteration"] = start_s + sent.ttft_us / 1e6
    return {
        "info": {"conversation_id": f"session {sent.session}", "timings": timings},
        "input_metrics": {"text_tokens": sent.prompt_tokens, "cached_tokens": sent.cached_tokens},
        "prompt_tokens": sent.prompt_tokens,
        "output_tokens": sent.output_tokens,
    }


def guidellm_flat(sent: Sent) -> dict[str, Any]:
    start_s = EPOCH_S + sent.arrival_us / 1e6
    return {
        "prompt_tokens": sent.prompt_tokens,
        "output_tokens": sent.output_tokens,
        "start_time": start_s,
        "first_token_time": None if sent.has_failed else start_s + sent.ttft_us / 1e6,
        "end_time": start_s + sent.e2e_us / 1e6,
    }


def guidellm_benchmark(run: Run, request: Callable[[Sent], dict[str, Any]]) -> dict[str, Any]:
    return {
        "metrics": guidellm_metrics(run),
        "request_totals": {"successful": len(finished(run)), "total": len(run)},
        "requests": {
            "successful": [request(sent) for sent in finished(run)],
            "incomplete": [],
            "errored": [request(sent) for sent in run if sent.has_failed],
        },
    }


def write_guidellm(path: Path, run: Run) -> Path:
    benchmark = guidellm_benchmark(run, guidellm_nested)
    benchmark["config"] = {"strategy": {"type_": "concurrent", "streams": 4}}
    report = {"metadata": {"version": 2}, "config": {"model": MODEL}, "benchmarks": [benchmark]}
    path.write_text(json.dumps(report), encoding="utf-8")
    return path


def write_old_guidellm(path: Path, run: Run) -> Path:
    benchmark = guidellm_benchmark(run, guidellm_flat)
    benchmark["args"] = {"strategy": {"type_": "constant", "rate": 2.5}}
    path.write_text(json.dumps({"benchmarks": [benchmark]}), encoding="utf-8")
    return path


def aiperf_record(sent: Sent) -> dict[str, Any]:
    start_ns = (EPOCH_S * 10**6 + sent.arrival_us) * 1000
    metadata = {
        "x_correlation_id": f"session {sent.session}",
        "request_start_ns": start_ns,
        "request_end_ns": start_ns + sent.e2e_us * 1000,
        "benchmark_phase": "profiling",
        "was_cancelled": False,
    }
    if sent.has_failed:
        return {"metadata": metadata, "metrics": {}, "error": {"code": 500, "type": "E", "message": "no"}}
    metrics = {
        "input_sequence_length": {"value": sent.prompt_tokens, "unit": "tokens"},
        "output_sequence_length": {"value": sent.output_tokens, "unit": "tokens"},
        "time_to_first_token": {"value": sent.ttft_us / 1e3, "unit": "ms"},
        "request_latency": {"value": sent.e2e_us / 1e6, "unit": "sec"},
        "inter_chunk_latency": {"value": [gap / 1e3 for gap in sent.gaps_us], "unit": "ms"},
    }
    return {"metadata": metadata, "metrics": metrics, "error": None}


def write_aiperf(path: Path, run: Run) -> Path:
    path.write_text("\n".join(json.dumps(aiperf_record(sent)) for sent in run) + "\n", encoding="utf-8")
    return path


def genai_perf_request(sent: Sent) -> dict[str, Any]:
    start_ns = (EPOCH_S * 10**6 + sent.arrival_us) * 1000
    times_ns = [EPOCH_S * 10**9 + time_us * 1000 for time_us in sent.token_times_us]
    chunks = [{"object": "text_completion", "choices": [{"text": " a"}]} for _ in times_ns]
    usage = {"prompt_tokens": sent.prompt_tokens, "completion_tokens": sent.output_tokens}
    events = [f"data: {json.dumps(chunk)}\n\n" for chunk in [*chunks, {"choices": [], "usage": usage}]]
    if sent.has_failed:
        times_ns, events = [start_ns, start_ns], ['data: {"error": {"code": 500}}\n\n', "data: [DONE]\n\n"]
    else:
        times_ns += [times_ns[-1] + 1000, times_ns[-1] + 2000]
        events.append("data: [DONE]\n\n")
    return {
        "timestamp": start_ns,
        "request_inputs": {"payload": "{}", "session_id": f"session {sent.session}"},
        "response_timestamps": times_ns,
        "response_outputs": [{"response": event} for event in events],
    }


def write_genai_perf(path: Path, run: Run) -> Path:
    experiment = {
        "experiment": {"mode": "concurrency", "value": 4},
        "requests": [genai_perf_request(sent) for sent in run],
    }
    path.write_text(json.dumps({"service_kind": "openai", "experiments": [experiment]}), encoding="utf-8")
    return path


def inference_perf_request(sent: Sent) -> dict[str, Any]:
    start_s = PERF_COUNTER_S + sent.arrival_us / 1e6
    usage = {"prompt_tokens": sent.prompt_tokens, "completion_tokens": sent.output_tokens}
    response = {
        "output_tokens": sent.output_tokens + 1,  # the client's count, which the server's replaces
        "output_token_times": [PERF_COUNTER_S + time_us / 1e6 for time_us in sent.token_times_us],
        "server_usage": usage | {"prompt_tokens_details": {"cached_tokens": sent.cached_tokens}},
    }
    return {
        "start_time": start_s,
        "end_time": start_s + sent.e2e_us / 1e6,
        "request": "{}",
        "info": {"response_metrics": response, "labels": {"session_id": f"session {sent.session}"}},
        "error": {"error_type": "E", "error_msg": "no"} if sent.has_failed else None,
    }


def write_inference_perf(path: Path, run: Run) -> Path:
    path.write_text(json.dumps([inference_perf_request(sent) for sent in run], indent=2), encoding="utf-8")
    return path


def old_inference_perf_request(sent: Sent) -> dict[str, Any]:
    request = inference_perf_request(sent)
    times = request["info"]["response_metrics"]["output_token_times"]
    info = {"input_tokens": sent.prompt_tokens, "output_tokens": sent.output_tokens, "output_token_times": times}
    return request | {"info": info}


def write_old_inference_perf(path: Path, run: Run) -> Path:
    path.write_text(json.dumps([old_inference_perf_request(sent) for sent in run]), encoding="utf-8")
    return path


def dynamo_record(sent: Sent) -> dict[str, Any]:
    request = {
        "model": MODEL,
        "input_tokens": sent.prompt_tokens,
        "output_tokens": sent.output_tokens,
        "cached_tokens": sent.cached_tokens,
        "request_received_ms": EPOCH_S * 1000 + sent.arrival_us / 1e3,
        "ttft_ms": sent.ttft_us / 1e3,
        "total_time_ms": sent.e2e_us / 1e3,
    } | ({"error": "no"} if sent.has_failed else {})
    event = {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "request": request}
    return {"timestamp": 1, "event": event | {"agent_context": {"session_id": f"session {sent.session}"}}}


def write_dynamo(path: Path, run: Run) -> Path:
    tool = {"event": {"schema": "dynamo.request.trace.v1", "event_type": "tool_start"}}
    lines = [json.dumps(record) for record in [tool, *(dynamo_record(sent) for sent in run)]]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return path


@dataclass(frozen=True)
class Written:
    """A way to write a run: which columns survive it."""

    write: Callable[[Path, Run], Path]
    format: str
    name: str = "result.json"
    lacks: frozenset[str] = frozenset({"cached_tokens", "session"})
    has_gaps: bool = True


ALL = {
    "vllm": Written(write_vllm, "vllm_bench"),
    "sglang": Written(write_sglang, "sglang_bench", "result.jsonl"),
    "old sglang": Written(
        write_old_sglang, "sglang_bench", "r.jsonl", frozenset({"arrival_s", "cached_tokens", "session"})
    ),
    "guidellm": Written(write_guidellm, "guidellm", lacks=frozenset(), has_gaps=False),
    "old guidellm": Written(write_old_guidellm, "guidellm", has_gaps=False),
    "aiperf": Written(write_aiperf, "aiperf", "profile_export.jsonl", frozenset({"cached_tokens"})),
    "genai-perf": Written(write_genai_perf, "genai_perf", "profile_export.json", frozenset({"cached_tokens"})),
    "inference-perf": Written(write_inference_perf, "inference_perf", lacks=frozenset()),
    "old inference-perf": Written(write_old_inference_perf, "inference_perf"),
    "dynamo": Written(write_dynamo, "dynamo_trace", "trace.jsonl.gz", lacks=frozenset(), has_gaps=False),
}
