"""What clients may ask, by OpenAI's names and vLLM's; a field that changes no token count is passed over."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Field

from files.documents import Json
from headcount.endpoint.tokens import Message

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
    n: int | None = 1
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
        if self.n not in (None, 1):
            raise ApiError(f"n is {self.n}; one answer a request is simulated: give n=1", param="n")
        if self.stream_options is not None and not self.stream:
            raise ApiError("stream_options can be given with stream=true alone", param="stream_options")

    @property
    def stops(self) -> Sequence[str]:
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return [each for each in given if each]

    @property
    def session(self) -> str | None:
        """Whose turn it is, for routers with session affinity."""
        return self.session_id or self.user


class CompletionRequest(_Sampling):
    prompt: str | list[Token] | list[str] | list[list[Token]]
    max_tokens: int | None = 16
    echo: bool | None = False
    logprobs: int | None = None
    best_of: int | None = None
    suffix: str | None = None

    def check(self) -> None:
        super().check()
        if self.echo or self.suffix or self.logprobs is not None or self.best_of not in (None, 1):
            raise ApiError("echo, suffix, logprobs and best_of are not simulated; leave them out")

    @property
    def only_prompt(self) -> str | list[int]:
        """Text or token ids. Raises ApiError where there are several."""
        given: Any = self.prompt
        if isinstance(given, list) and (not given or not isinstance(given[0], int)):
            if len(given) != 1:
                raise ApiError(f"{len(given)} prompts in one request; give one", param="prompt")
            given = given[0]
        found: str | list[int] = given
        return found


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
    tools: list[Json] | None = None

    def check(self) -> None:
        super().check()
        if self.logprobs:
            raise ApiError("logprobs are not simulated; leave them out", param="logprobs")

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
