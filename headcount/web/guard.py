"""What every request passes: who asks, from which page, how much is sent; and the headers of every response."""

import hmac
import math
import re
from collections import OrderedDict, deque
from contextvars import ContextVar
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LONGEST_QUERY: Final = 32_000  # bytes of a link
COOKIE: Final = "headcount-token"
REPORT_POLICY: Final = (  # a report holds its own script and style, and is shown without rights
    "sandbox allow-scripts allow-popups allow-downloads; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:; font-src data:; frame-ancestors 'self'"
)
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_OWN_NAME: Final = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::(\d+))?")


MINUTE_S: Final = 60.0
MOST_CLIENTS: Final = 10_000  # that are remembered
IS_PUBLIC: Final = ContextVar("is_public", default=False)
"""Whether the page that answers now is open to anyone."""


class AskRate:
    """How many questions each client has asked in the last minute, by its address."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._asked: OrderedDict[str, deque[float]] = OrderedDict()

    def check(self, client: str, now_s: float) -> None:
        """Count a question. Raises HTTPException where it is one too many."""
        times = self._asked.pop(client, None) or deque()
        while times and times[0] <= now_s - MINUTE_S:
            times.popleft()
        self._asked[client] = times
        while len(self._asked) > MOST_CLIENTS:
            self._asked.popitem(last=False)
        if len(times) >= self.most:
            wait_s = math.ceil(times[0] + MINUTE_S - now_s)
            told = f"this public page answers {self.most} new questions a minute; ask again in {wait_s} s"
            raise HTTPException(429, told, headers={"retry-after": str(wait_s)})
        times.append(now_s)


@dataclass(frozen=True)
class Guard:
    """Lets requests through to the page.

    Without a token only requests to this machine's own names come in, so that no website's name can lead here (DNS
    rebinding), unless the page is public. A change must come from a page of this server (CSRF). With a token every
    request must know it.
    """

    app: ASGIApp
    port: int
    token: str | None
    most_bytes: int  # of one request's body
    is_public: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        IS_PUBLIC.set(self.is_public)
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            if (place := self._admitted(scope, headers)) is not None:
                return await _redirect(send, place, str(self.token))
        except HTTPException as error:
            return await refuse(send, error.status_code, error.detail)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = _with_headers(message["headers"])
            await send(message)

        return await self.app(scope, bounded(receive, self.most_bytes, self._too_large()), sent)

    def _admitted(self, scope: Scope, headers: dict[str, str]) -> str | None:
        """Where to go next, for a link that brings the token. Raises HTTPException."""
        host = headers.get("host", "")
        if self.token is None and not self.is_public and not names_this_machine(host, self.port):
            raise HTTPException(421, f"this server answers at http://127.0.0.1:{self.port} alone")
        if len(scope["query_string"]) > LONGEST_QUERY:
            raise HTTPException(414, f"the link is longer than {LONGEST_QUERY:,} bytes")
        if scope["method"] not in ("GET", "HEAD"):
            self._check_origin(scope, headers, host)
        if int(headers.get("content-length", "0") or 0) > self.most_bytes:
            raise self._too_large()
        return self._check_token(scope, headers) if self.token is not None else None

    def _check_origin(self, scope: Scope, headers: dict[str, str], host: str) -> None:
        """Browsers say which page sends a form; another program may leave both headers out."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        own = (f"http://{host}", f"https://{host}")
        if (origin is not None and origin not in own) or site not in (None, "same-origin", "none"):
            raise HTTPException(403, "another website sent this; open the page itself and ask there")

    def _check_token(self, scope: Scope, headers: dict[str, str]) -> str | None:
        assert self.token is not None
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = next((value for name, value in pairs if name == "token"), None)
        if given is not None and scope["method"] == "GET" and _same(given, self.token):
            rest = urlencode([(name, value) for name, value in pairs if name != "token"])
            return "/" + quote(str(scope["path"]).lstrip("/\\")) + (f"?{rest}" if rest else "")
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        if not (_same(_cookie(headers), self.token) or _same(bearer, self.token)):
            raise HTTPException(401, "this page needs its token: open the link that 'headcount web' printed")
        return None

    def _too_large(self) -> HTTPException:
        most = f"{self.most_bytes / 1e6:,.0f} MB"
        return HTTPException(413, f"the files are larger than {most}; 'headcount web --max-upload' allows more")


def names_this_machine(host: str, port: int | None = None) -> bool:
    """Whether a Host header names this machine itself, and no other port than `port`, if that is given."""
    found = _OWN_NAME.fullmatch(host)
    return found is not None and (port is None or found[1] in (None, str(port)))


def bounded(receive: Receive, most_bytes: int, too_large: HTTPException) -> Receive:
    """The body, which raises `too_large` where it goes on too long; its length need not have been said."""
    size = 0

    async def part() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > most_bytes:
            raise too_large
        return message

    return part


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def _cookie(headers: dict[str, str]) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""


def _with_headers(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """What is set already stays."""
    known = {name.lower() for name, _ in headers}
    more = {**_HEADERS, "content-security-policy": _POLICY}
    added = [(name.encode(), value.encode()) for name, value in more.items() if name.encode() not in known]
    return [*headers, *added]


async def refuse(send: Send, status: int, why: str) -> None:
    """A short answer in plain text, after which the connection ends."""
    headers = _with_headers([(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")])
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"headcount: {why}\n".encode()})


async def _redirect(send: Send, place: str, token: str) -> None:
    """The token moves from the link, which others may read, into a cookie."""
    cookie = f"{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict"
    headers = [(b"location", place.encode("latin-1")), (b"set-cookie", cookie.encode())]
    await send({"type": "http.response.start", "status": 303, "headers": _with_headers(headers)})
    await send({"type": "http.response.body", "body": b""})
