"""Answers in OpenAI's shape, whole or token by token as server-sent events."""

import asyncio
import json
import time
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from files.documents import Json
from headcount.endpoint.clock import Clock
from headcount.endpoint.emulation import Stream
from headcount.endpoint.requests import ApiError

STREAM_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How the answer to one request is written."""

    model: str
    is_chat: bool
    include_usage: bool = False
    usage_each: bool = False  # vLLM's `continuous_usage_stats`
    stop_name: str = "stop_reason"  # under which the text that ended an answer stands
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def envelope(self, choices: list[dict[str, object]], **more: object) -> dict[str, object]:
        kind = "chat.completion" if self.is_chat else "text_completion"
        kind += ".chunk" if self.is_chat and "usage" not in more else ""
        prefix = "chatcmpl" if self.is_chat else "cmpl"
        head = {"id": f"{prefix}-{self.id}", "object": kind, "created": self.created, "model": self.model}
        return {**head, "choices": choices, **more}

    def whole(self, stream: Stream, usage: dict[str, object]) -> Json:
        text, answer = "".join(stream.job.answer.words), stream.job.answer
        said = {"message": {"role": "assistant", "content": text}} if self.is_chat else {"text": text}
        ends = {"logprobs": None, "finish_reason": answer.finish_reason, self.stop_name: answer.stop_reason}
        return self.envelope([{"index": 0, **said, **ends}], usage=usage)

    def chunk(
        self, text: str, *, reason: str | None = None, stop: str | None = None, first: bool = False
    ) -> dict[str, object]:
        role = {"role": "assistant"} if first else {}
        said: dict[str, object] = {"delta": {**role, "content": text}} if self.is_chat else {"text": text}
        return self.envelope([{"index": 0, **said, "logprobs": None, "finish_reason": reason, self.stop_name: stop}])


def usage_of(stream: Stream, num_tokens: int) -> dict[str, object]:
    prompt = len(stream.job.prompt)
    return {"prompt_tokens": prompt, "total_tokens": prompt + num_tokens, "completion_tokens": num_tokens}


def event(data: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


class Waiting(Response, ABC):
    """A response that waits for tokens, and tells the fleet when its client hangs up."""

    def __init__(self, stream: Stream, clock: Clock, shape: Shape) -> None:
        self.stream, self.clock, self.shape = stream, clock, shape
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watcher = asyncio.ensure_future(self._watch(receive))
        try:
            await self._answer(scope, receive, send)
        finally:
            watcher.cancel()
            self.clock.hang_up(self.stream)

    async def _watch(self, receive: Receive) -> None:
        message: Message = {"type": ""}
        while message["type"] != "http.disconnect":
            message = await receive()
        self.clock.hang_up(self.stream)

    @abstractmethod
    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what comes, until nothing more will."""


class WholeAnswer(Waiting):
    """One JSON object once the last token is there."""

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream = self.stream
        while not stream.is_over:
            stream.changed.clear()
            await stream.changed.wait()
        if stream.failure:
            error = ApiError(stream.failure, status=500, kind="InternalServerError")
            await JSONResponse(error.body(), 500)(scope, receive, send)
        elif stream.is_done:
            found = self.shape.whole(stream, usage_of(stream, stream.num_tokens))
            await JSONResponse(found)(scope, receive, send)
            self.clock.left(stream.last_s)


class StreamedAnswer(Waiting):
    """A chunk for each token, or for those that came while the one before was sent, as vLLM does."""

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream, shape = self.stream, self.shape
        await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
        if shape.is_chat:
            await _send(send, event(self._with_usage(shape.chunk("", first=True))))
        before, after = self._frame()
        while not (stream.is_gone or stream.failure):
            stream.changed.clear()
            (words, token_s), is_last = stream.take(), stream.is_done
            if words:
                text = "".join(words)
                if is_last or shape.usage_each:
                    await _send(send, event(self._with_usage(self._chunk(text, is_last=is_last))))
                else:
                    await _send(send, before + json.dumps(text).encode() + after)
                self.clock.left(token_s)
            if is_last:
                break
            await stream.changed.wait()
        await self._close(send)

    def _frame(self) -> tuple[bytes, bytes]:
        """What stands before and after the text of every chunk but the last."""
        mark = "\0"
        before, after = event(self.shape.chunk(mark)).split(json.dumps(mark).encode())
        return before, after

    def _chunk(self, text: str, *, is_last: bool) -> dict[str, object]:
        answer = self.stream.job.answer
        if not is_last:
            return self.shape.chunk(text)
        return self.shape.chunk(text, reason=answer.finish_reason, stop=answer.stop_reason)

    def _with_usage(self, chunk: dict[str, object]) -> dict[str, object]:
        return chunk | {"usage": usage_of(self.stream, self.stream.num_taken)} if self.shape.usage_each else chunk

    async def _close(self, send: Send) -> None:
        last = b""
        if self.stream.failure:
            last = event(ApiError(self.stream.failure, status=500, kind="InternalServerError").body())
        elif self.stream.is_done and self.shape.include_usage:
            usage = usage_of(self.stream, self.stream.num_tokens)
            last = event(self.shape.envelope([]) | {"usage": usage})
        await send({"type": "http.response.body", "body": last + DONE, "more_body": False})


async def _send(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})
