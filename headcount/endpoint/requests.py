"""What clients may ask, by OpenAI's names and vLLM's; a field that changes no token count is passed over."""

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Field

from files.documents import Json
from headcount.endpoint.tokens import Message

MOST_ANSWERS = 128  # of one prompt, as OpenAI's API allows
MOST_LOGPROBS = 20  # vLLM's --max-logprobs by default
_SHAPES = ("regex", "choice", "grammar", "structural_tag", "ebnf")  # of an answer, that filler does not have
Token = Annotated[int, Field(ge=0, lt=2**62)]


class ApiError(Exception):
    """What a client did wrong, as OpenAI's API tells it."""

    def __init__(self, message: str, *, status: int = 400, kind: str = "BadRequestError", param: str | None = None):
        super().__init__(message)
        self.status, self.kind, self.param = status, kind, param

    def body(self) -> Json:
        told = {"message": str(self), "type": self.kind, "param": self.param, "code": self.status}
        return {"error": told}


class StreamOptions(BaseModel):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class SamplingBounds(BaseModel):
    """What changes no token count, as far as both engines refuse it: `SamplingParams` of vLLM 0.32, SGLang 0.5.23."""

    temperature: float | None = Field(None, ge=0, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0, le=1)
    min_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=-1)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    repetition_penalty: float | None = Field(None, gt=0, allow_inf_nan=False)


class _Sampling(SamplingBounds):
    """What completions and chats have in common."""

    model: str | None = None
    n: int | None = None
    response_format: Json | None = None
    structured_outputs: Json | None = None
    guided_json: Json | str | None = None  # vLLM's before 0.12, as the next three
    guided_regex: object = None
    guided_choice: object = None
    guided_grammar: object = None
    structural_tag: object = None
    regex: object = None  # SGLang's, as `ebnf`
    ebnf: object = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    stop: str | list[str] | None = None
    ignore_eos: bool = False
    min_tokens: int = Field(0, ge=0)
    priority: int = Field(0, ge=-(2**31), lt=2**31)
    user: str | None = Field(None, max_length=1024)
    session_id: str | None = Field(None, max_length=1024)
    cache_salt: str | None = Field(None, max_length=1024)

    def check(self) -> None:
        """Raise ApiError for what is not simulated."""
        if not 1 <= self.num_answers <= MOST_ANSWERS:
            raise ApiError(f"n is {self.n}; give a number from 1 to {MOST_ANSWERS}", param="n")
        own = ("guided_regex", "guided_choice", "guided_grammar", "structural_tag", "regex", "ebnf")
        given = [name for name in own if getattr(self, name)]
        given += [f"structured_outputs.{name}" for name in _SHAPES if (self.structured_outputs or {}).get(name)]
        if given:
            instead = "leave it out, or give response_format json_schema"
            raise ApiError(f"{given[0]} is not simulated; {instead}", param=given[0].partition(".")[0])
        if self.stream_options is not None and not self.stream:
            raise ApiError("stream_options can be given with stream=true alone", param="stream_options")

    @property
    def num_answers(self) -> int:
        """How many answers each prompt gets."""
        return 1 if self.n is None else self.n

    @property
    def schema_of_answer(self) -> Json | None:
        """The JSON schema that answers keep to; `{}`: any object; None: text. Raises ApiError for another format."""
        for name, given in (("guided_json", self.guided_json), *_structured(self.structured_outputs or {})):
            if given is not None:
                return _schema(name, given)
        wanted = self.response_format or {}
        kind = wanted.get("type", "text")
        if kind == "json_schema":
            named = wanted.get("json_schema") or wanted
            found = named.get("schema") if isinstance(named, dict) else None
            if not isinstance(found, dict):
                raise ApiError("response_format json_schema lacks its schema; add it", param="response_format")
            return found
        if kind not in ("text", "json_object"):
            known = "text, json_object, json_schema"
            raise ApiError(
                f"response_format type {str(kind)[:40]!r} is not simulated; give {known}", param="response_format"
            )
        return {} if kind == "json_object" else None

    @property
    def stops(self) -> Sequence[str]:
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return [each for each in given if each]

    @property
    def session(self) -> str | None:
        """Whose turn it is, for routers with session affinity."""
        return self.session_id or self.user


def _structured(given: Json) -> Iterator[tuple[str, Any]]:
    """What vLLM's `structured_outputs` says of the answer's JSON."""
    yield "structured_outputs.json", given.get("json")
    yield "structured_outputs.json_object", {} if given.get("json_object") else None


def _schema(name: str, given: object) -> Json:
    """A JSON schema that may be given as text. Raises ApiError."""
    try:
        found = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ApiError(f"{name} is no JSON schema; give an object", param=name.partition(".")[0])
    return found


def check_tool_choice(given: str | Json | None) -> None:
    """Raise ApiError where the answer must call a tool."""
    kind = given.get("type") if isinstance(given, dict) else given
    if kind not in (None, "auto", "none"):
        raise ApiError(
            f"tool_choice {str(kind)[:40]} is not simulated: no answer calls a tool; give auto or none, or "
            "response_format json_schema with the tool's parameters",
            param="tool_choice",
        )


class CompletionRequest(_Sampling):
    prompt: str | list[Token] | list[str] | list[list[Token]]
    max_tokens: int | None = 16
    echo: bool | None = False
    logprobs: int | None = None
    best_of: int | None = None
    suffix: str | None = None

    def check(self) -> None:
        super().check()
        if self.echo or self.suffix or self.best_of not in (None, 1):
            raise ApiError("echo, suffix and best_of are not simulated; leave them out")
        _check_logprobs(self.num_logprobs, "logprobs")

    @property
    def num_logprobs(self) -> int | None:
        """How many tokens stand beside each one with their log probabilities; None: none are asked for."""
        return self.logprobs

    @property
    def prompts(self) -> list[str] | list[list[int]]:
        """Texts, or lists of token ids. Raises ApiError without any."""
        given: Any = self.prompt
        found: list[str] | list[list[int]] = (
            [given] if isinstance(given, str) or isinstance(next(iter(given), None), int) else given
        )
        if not found:
            raise ApiError("The prompt is empty.", param="prompt")
        return found


def _check_logprobs(count: int | None, name: str) -> None:
    if count is not None and not 0 <= count <= MOST_LOGPROBS:
        raise ApiError(f"{name} is {count}; give a number from 0 to {MOST_LOGPROBS}", param=name)


class ChatMessage(BaseModel):
    role: str = Field(max_length=64)
    content: str | list[Json] | None = None
    tool_calls: list[Json] | None = None

    @property
    def text(self) -> str:
        """Raises ApiError for an image, audio or video, whose tokens are not known."""
        parts = [{"type": "text", "text": self.content}] if isinstance(self.content, str) else self.content or []
        for part in parts:
            if part.get("type") != "text" or not isinstance(part.get("text"), str):
                kind = str(part.get("type"))[:40]
                raise ApiError(f"content of type {kind!r} is not simulated; send text", param="messages")
        calls = json.dumps(self.tool_calls) if self.tool_calls else ""
        return "".join(part["text"] for part in parts) + calls


class ChatRequest(_Sampling):
    messages: list[ChatMessage] = Field(min_length=1)
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = False
    top_logprobs: int | None = None
    tools: list[Json] | None = None
    tool_choice: str | Json | None = None

    def check(self) -> None:
        super().check()
        check_tool_choice(self.tool_choice)
        if self.top_logprobs and not self.logprobs:
            raise ApiError("top_logprobs needs logprobs=true", param="top_logprobs")
        _check_logprobs(self.num_logprobs, "top_logprobs")

    @property
    def num_logprobs(self) -> int | None:
        """As in `CompletionRequest`."""
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def turns(self) -> list[Message]:
        """The messages; the tools come first, as JSON in a system message."""
        tools = [("system", json.dumps(self.tools))] if self.tools else []
        return [*tools, *((message.role, message.text) for message in self.messages)]


class TokenizeRequest(BaseModel):
    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    add_generation_prompt: bool = True
    return_token_strs: bool | None = False


class DetokenizeRequest(BaseModel):
    model: str | None = None
    tokens: list[Token]
