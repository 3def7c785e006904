"""What /v1/responses and /v1/messages have in common: one answer, whole or as events with names."""

import json
from abc import abstractmethod
from collections.abc import Iterator

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from files.documents import Json
from headcount.endpoint.requests import ApiError
from headcount.endpoint.responses import STREAM_HEADERS, Waiting, send_body


def named_event(data: Json) -> bytes:
    """A server-sent event whose name is its `type`."""
    return f"event: {data['type']}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


class TypedAnswer(Waiting):
    """An answer whose events have types; a shape says which stand before the text, carry it, and stand behind it."""

    @abstractmethod
    def whole(self) -> Json:
        """The complete answer."""

    @abstractmethod
    def opening(self) -> Iterator[Json]: ...

    @abstractmethod
    def delta(self, text: str) -> Json: ...

    @abstractmethod
    def closing(self) -> Iterator[Json]: ...

    @property
    def text(self) -> str:
        return "".join(self.stream.job.answer.words)

    @property
    def is_cut(self) -> bool:
        """Whether the answer ended at its longest."""
        return self.stream.job.answer.finish_reason == "length"

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.stream.job.is_streamed:
            await self._stream(send)
            return
        await self._wait_for_all()
        if self.failure:
            await JSONResponse(self._error(), 500)(scope, receive, send)
        elif self.stream.is_done:
            await JSONResponse(self.whole())(scope, receive, send)
            self.clock.left(self.stream.last_s)

    async def _stream(self, send: Send) -> None:
        stream = self.stream
        await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
        await send_body(send, b"".join(map(named_event, self.opening())))
        while not (stream.is_gone or self.failure):
            stream.changed.clear()
            words, token_s = stream.take()
            if words:
                await send_body(send, named_event(self.delta("".join(words))))
                self.clock.left(token_s)
            if stream.is_done and stream.num_taken == stream.num_tokens:
                break
            await stream.changed.wait()
        last = [{"type": "error", **self._error()}] if self.failure else self.closing() if stream.is_done else []
        await send({"type": "http.response.body", "body": b"".join(map(named_event, last)), "more_body": False})

    def _error(self) -> Json:
        return ApiError(self.failure, status=500, kind="InternalServerError").body()
