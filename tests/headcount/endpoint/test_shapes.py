"""Several answers, log probabilities, JSON, and the endpoint's other APIs."""

import json
import math
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount.endpoint.json_text import json_text
from headcount.endpoint.requests import ApiError
from tests.headcount.endpoint.test_endpoint import MODEL, metrics, running, sent, started

SAID = [{"role": "user", "content": "How many people?"}]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"}, "age": {"type": "integer", "minimum": 18},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
        "where": {"$ref": "#/$defs/place"},
    },
    "required": ["name", "age"],
    "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 8}}}},
}  # fmt: skip


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with running(started()) as found:
        yield found


@pytest.fixture(scope="module")
def client(port: int) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)


def test_every_prompt_of_a_list_gets_n_answers_in_order(client: openai.OpenAI) -> None:
    several = client.completions.create(model=MODEL, prompt=["one", "two"], n=2, max_tokens=8)
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    alone = [
        client.completions.create(model=MODEL, prompt=text, max_tokens=8).choices[0].text for text in ("one", "two")
    ]
    assert [several.choices[0].text, several.choices[2].text] == alone
    assert several.choices[1].text != alone[0]
    assert several.usage is not None
    assert (several.usage.prompt_tokens, several.usage.completion_tokens) == (
        2,
        32,
    )  # each prompt once


def test_streamed_choices_make_up_the_whole_ones(client: openai.OpenAI) -> None:
    asked: Any = {"model": MODEL, "messages": SAID, "n": 3, "max_tokens": 12}
    whole = client.chat.completions.create(**asked)
    texts, ends = ["", "", ""], {}
    for chunk in client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            if choice.finish_reason:
                ends[choice.index] = choice.finish_reason
        usage = chunk.usage
    assert texts == [choice.message.content for choice in whole.choices]
    assert ends == {choice.index: choice.finish_reason for choice in whole.choices}
    assert usage == whole.usage


def test_log_probabilities_are_those_of_equally_likely_filler(client: openai.OpenAI) -> None:
    found = client.chat.completions.create(model=MODEL, messages=SAID, max_tokens=5, logprobs=True, top_logprobs=3)  # type: ignore[arg-type]
    content = found.choices[0].logprobs.content if found.choices[0].logprobs else None
    assert content is not None
    assert "".join(token.token for token in content) == found.choices[0].message.content
    assert {token.logprob for token in content} == {-math.log(38)}
    assert all(len(token.top_logprobs) == 3 for token in content)
    text = client.completions.create(model=MODEL, prompt="hi", max_tokens=5, logprobs=2).choices[0]
    assert text.logprobs is not None
    assert text.logprobs.tokens is not None
    assert "".join(text.logprobs.tokens) == text.text
    assert text.logprobs.text_offset == [4 * place for place in range(5)]
    parts = [
        chunk.choices[0]
        for chunk in client.completions.create(model=MODEL, prompt="hi", max_tokens=5, logprobs=2, stream=True)
    ]
    assert [
        each for part in parts if part.logprobs for each in part.logprobs.text_offset or ()
    ] == text.logprobs.text_offset


def test_answers_keep_to_the_asked_json(port: int) -> None:
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
    body = {"messages": SAID, "max_tokens": 200}
    for shape, kind in ((wanted, dict), ({"type": "json_object"}, dict)):
        answer = sent(port, "/v1/chat/completions", {**body, "response_format": shape})[1]
        assert isinstance(json.loads(answer["choices"][0]["message"]["content"]), kind)
        assert answer["choices"][0]["finish_reason"] == "stop"
    person = json.loads(
        sent(port, "/v1/chat/completions", {**body, "response_format": wanted})[1]["choices"][0]["message"]["content"]
    )
    assert person["age"] >= 18
    assert person["tags"] == ["a"]
    assert len(person["where"]["city"]) <= 8
    cut = sent(port, "/v1/chat/completions", {**body, "max_tokens": 3, "response_format": wanted})[1]
    assert (cut["choices"][0]["finish_reason"], cut["usage"]["completion_tokens"]) == ("length", 3)


@pytest.mark.parametrize(
    "asked",
    [
        {"guided_json": SCHEMA},
        {"guided_json": json.dumps(SCHEMA)},
        {"structured_outputs": {"json": SCHEMA}},
        {"structured_outputs": {"json_object": True}},
    ],
)
def test_vllm_s_own_ways_to_ask_for_json_are_answered(port: int, asked: Any) -> None:
    body = {"messages": SAID, "max_tokens": 200, "tool_choice": "auto", **asked}
    answer = sent(port, "/v1/chat/completions", body)[1]["choices"][0]["message"]["content"]
    found = json.loads(answer)
    assert "json_object" in asked.get("structured_outputs", ()) or found["age"] >= 18


def test_json_is_about_as_long_as_text_would_be() -> None:
    with running(started(output_len=100)) as port:
        answer = sent(port, "/v1/chat/completions", {"messages": SAID, "response_format": {"type": "json_object"}})[1]
    assert answer["usage"]["completion_tokens"] == pytest.approx(100, abs=5)


SCHEMAS = st.recursive(
    st.sampled_from(
        [
            {"type": "string"},
            {"type": "integer"},
            {"type": "number", "minimum": 3},
            {"type": "boolean"},
            {"type": "null"},
            {"const": 3},
            {"enum": ["x", 1]},
            {},
            True,
            {"type": "string", "format": "date"},
            {"type": ["string", "null"]},
        ]
    ),
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(
            lambda each: {"type": "object", "properties": each}, st.dictionaries(st.text(max_size=5), inner, max_size=3)
        ),
        st.builds(
            lambda each: {"anyOf": each},
            st.lists(inner.filter(lambda one: isinstance(one, dict)), min_size=1, max_size=3),
        ),
    ),
    max_leaves=8,
)


@given(SCHEMAS)
def test_what_a_schema_allows_is_json(schema: Any) -> None:
    found = json.loads(json_text({"type": "object", "properties": {"x": schema}}, "filler"))
    assert set(found) == {"x"}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"$ref": "#/$defs/no"}, "leads nowhere"),
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "more than 20 levels"),
        ({"type": "string", "pattern": "a+"}, "pattern is not simulated"),
        ({"type": "text"}, "is not known"),
        ({"type": "array", "minItems": "x"}, "of another type"),
        ({"type": "array", "minItems": 999, "items": {"type": "array", "minItems": 999}}, "more than 10,000 values"),
        ({"type": "string", "minLength": 10**12}, "minLength is above"),
        ({"type": "object", "properties": {"a": 5}}, "a schema must be an object"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_answered_is_refused(schema: Any, words: str) -> None:
    with pytest.raises(ApiError, match=words):
        json_text(schema, "filler")


def test_responses_are_whole_or_events_of_the_same_text(client: openai.OpenAI) -> None:
    asked: Any = {"model": MODEL, "input": "How many?", "instructions": "Be brief.", "max_output_tokens": 12}
    whole = client.responses.create(**asked)
    assert (whole.status, whole.usage.output_tokens if whole.usage else 0) == ("incomplete", 12)
    assert whole.incomplete_details is not None
    events = list(client.responses.create(**asked, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    kinds = [event.type for event in events if event.type != "response.output_text.delta"]
    assert kinds == [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
        "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.incomplete",
    ]  # fmt: skip
    last: Any = events[-1]
    assert last.response.output_text == whole.output_text
    shaped = client.responses.create(
        model=MODEL, input="x", text={"format": {"type": "json_schema", "name": "p", "schema": SCHEMA}}
    )
    assert json.loads(shaped.output_text)["age"] >= 18


def events_of(text: str) -> list[Any]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]


def test_messages_are_whole_or_events_of_the_same_text(port: int) -> None:
    asked = {"model": MODEL, "system": "Be brief.", "messages": SAID, "max_tokens": 12}
    status, whole = sent(port, "/v1/messages", asked)
    assert (status, whole["type"], whole["usage"]["output_tokens"]) == (200, "message", 12)
    assert (whole["stop_reason"], whole["content"][0]["type"]) == ("max_tokens", "text")
    events = events_of(sent(port, "/v1/messages", {**asked, "stream": True})[1])
    text = "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")
    assert text == whole["content"][0]["text"]
    kinds = [event["type"] for event in events if event["type"] != "content_block_delta"]
    assert kinds == ["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"]
    assert events[-2]["usage"]["output_tokens"] == 12
    counted = sent(port, "/v1/messages/count_tokens", {key: asked[key] for key in ("model", "system", "messages")})[1]
    assert counted["input_tokens"] == whole["usage"]["input_tokens"]


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input_image"),
        ("/v1/responses", {"input": [{"role": 5}]}, "needs a role"),
        ("/v1/responses", {"input": []}, "input is empty"),
        ("/v1/responses", {"input": "x", "previous_response_id": "resp_1"}, "nothing is stored"),
        ("/v1/responses", {"input": "x", "tool_choice": "required"}, "tool_choice required is not simulated"),
        (
            "/v1/messages",
            {"messages": SAID, "max_tokens": 5, "tool_choice": {"type": "any"}},
            "tool_choice any is not simulated",
        ),
        ("/v1/messages", {"messages": SAID}, "max_tokens"),
        ("/v1/messages", {"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "image"}]}]}, "image"),
    ],
)
def test_what_the_other_apis_cannot_answer_is_refused(port: int, path: str, body: Any, told: str) -> None:
    status, answer = sent(port, path, body)
    assert status == 400
    assert told in answer["error"]["message"]


def test_the_load_is_what_is_in_flight(port: int) -> None:
    assert sent(port, "/load") == (200, {"server_load": 0})
    assert metrics(port)["vllm:num_requests_running"] == 0
