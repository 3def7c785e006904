"""What every request passes: the key, the size of its body, when it came."""

import hmac
import json
from asyncio import get_running_loop
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headcount.endpoint.requests import ApiError

OPEN_PATHS = ("/health", "/ping", "/version", "/metrics")  # without a key, as in vLLM
CAME = "headcount.came"  # when a request came, on the loop's clock


class _TooLargeError(Exception):
    """The body goes on beyond what is allowed."""


@dataclass(frozen=True)
class Guard:
    """Lets requests through that know the key, if there is one, and are not too large."""

    app: ASGIApp
    api_key: str | None
    most_bytes: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope[CAME] = get_running_loop().time()
        headers = dict(scope["headers"])
        if self.api_key is not None and scope["path"] not in OPEN_PATHS and not self._knows_key(headers):
            await _refuse(send, ApiError("Unauthorized", status=401, kind="Unauthorized"))
            return
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.most_bytes:
            await _refuse(send, self._too_large())
            return
        try:
            await self.app(scope, self._bounded(receive), send)
        except _TooLargeError:
            await _refuse(send, self._too_large())

    def _knows_key(self, headers: dict[bytes, bytes]) -> bool:
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        return kind.lower() == b"bearer" and hmac.compare_digest(given, str(self.api_key).encode())

    def _bounded(self, receive: Receive) -> Receive:
        """The body, as long as it is not too long; its length need not have been said."""
        size = 0

        async def bounded() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self.most_bytes:
                raise _TooLargeError
            return message

        return bounded

    def _too_large(self) -> ApiError:
        return ApiError(f"the body is larger than {self.most_bytes:,} bytes; --max-body allows more", status=413)


async def _refuse(send: Send, error: ApiError) -> None:
    """After which the connection ends, since the body was not read."""
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(error.body()).encode()})
