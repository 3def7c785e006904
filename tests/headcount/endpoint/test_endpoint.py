"""The endpoint: token times of the simulation, OpenAI's shapes, vLLM's metrics, refusals that say why."""

import asyncio
import http.client
import json
import math
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import openai
import pytest
import uvicorn
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from headcount.endpoint.answers import Answers, Asked
from headcount.endpoint.app import make_app
from headcount.endpoint.contents import Blocks
from headcount.endpoint.emulation import Emulation, Job
from headcount.endpoint.figures import Delays, Histogram
from headcount.endpoint.serving import Endpoint, Served, endpoint
from headcount.endpoint.tokens import EstimatedTokens
from headcount.inputs.engine import EngineInput
from simulator.deployment import resolve
from simulator.simulation import Simulation
from workloads.distributions import Fixed
from workloads.requests import NO_PREDECESSOR, RequestTable

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
FIXED = {"latency_model": "constant", "step_s": 0.01, "max_model_len": 4096}


def started(**changed: Any) -> Endpoint:
    made, _ = endpoint("llama-3.1-8b", "h100-sxm", Served(**{"speed": 20.0, **changed}), EngineInput(arguments=FIXED))
    return made


@contextmanager
def running(made: Endpoint) -> Iterator[int]:
    """The endpoint on a free port of this machine."""
    place = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(make_app(made), log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield place.getsockname()[1]
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with running(started()) as found:
        yield found


@pytest.fixture(scope="module")
def client(port: int) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)


def sent(port: int, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    """Status and answer; a body that is no text is sent as JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    data = body if isinstance(body, str | bytes | Iterator | None) else json.dumps(body)
    kind = {"content-type": "application/json", **(headers or {})}
    connection.request("GET" if body is None else "POST", path, data, kind)
    answer = connection.getresponse()
    text = answer.read().decode()
    return answer.status, json.loads(text) if text.startswith("{") else text


def metrics(port: int) -> dict[str, float]:
    """Sums over engines and labels."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(sent(port, "/metrics")[1]):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", ""])
def test_without_a_key_another_name_than_this_machine_s_own_is_refused(port: int, host: str) -> None:
    status, told = sent(port, "/v1/models", headers={"host": host})
    assert status == 421 and "--api-key" in told["error"]["message"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9000", "[::1]:8000"])
def test_without_a_key_this_machine_s_own_names_are_answered(port: int, host: str) -> None:
    assert sent(port, "/v1/models", headers={"host": host})[0] == 200


# -- without a network


def test_token_times_are_those_of_simulate() -> None:
    """Prompts that share prefixes, real step times, a KV cache that is too small for all of them."""
    plan = resolve("llama-3.1-8b", "h100-sxm", max_model_len=2048, max_num_seqs=16).with_kv_blocks(130)
    fleet, rng = plan.fleet(2, "least-outstanding"), np.random.default_rng(0)
    shared = rng.integers(0, 1000, 300)
    answers = Answers(EstimatedTokens(), Fixed(value=200))
    prompts = [np.concatenate([shared[: 60 * int(rng.integers(0, 6))], rng.integers(0, 1000, 200)]) for _ in range(40)]
    jobs = [Job(prompt=each, answer=answers.draw(each, Asked(max_tokens=300)), max_tokens=300) for each in prompts]
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


def test_a_client_that_hangs_up_when_its_last_token_is_due_is_done() -> None:
    async def late() -> None:
        clock = started(speed=1000.0).clock
        clock.start()
        answer = Answers(EstimatedTokens(), Fixed(value=3)).draw(np.arange(5), Asked(max_tokens=9))
        stream = clock.submit(Job(prompt=np.arange(5), answer=answer, max_tokens=9), clock.now())
        time.sleep(0.05)  # fifty simulated seconds, in which the loop did not run
        clock.hang_up(stream)
        assert stream.is_done and not stream.is_gone

    with ThreadPoolExecutor(max_workers=1) as apart:  # in this thread a loop runs already once Playwright has been used
        apart.submit(asyncio.run, late()).result()


def test_an_arrival_that_meets_a_failing_simulation_is_refused() -> None:
    made = started()
    made.clock.emulation.live.advance = broken  # type: ignore[assignment, method-assign]
    with TestClient(make_app(made), base_url="http://127.0.0.1") as client:
        found = client.post("/v1/completions", json={"prompt": "hi"})
    assert (found.status_code, found.json()["error"]["message"]) == (500, "the simulation failed: made up")


def broken(_: float) -> None:
    raise RuntimeError("made up")


def table_of(jobs: list[Job], arrival_s: np.ndarray) -> RequestTable:
    contents = Blocks(16, lookahead=0, most=100_000)
    spans = [contents.spans(np.concatenate([job.prompt, job.answer.tokens])) for job in jobs]
    counts = np.array([len(each) for each in spans], np.int32)
    flat = np.array([span for each in spans for span in each], np.int64)
    count = len(jobs)
    return RequestTable(
        arrival_s=arrival_s,
        follows=np.full(count, NO_PREDECESSOR),
        think_s=np.zeros(count),
        prompt_tokens=np.array([len(job.prompt) for job in jobs], np.int32),
        output_tokens=np.array([len(job.answer.tokens) for job in jobs], np.int32),
        priority=np.zeros(count, np.int32),
        span_start=np.cumsum(counts, dtype=np.int64) - counts,
        span_count=counts,
        span_content=flat[:, 0].copy(),
        span_end=flat[:, 1].astype(np.int32),
    )


@settings(max_examples=25)
@given(st.lists(st.lists(st.integers(0, 1), max_size=14), min_size=2, max_size=6), st.integers(0, 2))
def test_two_requests_share_a_block_exactly_if_all_tokens_up_to_its_end_are_equal(
    prompts: list[list[int]], lookahead: int
) -> None:
    contents = Blocks(3, lookahead=lookahead, most=1000)
    spans = [contents.spans(np.array(each, np.int64)) for each in prompts]

    def name(of: list[tuple[int, int]], last: int) -> int:
        return next(content for content, end in of if last < end)

    for one, its in zip(prompts, spans, strict=True):
        for other, others in zip(prompts, spans, strict=True):
            for end in range(3 + lookahead, min(len(one), len(other)) + 1, 3):
                assert (name(its, end - 1) == name(others, end - 1)) == (one[:end] == other[:end])


@settings(max_examples=20)
@given(st.text(max_size=20))
def test_estimated_tokens_lead_back_to_their_text(text: str) -> None:
    tokens = EstimatedTokens()
    found = tokens.encode(text)
    assert tokens.decode(found.tolist()) == text.encode("utf-8", "replace").decode()
    assert len(found) == math.ceil(len(text.encode("utf-8", "replace")) / 4)


@settings(max_examples=25)
@given(st.integers(1, 60), st.integers(0, 60), st.booleans(), st.lists(st.sampled_from([" the", "nd f", "x"])))
def test_an_answer_has_as_many_tokens_as_asked_and_none_after_a_stop(
    most: int, least: int, ignores_eos: bool, stop: list[str]
) -> None:
    least = min(least, most)
    asked = Asked(max_tokens=most, min_tokens=least, ignore_eos=ignores_eos, stop=stop)
    answer = Answers(EstimatedTokens(), Fixed(value=30)).draw(np.arange(5), asked)
    assert len(answer.words) == len(answer.tokens)
    assert least <= len(answer.tokens) <= most
    assert answer.stop_reason is not None or len(answer.tokens) == (most if ignores_eos else min(max(30, least), most))
    text = "".join(answer.words)[4 * least :]
    assert not any(each in text for each in stop)


def test_a_later_turn_begins_with_the_tokens_of_the_turns_before() -> None:
    tokens = EstimatedTokens()
    first = tokens.chat([("user", "What is a fleet?")], is_answered=True).tolist()
    answer = "".join(tokens.words[:7])
    second = tokens.chat([("user", "What is a fleet?"), ("assistant", answer), ("user", "And?")], is_answered=True)
    assert second.tolist()[: len(first) + 7] == first + tokens.encode(answer).tolist()


def test_histograms_count_what_lies_at_or_below_a_bound() -> None:
    histogram = Histogram((1.0, 2.0))
    histogram.add(1.0, 1.5, 9.0)
    assert histogram.samples() == [("1.0", 1.0), ("2.0", 2.0), ("+Inf", 3.0)]
    delays = Delays()
    for place in range(1, 101):
        delays.add(place / 1000)
    assert delays.percentile(99) == pytest.approx(0.099, rel=0.02)


# -- with clients


def test_the_openai_package_gets_answers_and_their_usage(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    found = client.completions.create(model=MODEL, prompt=[1, 2, 3], max_tokens=7, extra_body={"ignore_eos": True})
    assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.total_tokens) == (3, 7, 10)
    assert (found.choices[0].finish_reason, len(found.choices[0].text)) == ("length", 28)
    chat = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}], max_tokens=4)
    assert chat.choices[0].message.role == "assistant"
    assert chat.usage.completion_tokens == 4


def test_a_stream_has_every_token_and_ends_with_its_usage(client: openai.OpenAI) -> None:
    asked: Any = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
    whole = client.chat.completions.create(**asked, extra_body={"ignore_eos": True})
    chunks = list(
        client.chat.completions.create(
            **asked, stream=True, stream_options={"include_usage": True}, extra_body={"ignore_eos": True}
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    assert chunks[-1].usage == whole.usage


def test_an_answer_that_was_given_is_found_in_the_prefix_cache_of_the_next_turn(port: int) -> None:
    before = metrics(port)["vllm:prefix_cache_hits_total"]
    turns = [{"role": "user", "content": "a new question " * 10}]
    first = sent(port, "/v1/chat/completions", {"messages": turns, "max_tokens": 64, "ignore_eos": True})[1]
    turns += [first["choices"][0]["message"], {"role": "user", "content": "and then?"}]
    sent(port, "/v1/chat/completions", {"messages": turns, "max_tokens": 1})
    known = first["usage"]["total_tokens"] - 1
    assert metrics(port)["vllm:prefix_cache_hits_total"] - before == known // 16 * 16


NO_TEMPERATURES = ("NaN", "Infinity", "-1", "1e999")


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        ("/v1/completions", {"prompt": "hi", "model": "gpt-4"}, 404, "gpt-4"),
        ("/v1/completions", {"prompt": [1] * 5000}, 400, "maximum context length is 4096"),
        ("/v1/completions", {"prompt": [1] * 4000, "max_tokens": 200}, 400, "4200 in total"),
        ("/v1/completions", {"prompt": "hi", "n": 0}, 400, "1 to 128"),
        ("/v1/completions", {"prompt": ["a"] * 6000, "n": 2}, 400, "at most 10,000 answers"),
        ("/v1/completions", {"prompt": "hi", "logprobs": 21}, 400, "0 to 20"),
        ("/v1/completions", {"prompt": "hi", "response_format": {"type": "xml"}}, 400, "json_object, json_schema"),
        ("/v1/completions", {"prompt": "hi", "response_format": {"type": "json_schema"}}, 400, "lacks its schema"),
        ("/v1/completions", {"prompt": []}, 400, "prompt"),
        ("/v1/completions", {"prompt": ""}, 400, "empty"),
        ("/v1/completions", {"prompt": [-1]}, 400, "prompt"),
        ("/v1/completions", {"prompt": [2**70]}, 400, "prompt"),
        ("/v1/completions", {"max_tokens": 3}, 400, "prompt"),
        ("/v1/completions", {"prompt": "hi", "max_tokens": 0}, 400, "at least 1"),
        ("/v1/completions", {"prompt": "hi", "min_tokens": 99}, 400, "min_tokens"),
        ("/v1/completions", {"prompt": "hi", "echo": True}, 400, "not simulated"),
        ("/v1/completions", {"prompt": "hi", "priority": 3}, 400, "priority"),
        ("/v1/completions", {"prompt": "hi", "stream_options": {}}, 400, "stream=true"),
        *(("/v1/completions", f'{{"prompt": "hi", "temperature": {t}}}', 400, "temperature") for t in NO_TEMPERATURES),
        ("/v1/completions", '{"prompt": "hi", "top_p": NaN}', 400, "top_p"),
        ("/v1/completions", {"prompt": "hi", "frequency_penalty": -3}, 400, "frequency_penalty"),
        ("/v1/completions", '{"prompt": "h', 400, "JSON"),
        ("/v1/completions", "[" * 100_000, 400, ""),
        ("/v1/completions", b"\xff\xfe", 400, ""),
        ("/v1/chat/completions", {"messages": []}, 400, "messages"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "image"),
        ("/v1/chat/completions", {"messages": "<script>"}, 400, "messages"),
        ("/tokenize", {}, 400, "prompt or messages"),
        ("/detokenize", {"tokens": ["x"]}, 400, "tokens"),
        ("/v1/embeddings", {"input": "hi"}, 404, "Not Found"),
        ("/sleep?level=1", {}, 400, "sleep mode is not simulated"),
        ("/wake_up", {}, 400, "sleep mode is not simulated"),
        ("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "b"}, 400, "loading LoRA adapters is not simulated"),
        ("/v1/completions", {"prompt": "hi", "guided_regex": "a+"}, 400, "guided_regex is not simulated; leave it out"),
        ("/v1/completions", {"prompt": "hi", "guided_json": "["}, 400, "guided_json is no JSON schema"),
        (
            "/v1/completions",
            {"prompt": "hi", "structured_outputs": {"choice": ["a"]}},
            400,
            "structured_outputs.choice is not simulated; leave it out, or give response_format json_schema",
        ),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "x"}], "tool_choice": "required"},
            400,
            "tool_choice required is not simulated: no answer calls a tool",
        ),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "x"}], "tool_choice": {"type": "function"}},
            400,
            "tool_choice function is not simulated",
        ),
    ],
)
def test_what_cannot_be_answered_is_refused_in_openai_s_shape(
    port: int, path: str, body: Any, status: int, told: str
) -> None:
    found, answer = sent(port, path, body)
    assert (found, answer["error"]["code"]) == (status, status)
    assert told in answer["error"]["message"]
    assert len(answer["error"]["message"]) < 400
    assert sent(port, "/health")[0] == 200


def test_tokens_lead_back_to_their_text(port: int) -> None:
    found = sent(port, "/tokenize", {"prompt": "Grüße, 世界", "return_token_strs": True})[1]
    assert found["count"] == len(found["tokens"]) == len(found["token_strs"])
    assert sent(port, "/detokenize", {"tokens": found["tokens"]})[1] == {"prompt": "Grüße, 世界"}


def test_metrics_have_vllm_s_names_and_count_what_was_served(port: int) -> None:
    before = metrics(port)
    sent(port, "/v1/completions", {"prompt": [5] * 40, "max_tokens": 6, "ignore_eos": True})
    after = metrics(port)
    grown = {name: after[name] - before[name] for name in after}
    assert grown["vllm:prompt_tokens_total"] == grown["vllm:prefix_cache_queries_total"] == 40
    assert grown["vllm:generation_tokens_total"] == 6
    assert grown["vllm:request_success_total"] == 1
    for name, count in (("time_to_first_token", 1), ("inter_token_latency", 5), ("e2e_request_latency", 1)):
        assert grown[f"vllm:{name}_seconds_count"] == count
    assert after["vllm:num_requests_running"] == after["vllm:num_requests_waiting"] == 0
    assert 0 <= after["vllm:kv_cache_usage_perc"] <= 1
    assert after["headcount:added_delay_seconds"] > 0


def test_a_client_that_hangs_up_aborts_its_request(port: int) -> None:
    body = json.dumps({"prompt": "hi", "max_tokens": 4000, "ignore_eos": True, "stream": True})
    with socket.create_connection(("127.0.0.1", port)) as connection:
        head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
        connection.sendall(f"{head}content-type: application/json\r\n\r\n{body}".encode())
        assert b"200" in connection.recv(100)
        assert metrics(port)["vllm:num_requests_running"] == 1
    end_s = time.monotonic() + 1
    while metrics(port)["vllm:num_requests_running"] and time.monotonic() < end_s:
        time.sleep(0.01)
    assert metrics(port)["vllm:num_requests_running"] == 0


def test_a_key_a_body_and_a_crowd_have_their_limits() -> None:
    guarded = replace(started(max_concurrent=1, speed=1.0), api_key="secret", most_bytes=1000)
    long: Any = {"prompt": "hi", "max_tokens": 4000, "ignore_eos": True, "stream": True}
    with running(guarded) as port:
        assert sent(port, "/v1/models")[0] == 401
        assert sent(port, "/v1/models", headers={"authorization": "Bearer wrong"})[0] == 401
        assert sent(port, "/health")[0] == 200
        key = {"authorization": "Bearer secret"}
        assert sent(port, "/v1/models", headers=key)[0] == 200
        assert sent(port, "/v1/completions", {"prompt": "x" * 2000}, key)[0] == 413
        pieces = iter([b'{"prompt": "', b"x" * 2000, b'"}'])  # whose length is not said
        assert sent(port, "/v1/completions", pieces, key)[0] == 413
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("POST", "/v1/completions", json.dumps(long), {"content-type": "application/json", **key})
        assert connection.getresponse().status == 200
        assert sent(port, "/v1/completions", long, key)[0] == 503
        connection.close()


def test_a_simulation_that_fails_ends_every_answer_with_an_error() -> None:
    made = started(speed=1.0)
    with running(made) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        body = json.dumps({"prompt": "hi", "max_tokens": 4000, "ignore_eos": True})
        connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
        while not metrics(port)["vllm:num_requests_running"]:
            time.sleep(0.01)
        made.clock.emulation.live.advance = broken  # type: ignore[assignment, method-assign]
        answer = connection.getresponse()
        assert (answer.status, json.load(answer)["error"]["message"]) == (500, "the simulation failed: made up")
        assert sent(port, "/health")[0] == 503
        assert sent(port, "/v1/completions", {"prompt": "hi"})[0] == 500
