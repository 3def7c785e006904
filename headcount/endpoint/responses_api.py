"""OpenAI's /v1/responses, as far as it changes tokens: no stored responses, tools' results as text."""

from collections.abc import Iterator
from itertools import count

from fastapi import FastAPI, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from files.documents import Json
from headcount.endpoint.requests import ApiError, ChatMessage, ChatRequest
from headcount.endpoint.responses import Shape
from headcount.endpoint.serving import Endpoint, submitted
from headcount.endpoint.typed_events import TypedAnswer

_TEXTS = ("input_text", "output_text", "text")


class _Text(BaseModel):
    format: Json | None = None


class ResponsesRequest(BaseModel):
    input: str | list[Json]
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    stream: bool | None = False
    text: _Text | None = None
    tools: list[Json] | None = None
    tool_choice: str | Json | None = None
    user: str | None = Field(None, max_length=1024)
    priority: int = Field(0, ge=-(2**31), lt=2**31)
    cache_salt: str | None = Field(None, max_length=1024)
    previous_response_id: str | None = None

    def as_chat(self) -> ChatRequest:
        """Raises ApiError for what is not simulated."""
        if self.previous_response_id:
            raise ApiError("previous_response_id is not simulated: nothing is stored; send the whole conversation")
        items = [{"role": "user", "content": self.input}] if isinstance(self.input, str) else self.input
        system = [ChatMessage(role="system", content=self.instructions)] if self.instructions else []
        messages = [*system, *map(_message, items)]
        if not messages:
            raise ApiError("input is empty", param="input")
        shared = self.model_dump(include={"model", "stream", "tools", "tool_choice", "user", "priority", "cache_salt"})
        wanted = self.text.format if self.text else None
        limits = {"max_tokens": self.max_output_tokens, "response_format": wanted}
        return ChatRequest.model_validate({"messages": messages, **shared, **limits})


def _message(item: Json) -> ChatMessage:
    """A message, or a call of a tool or its result, as JSON. Raises ApiError for an image or file."""
    if item.get("type", "message") != "message":
        kept = {key: item[key] for key in ("name", "arguments", "output") if isinstance(item.get(key), str)}
        return ChatMessage(role="tool", content=" ".join(kept.values()))
    content = item.get("content")
    if isinstance(content, list):
        content = [
            {**part, "type": "text"} if isinstance(part, dict) and part.get("type") in _TEXTS else part
            for part in content
        ]
    try:
        return ChatMessage.model_validate({"role": item.get("role"), "content": content})
    except ValueError:
        raise ApiError(
            "input: each message needs a role and its content, text or a list of parts", param="input"
        ) from None


class ResponsesAnswer(TypedAnswer):
    """A response object, or its events, numbered."""

    def whole(self) -> Json:
        return self._response("incomplete" if self.is_cut else "completed", [self._item()])

    def opening(self) -> Iterator[Json]:
        self._numbers = count()
        started = self._response("in_progress", [])
        yield self._event("response.created", response=started)
        yield self._event("response.in_progress", response=started)
        yield self._event("response.output_item.added", output_index=0, item=self._item("in_progress"))
        yield self._event("response.content_part.added", **self._place(), part=_part(""))

    def delta(self, text: str) -> Json:
        return self._event("response.output_text.delta", **self._place(), delta=text, logprobs=[])

    def closing(self) -> Iterator[Json]:
        whole = self.whole()
        yield self._event("response.output_text.done", **self._place(), text=self.text, logprobs=[])
        yield self._event("response.content_part.done", **self._place(), part=_part(self.text))
        yield self._event("response.output_item.done", output_index=0, item=self._item())
        yield self._event(f"response.{whole['status']}", response=whole)

    def _event(self, kind: str, **more: object) -> Json:
        return {"type": kind, "sequence_number": next(self._numbers), **more}

    def _place(self) -> Json:
        return {"item_id": f"msg_{self.shape.id}", "output_index": 0, "content_index": 0}

    def _item(self, status: str = "") -> Json:
        content = [] if status else [_part(self.text)]
        status = status or ("incomplete" if self.is_cut else "completed")
        return {
            "id": f"msg_{self.shape.id}",
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        }

    def _response(self, status: str, output: list[Json]) -> Json:
        stream, prompt = self.stream, len(self.stream.job.prompt)
        usage = {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": stream.cached_tokens},
            "output_tokens": stream.num_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + stream.num_tokens,
        }
        return {
            "id": f"resp_{self.shape.id}",
            "object": "response",
            "created_at": self.shape.created,
            "status": status,
            "model": self.shape.model,
            "output": output,
            "usage": usage if output else None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "error": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
        }


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def add_responses(app: FastAPI, endpoint: Endpoint) -> None:
    @app.post("/v1/responses")
    async def responses(asked: ResponsesRequest, request: Request) -> Response:
        streams = submitted(endpoint, asked.as_chat(), request)
        return ResponsesAnswer(streams, endpoint.clock, Shape(model=endpoint.model, is_chat=True))
