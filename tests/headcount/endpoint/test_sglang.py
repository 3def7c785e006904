"""The endpoint as an SGLang server: its scheduler's token times, its addresses, its metrics."""

import json
import math
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from conformance.components.probes import FOLDER
from conformance.probing import answers
from headcount.endpoint.answers import Answers, Asked
from headcount.endpoint.app import make_app
from headcount.endpoint.contents import Tokens
from headcount.endpoint.emulation import Emulation, Job
from headcount.endpoint.serving import Endpoint, Served, endpoint
from headcount.endpoint.tokens import EstimatedTokens
from headcount.inputs.engine import EngineInput
from simulator.deployment import resolve
from simulator.simulation import Simulation
from tests.headcount.endpoint.test_endpoint import MODEL, metrics, running, sent
from workloads.distributions import Fixed
from workloads.requests import NO_PREDECESSOR, RequestTable

CONSTANT = {"engine": "sglang", "latency_model": "constant", "step_s": 0.01, "context_length": 4096}
DASHBOARD = (  # SGLang's own, examples/monitoring/grafana/dashboards/json/sglang-dashboard.json
    "sglang:e2e_request_latency_seconds_bucket", "sglang:time_to_first_token_seconds_bucket",
    "sglang:inter_token_latency_seconds_bucket", "sglang:num_running_reqs", "sglang:gen_throughput",
    "sglang:cache_hit_rate", "sglang:num_queue_reqs",
)  # fmt: skip


def started(**changed: Any) -> Endpoint:
    made, _ = endpoint(
        "llama-3.1-8b", "h100-sxm", Served(**{"speed": 20.0, **changed}), EngineInput(arguments=CONSTANT)
    )
    return made


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with running(started()) as found:
        yield found


# -- without a network


@pytest.mark.parametrize("page_size", [1, 16])
def test_token_times_are_those_of_simulate(page_size: int) -> None:
    """Prompts that share prefixes, real step times, a KV cache that is too small for all of them."""
    asked = {"context_length": 2048, "max_running_requests": 16, "page_size": page_size}
    plan = resolve("llama-3.1-8b", "h100-sxm", engine="sglang", **asked).with_kv_blocks(2080 // page_size)
    fleet, rng = plan.fleet(2, "least-outstanding"), np.random.default_rng(0)
    shared, drawn = rng.integers(0, 1000, 300), Answers(EstimatedTokens(), Fixed(value=200))
    prompts = [np.concatenate([shared[: 60 * int(rng.integers(0, 6))], rng.integers(0, 1000, 200)]) for _ in range(40)]
    jobs = [Job(prompt=each, answer=drawn.draw(each, Asked(max_tokens=200)), max_tokens=200) for each in prompts]
    arrival_s = np.cumsum(rng.exponential(0.01, len(jobs)))
    emulation, streams = Emulation(fleet, most=100), []
    for job, time_s in zip(jobs, arrival_s.tolist(), strict=True):
        while emulation.advance(math.nextafter(time_s, 0)):
            pass
        streams.append(emulation.submit(job, time_s))
    while emulation.advance(math.inf):
        pass
    simulation = Simulation(fleet, table_of(jobs, arrival_s))
    simulation.run()
    assert [each.first_s for each in streams] == simulation.requests["first_token_s"].tolist()
    assert [each.last_s for each in streams] == simulation.requests["finish_s"].tolist()
    assert simulation.requests["preemptions"].sum() > 0
    assert simulation.totals["hit_tokens"].sum() > 0


def table_of(jobs: list[Job], arrival_s: np.ndarray) -> RequestTable:
    """Each token by the name of all up to it, as the radix tree tells them apart."""
    names: dict[tuple[int, ...], int] = {}
    spans = []
    for job in jobs:
        tokens = tuple(np.concatenate([job.prompt, job.answer.tokens]).tolist())
        spans.append([(names.setdefault(tokens[:end], len(names)), end) for end in range(1, len(tokens) + 1)])
    counts = np.array([len(each) for each in spans], np.int32)
    flat = np.array([span for each in spans for span in each], np.int64)
    return RequestTable(
        arrival_s=arrival_s,
        follows=np.full(len(jobs), NO_PREDECESSOR),
        think_s=np.zeros(len(jobs)),
        prompt_tokens=np.array([len(job.prompt) for job in jobs], np.int32),
        output_tokens=np.array([len(job.answer.tokens) for job in jobs], np.int32),
        priority=np.zeros(len(jobs), np.int32),
        span_start=np.cumsum(counts, dtype=np.int64) - counts,
        span_count=counts,
        span_content=flat[:, 0].copy(),
        span_end=flat[:, 1].astype(np.int32),
    )


sequences = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=14), min_size=2, max_size=8)


def name(spans: list[tuple[int, int]], place: int) -> int:
    return next(content for content, end in spans if place < end)


@settings(max_examples=60)
@given(sequences)
def test_two_requests_share_a_token_exactly_if_all_up_to_it_are_equal(prompts: list[list[int]]) -> None:
    contents = Tokens(most=1000)
    spans = [contents.spans(np.array(each, np.int64)) for each in prompts]
    for one, its in zip(prompts, spans, strict=True):
        for other, others in zip(prompts, spans, strict=True):
            for end in range(1, min(len(one), len(other)) + 1):
                assert (name(its, end - 1) == name(others, end - 1)) == (one[:end] == other[:end])


@settings(max_examples=60)
@given(sequences, st.integers(1, 30))
def test_what_is_forgotten_is_shared_no_more_and_never_with_others(prompts: list[list[int]], most: int) -> None:
    contents = Tokens(most=most)
    spans = [contents.spans(np.array(each, np.int64)) for each in prompts]
    for one, its in zip(prompts, spans, strict=True):
        for other, others in zip(prompts, spans, strict=True):
            for end in range(1, min(len(one), len(other)) + 1):
                assert one[:end] == other[:end] or name(its, end - 1) != name(others, end - 1)


def test_a_salt_keeps_equal_prompts_apart() -> None:
    contents, tokens = Tokens(most=1000), np.arange(5)
    assert contents.spans(tokens) == contents.spans(tokens) != contents.spans(tokens, "mine")


# -- with clients


def test_the_openai_package_gets_answers_and_their_usage(port: int) -> None:
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
    assert [(model.id, model.owned_by) for model in client.models.list()] == [(MODEL, "sglang")]
    asked: Any = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
    whole = client.chat.completions.create(**asked, extra_body={"ignore_eos": True})
    chunks = list(client.chat.completions.create(**asked, stream=True, extra_body={"ignore_eos": True}))
    assert (whole.usage.completion_tokens, whole.choices[0].finish_reason) == (9, "length")
    assert "".join(each.choices[0].delta.content or "" for each in chunks) == whole.choices[0].message.content


def test_generate_streams_all_that_there_is_and_ends_with_why(port: int) -> None:
    asked = {"input_ids": [7] * 40, "sampling_params": {"max_new_tokens": 6, "ignore_eos": True}, "rid": "mine"}
    whole = sent(port, "/generate", asked)[1]
    events = sent(port, "/generate", {**asked, "stream": True})[1].split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    parts = [json.loads(each.removeprefix("data: ")) for each in events[:-2]]
    counts = [part["meta_info"]["completion_tokens"] for part in parts]
    assert counts == sorted(set(counts)) and counts[-1] == 6
    assert all(whole["text"].startswith(part["text"]) for part in parts)
    assert parts[-1]["text"] == whole["text"] and len(parts[-1]["output_ids"]) == 6
    assert parts[-1]["meta_info"]["finish_reason"] == {"type": "length", "length": 6}
    assert (whole["meta_info"]["id"], whole["meta_info"]["prompt_tokens"]) == ("mine", 40)
    assert parts[-1]["meta_info"]["cached_tokens"] == 39  # its last token is computed anew


def test_the_server_says_what_it_is(port: int) -> None:
    info = sent(port, "/server_info")[1]
    assert (info["context_length"], info["page_size"], info["version"]) == (4096, 1, "0.5.23")
    assert info["internal_states"][0]["memory_usage"]["token_capacity"] == info["max_total_num_tokens"]
    assert sent(port, "/get_server_info")[1] == info
    assert sent(port, "/model_info")[1] == sent(port, "/get_model_info")[1]
    assert sent(port, "/model_info")[1]["model_path"] == MODEL
    assert [sent(port, path)[0] for path in ("/health", "/health_generate", "/ready", "/version")] == [200] * 3 + [404]


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        ("/v1/completions", {"prompt": [1] * 5000}, 400, "longer than the model's context length (4096 tokens)"),
        ("/v1/completions", {"prompt": [1] * 4000, "max_tokens": 200}, 400, "total of 4200 tokens"),
        ("/v1/completions", {"prompt": [1] * 4092, "max_tokens": 2}, 400, "SGLang takes less than 4,090"),
        ("/v1/completions", {"prompt": "hi", "priority": 3}, 400, "priority"),
        ("/v1/completions", {"prompt": "hi", "model": "gpt-4"}, 404, "gpt-4"),
        ("/generate", {"text": ["a", "b"]}, 400, "give no list"),
        ("/generate", {}, 400, "text or input_ids"),
        ("/generate", {"text": "a", "input_ids": [1]}, 400, "text or input_ids"),
        ("/generate", {"text": "a", "return_logprob": True}, 400, "not simulated"),
        ("/generate", {"text": "a", "sampling_params": {"n": 2}}, 400, "n=1"),
        ("/generate", {"text": "a", "sampling_params": 3}, 400, "sampling_params"),
        ("/generate", {"text": "a", "sampling_params": {"regex": "a+"}}, 400, "regex is not simulated"),
        ("/generate", {"text": "a", "sampling_params": {"json_schema": "["}}, 400, "is no JSON schema"),
        ("/flush_cache", {}, 404, "Not Found"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_sglang_s_shape(
    port: int, path: str, body: Any, status: int, told: str
) -> None:
    found, answer = sent(port, path, body)
    assert (found, answer["object"], answer["code"]) == (status, "error", status)
    assert told in answer["message"]


def test_an_answer_ends_where_sglang_s_memory_or_context_does(port: int) -> None:
    body = {"prompt": [1] * 4000, "max_tokens": 96, "ignore_eos": True}
    assert sent(port, "/v1/completions", body)[1]["usage"]["completion_tokens"] == 94


def test_metrics_have_sglang_s_names_and_count_what_was_served(port: int) -> None:
    before = metrics(port)
    sent(port, "/v1/completions", {"prompt": [5] * 40, "max_tokens": 6, "ignore_eos": True})
    after = metrics(port)
    grown = {each: after[each] - before[each] for each in after}
    assert (grown["sglang:prompt_tokens_total"], grown["sglang:generation_tokens_total"]) == (40, 6)
    assert grown["sglang:num_requests_total"] == 1
    for each, count in (("time_to_first_token", 1), ("inter_token_latency", 5), ("e2e_request_latency", 1)):
        assert grown[f"sglang:{each}_seconds_count"] == count
    assert after["sglang:num_running_reqs"] == after["sglang:num_queue_reqs"] == after["sglang:token_usage"] == 0
    free = after["sglang:kv_available_tokens"] + after["sglang:kv_evictable_tokens"]
    assert free == after["sglang:max_total_num_tokens"]


def test_a_client_that_hangs_up_aborts_its_request(port: int) -> None:
    before = metrics(port)["sglang:num_aborted_requests_total"]
    body = json.dumps({"text": "hi", "stream": True, "sampling_params": {"max_new_tokens": 4000, "ignore_eos": True}})
    with socket.create_connection(("127.0.0.1", port)) as connection:
        head = f"POST /generate HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
        connection.sendall(f"{head}content-type: application/json\r\n\r\n{body}".encode())
        received = b""
        while received.count(b"data:") < 3:
            received += connection.recv(10_000)
        assert metrics(port)["sglang:num_running_reqs"] == 1
    end_s = time.monotonic() + 2
    while metrics(port)["sglang:num_running_reqs"] and time.monotonic() < end_s:
        time.sleep(0.01)
    after = metrics(port)
    assert (after["sglang:num_running_reqs"], after["sglang:token_usage"]) == (0, 0)
    assert after["sglang:num_aborted_requests_total"] == before + 1


# -- beside SGLang's own metrics


def families(replicas: int = 1) -> list[Any]:
    with TestClient(make_app(started(replicas=replicas)), base_url="http://127.0.0.1") as client:
        return list(text_string_to_metric_families(client.get("/metrics").text))


def test_no_panel_of_sglang_s_dashboard_stays_empty() -> None:
    assert {sample.name for family in families() for sample in family.samples}.issuperset(DASHBOARD)


def test_replicas_are_told_apart_as_ranks_of_dp_size() -> None:
    running_reqs = next(family for family in families(replicas=2) if family.name == "sglang:num_running_reqs")
    assert [sample.labels["dp_rank"] for sample in running_reqs.samples] == ["0", "1"]


@pytest.mark.slow
def test_each_metric_has_the_type_the_labels_and_the_buckets_of_sglang_s_own(sglang_python: Path) -> None:
    (theirs,) = answers(sglang_python, "sglang_metrics_probe", [{"name": "model"}], failure="none", folder=FOLDER)
    for family in families():
        if family.name.startswith("sglang:"):
            found = theirs["metrics"][family.name]
            bounds = {float(sample.labels["le"]): None for sample in family.samples if "le" in sample.labels}
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            assert (family.type, sorted(labels)) == (found["type"], found["labels"]), family.name
            assert list(bounds) == list(map(float, found["bounds"])), family.name
