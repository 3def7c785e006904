"""Anthropic's /v1/messages, as vLLM and SGLang serve it: text in, filler out."""

import json
from collections.abc import Iterator

from fastapi import FastAPI, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from files.documents import Json
from headcount.endpoint.requests import ApiError, ChatMessage, ChatRequest
from headcount.endpoint.responses import Shape
from headcount.endpoint.serving import Endpoint, submitted
from headcount.endpoint.typed_events import TypedAnswer


class _Turn(BaseModel):
    role: str = Field(max_length=64)
    content: str | list[Json]


class MessagesRequest(BaseModel):
    messages: list[_Turn] = Field(min_length=1)
    max_tokens: int
    model: str | None = None
    system: str | list[Json] | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = False
    tools: list[Json] | None = None
    tool_choice: Json | None = None
    metadata: Json | None = None

    def as_chat(self) -> ChatRequest:
        """Raises ApiError for what is not simulated."""
        system = [ChatMessage(role="system", content=_text(self.system))] if self.system else []
        turns = [ChatMessage(role=turn.role, content=_text(turn.content)) for turn in self.messages]
        user = (self.metadata or {}).get("user_id")
        asked = {
            "messages": [*system, *turns],
            "stop": self.stop_sequences,
            "user": user[:1024] if isinstance(user, str) else None,
        }
        same = self.model_dump(include={"model", "max_tokens", "stream", "tools", "tool_choice"})
        return ChatRequest.model_validate({**asked, **same})


class CountRequest(MessagesRequest):
    max_tokens: int = 1


def _text(content: str | list[Json]) -> str:
    """Tools' calls and results count as JSON. Raises ApiError for an image or document."""
    if isinstance(content, str):
        return content
    pieces = []
    for block in content:
        kind = block.get("type")
        if kind == "text" and isinstance(block.get("text"), str):
            pieces.append(block["text"])
        elif kind in ("tool_use", "thinking"):
            pieces.append(json.dumps(block.get("input", block.get("thinking"))))
        elif kind == "tool_result":
            result = block.get("content") or ""
            pieces.append(_text(result) if isinstance(result, str | list) else json.dumps(result))
        else:
            raise ApiError(f"content of type {str(kind)[:40]!r} is not simulated; send text", param="messages")
    return "".join(pieces)


class MessagesAnswer(TypedAnswer):
    """A message, or its events."""

    def whole(self) -> Json:
        return self._message([{"type": "text", "text": self.text}], **self._ends(), usage=self._usage())

    def opening(self) -> Iterator[Json]:
        usage = {**self._usage(), "output_tokens": 0}
        yield {"type": "message_start", "message": self._message([], stop_reason=None, stop_sequence=None, usage=usage)}
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}

    def delta(self, text: str) -> Json:
        return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}

    def closing(self) -> Iterator[Json]:
        yield {"type": "content_block_stop", "index": 0}
        yield {"type": "message_delta", "delta": self._ends(), "usage": self._usage()}
        yield {"type": "message_stop"}

    def _message(self, content: list[Json], **more: object) -> Json:
        head = {"id": f"msg_{self.shape.id}", "type": "message", "role": "assistant", "model": self.shape.model}
        return {**head, "content": content, **more}

    def _ends(self) -> Json:
        stop = self.stream.job.answer.stop_reason
        reason = "max_tokens" if self.is_cut else "stop_sequence" if stop else "end_turn"
        return {"stop_reason": reason, "stop_sequence": stop}

    def _usage(self) -> Json:
        return {"input_tokens": len(self.stream.job.prompt), "output_tokens": self.stream.num_tokens}


def add_messages(app: FastAPI, endpoint: Endpoint) -> None:
    @app.post("/v1/messages")
    async def messages(asked: MessagesRequest, request: Request) -> Response:
        streams = submitted(endpoint, asked.as_chat(), request)
        return MessagesAnswer(streams, endpoint.clock, Shape(model=endpoint.model, is_chat=True))

    @app.post("/v1/messages/count_tokens")
    async def count_tokens(asked: CountRequest) -> dict[str, int]:
        endpoint.check_model(asked.model)
        return {"input_tokens": len(endpoint.tokenizer.chat(asked.as_chat().turns, is_answered=True))}
