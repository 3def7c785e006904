"""What every request passes: the key, its server's name, the size of its body, when it came."""

import hmac
import json
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from headcount.endpoint.clock import Clock
from headcount.endpoint.requests import ApiError
from headcount.web.guard import bounded, names_this_machine

OPEN_PATHS = ("/health", "/ping", "/version", "/metrics")  # without a key, as in vLLM
CAME = "headcount.came"  # when a request came, by Clock.now()


@dataclass(frozen=True)
class Guard:
    """Lets requests through that know the key and are not too large.

    Without a key they must name this machine itself, so that no website's name can lead here (DNS rebinding).
    """

    app: ASGIApp
    api_key: str | None
    most_bytes: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope[CAME] = Clock.now()
        headers = dict(scope["headers"])
        if self.api_key is None and not names_this_machine(headers.get(b"host", b"").decode("latin-1")):
            why = "without a key only 127.0.0.1, localhost and [::1] are answered; start the server with --api-key"
            await _refuse(send, ApiError(why, status=421))
            return
        if self.api_key is not None and scope["path"] not in OPEN_PATHS and not self._knows_key(headers):
            await _refuse(send, ApiError("Unauthorized", status=401, kind="Unauthorized"))
            return
        too_large = HTTPException(413, f"the body is larger than {self.most_bytes:,} bytes; --max-body allows more")
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.most_bytes:
            await _refuse(send, ApiError(too_large.detail, status=413))
            return
        await self.app(scope, bounded(receive, self.most_bytes, too_large), send)

    def _knows_key(self, headers: dict[bytes, bytes]) -> bool:
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        return kind.lower() == b"bearer" and hmac.compare_digest(given, str(self.api_key).encode())


async def _refuse(send: Send, error: ApiError) -> None:
    """After which the connection ends, since the body was not read."""
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(error.body()).encode()})
