"""Answers in OpenAI's shape, whole or token by token as server-sent events."""

import asyncio
import json
import math
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
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
    num_logprobs: int | None = None  # tokens beside each one; None: without log probabilities
    words: Sequence[str] = ()  # of the filler
    stop_name: str = "stop_reason"  # under which the text that ended an answer stands
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def envelope(self, choices: list[dict[str, object]], **more: object) -> dict[str, object]:
        kind = "chat.completion" if self.is_chat else "text_completion"
        kind += ".chunk" if self.is_chat and "usage" not in more else ""
        prefix = "chatcmpl" if self.is_chat else "cmpl"
        head = {"id": f"{prefix}-{self.id}", "object": kind, "created": self.created, "model": self.model}
        return {**head, "choices": choices, **more}

    def whole(self, streams: Sequence[Stream]) -> Json:
        return self.envelope(
            [self._choice(place, stream) for place, stream in enumerate(streams)], usage=usage_of(streams)
        )

    def _choice(self, place: int, stream: Stream) -> dict[str, object]:
        answer = stream.job.answer
        text = "".join(answer.words)
        said = {"message": {"role": "assistant", "content": text}} if self.is_chat else {"text": text}
        logprobs = self.logprobs(answer.words, 0)
        return {
            "index": place,
            **said,
            "logprobs": logprobs,
            "finish_reason": answer.finish_reason,
            self.stop_name: answer.stop_reason,
        }

    def chunk(
        self,
        text: str,
        *,
        place: int = 0,
        logprobs: Json | None = None,
        reason: str | None = None,
        stop: str | None = None,
        first: bool = False,
    ) -> dict[str, object]:
        """A part of the answer at that place in `choices`."""
        role = {"role": "assistant"} if first else {}
        said: dict[str, object] = {"delta": {**role, "content": text}} if self.is_chat else {"text": text}
        ends = {"logprobs": logprobs, "finish_reason": reason, self.stop_name: stop}
        return self.envelope([{"index": place, **said, **ends}])

    def logprobs(self, words: Sequence[str], offset: int) -> Json | None:
        """Of filler, whose words are equally likely; `offset`: characters of the answer before them."""
        if self.num_logprobs is None:
            return None
        others = [word for word in self.words if word not in words[:1]][: max(self.num_logprobs - 1, 0)]
        likely = -math.log(max(len(self.words), 1))
        if self.is_chat:
            return {"content": [self._token(word, likely, others) for word in words]}
        starts = np.cumsum([offset, *map(len, words)])[: len(words)].tolist()
        tops = [dict.fromkeys([word, *others], likely) for word in words] if self.num_logprobs else None
        return {
            "text_offset": starts,
            "token_logprobs": [likely] * len(words),
            "tokens": list(words),
            "top_logprobs": tops,
        }

    def _token(self, word: str, likely: float, others: Sequence[str]) -> Json:
        tops = [word, *others] if self.num_logprobs else []
        own, *top = ({"token": each, "logprob": likely, "bytes": list(each.encode())} for each in [word, *tops])
        return {**own, "top_logprobs": top}


def usage_of(streams: Sequence[Stream], counts: Sequence[int] | None = None) -> dict[str, object]:
    """Tokens of each prompt once, and of all answers, or so many of them."""
    prompts = {id(stream.job.prompt): len(stream.job.prompt) for stream in streams}
    prompt, completion = sum(prompts.values()), sum(counts or [stream.num_tokens for stream in streams])
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}


def event(data: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


class Waiting(Response, ABC):
    """A response that waits for tokens, and tells the fleet when its client hangs up."""

    def __init__(self, streams: Sequence[Stream], clock: Clock, shape: Shape) -> None:
        self.streams, self.clock, self.shape = streams, clock, shape
        self.background = None
        for stream in streams[1:]:  # whichever has news wakes the response
            stream.changed = streams[0].changed

    @property
    def stream(self) -> Stream:
        """The first answer, of responses that have one alone."""
        return self.streams[0]

    @property
    def failure(self) -> str:
        return next((stream.failure for stream in self.streams if stream.failure), "")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watcher = asyncio.ensure_future(self._watch(receive))
        try:
            await self._answer(scope, receive, send)
        finally:
            watcher.cancel()
            self._hang_up()

    async def _watch(self, receive: Receive) -> None:
        message: Message = {"type": ""}
        while message["type"] != "http.disconnect":
            message = await receive()
        self._hang_up()

    def _hang_up(self) -> None:
        for stream in self.streams:
            self.clock.hang_up(stream)

    async def _wait_for_all(self) -> None:
        """Until nothing more will come of any answer."""
        while not all(stream.is_over for stream in self.streams):
            self.stream.changed.clear()
            await self.stream.changed.wait()

    @abstractmethod
    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what comes, until nothing more will."""


class WholeAnswer(Waiting):
    """One JSON object once the last token is there."""

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._wait_for_all()
        if self.failure:
            error = ApiError(self.failure, status=500, kind="InternalServerError")
            await JSONResponse(error.body(), 500)(scope, receive, send)
        elif all(stream.is_done for stream in self.streams):
            await JSONResponse(self.shape.whole(self.streams))(scope, receive, send)
            self.clock.left(max(stream.last_s for stream in self.streams))


class StreamedAnswer(Waiting):
    """A chunk for each token, or for those that came while the one before was sent, as vLLM does."""

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        shape, streams = self.shape, self.streams
        await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
        if shape.is_chat:
            for place in range(len(streams)):
                await send_body(send, event(self._with_usage(shape.chunk("", place=place, first=True))))
        frames, open_places = [self._frame(place) for place in range(len(streams))], list(range(len(streams)))
        while not (self.failure or all(stream.is_gone for stream in streams)):
            self.stream.changed.clear()
            for place in open_places:
                await self._send_news(send, place, *frames[place])
            open_places = [place for place in open_places if streams[place].num_taken < self._length(place)]
            if not open_places:
                break
            await self.stream.changed.wait()
        await self._close(send)

    def _length(self, place: int) -> int:
        return len(self.streams[place].job.answer.words)

    async def _send_news(self, send: Send, place: int, before: bytes, after: bytes) -> None:
        """What came of one answer since the last time."""
        stream = self.streams[place]
        start = stream.num_taken
        words, token_s = stream.take()
        if not words:
            return
        is_last, shape, text = stream.num_taken == self._length(place), self.shape, "".join(words)
        if is_last or shape.usage_each or shape.num_logprobs is not None:
            answer = stream.job.answer
            offset = sum(map(len, answer.words[:start])) if shape.num_logprobs is not None else 0
            chunk = shape.chunk(
                text,
                place=place,
                logprobs=shape.logprobs(words, offset),
                reason=answer.finish_reason if is_last else None,
                stop=answer.stop_reason if is_last else None,
            )
            await send_body(send, event(self._with_usage(chunk)))
        else:
            await send_body(send, before + json.dumps(text).encode() + after)
        self.clock.left(token_s)

    def _frame(self, place: int) -> tuple[bytes, bytes]:
        """What stands before and after the text of every chunk but the last."""
        mark = "\0"
        before, after = event(self.shape.chunk(mark, place=place)).split(json.dumps(mark).encode())
        return before, after

    def _with_usage(self, chunk: dict[str, object]) -> dict[str, object]:
        if not self.shape.usage_each:
            return chunk
        return chunk | {"usage": usage_of(self.streams, [stream.num_taken for stream in self.streams])}

    async def _close(self, send: Send) -> None:
        last = b""
        if self.failure:
            last = event(ApiError(self.failure, status=500, kind="InternalServerError").body())
        elif self.shape.include_usage and all(stream.is_done for stream in self.streams):
            last = event(self.shape.envelope([]) | {"usage": usage_of(self.streams)})
        await send({"type": "http.response.body", "body": last + DONE, "more_body": False})


async def send_body(send: Send, body: bytes) -> None:
    """A part of a response that goes on."""
    await send({"type": "http.response.body", "body": body, "more_body": True})
