"""HTTP whose headers have bounds of size, number and time, before any request is let in; uvicorn itself has none."""

from asyncio import BaseTransport, TimerHandle, Transport
from http import HTTPStatus
from typing import Any, Final, cast

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headcount.web.guard import refuse

MOST_BYTES: Final = 64 * 1024  # of a request's line and headers together
MOST_HEADERS: Final = 100
HEADERS_WITHIN_S: Final = 10.0  # all headers of a request
REFUSED_OPEN_S: Final = 2.0  # what a refused client still sends is dropped: closing at once would lose the answer
TOO_LARGE: Final = f"a request's headers may have {MOST_BYTES:,} bytes in all, and be {MOST_HEADERS}; send fewer"


def server_config(app: ASGIApp, **settings: Any) -> uvicorn.Config:
    """Settings of a server with these bounds, and without WebSockets."""
    return uvicorn.Config(app, http=BoundedProtocol, ws="none", log_level="warning", **settings)


class BoundedProtocol(HttpToolsProtocol):
    """One connection: 431 for headers that are too large or too many, 408 for those that come too slowly."""

    unread_bytes = 0  # since the parser told of headers, or of a part of a body: it keeps all that
    is_between = True  # no headers of the next request are known
    is_refused = False
    slow: TimerHandle | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(cast(Transport, transport))
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.is_refused:
            return
        if self.is_between and self.slow is None:
            self._await_headers()
        self.unread_bytes += len(data)
        super().data_received(data)
        if self.unread_bytes > MOST_BYTES:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, TOO_LARGE)

    def on_headers_complete(self) -> None:
        self._headers_came()
        self.is_between, self.unread_bytes = False, 0
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > MOST_BYTES or len(self.headers) > MOST_HEADERS:
            self.app = _too_large
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self.unread_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.is_between, self.unread_bytes = True, 0
        super().on_message_complete()

    def _await_headers(self) -> None:
        self.slow = self.loop.call_later(HEADERS_WITHIN_S, self._are_slow)

    def _headers_came(self) -> None:
        if self.slow is not None:
            self.slow.cancel()
        self.slow = None

    def _are_slow(self) -> None:
        if self._is_answering:
            self._await_headers()
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"headers must come within {HEADERS_WITHIN_S:g} s")

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        """Say so, unless an answer is on its way, and close the connection."""
        self.is_refused = True
        self._headers_came()
        if self.transport.is_closing():
            return
        if self._is_answering:
            self.transport.close()
            return
        body = f"headcount: {why}\n"
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode())
        self.transport.write_eof()
        self.loop.call_later(REFUSED_OPEN_S, self.transport.close)


async def _too_large(scope: Scope, receive: Receive, send: Send) -> None:
    await refuse(send, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, TOO_LARGE)
