"""A server's answer: bounded in time and size, from the host that was asked and no other."""

import re
import socket
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from threading import Event, Timer
from urllib.parse import SplitResult, urlsplit

from files.errors import HeadcountError
from files.limits import how_to_raise, limits
from files.names import one_line, shortened
from files.reading import InputError


def fetch_text(address: str, *, most_s: float | None = None) -> str:
    """What a server answers at an address of HTTP, within `most_s` where that is less than the limit for an answer.

    Raises InputError with the reason where there is no such answer; a redirection is not followed.
    """
    limit_s = min(limits().answer_s, most_s or limits().answer_s)
    parts = server_address(address)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=limit_s)
    is_late, sockets = Event(), list[socket.socket]()
    timer = Timer(limit_s, _give_up, (connection, sockets, is_late))  # a timeout is of each piece of an answer
    timer.daemon = True
    timer.start()
    try:
        status, reason, text = _asked(connection, sockets, (parts.path or "/") + (parts.query and f"?{parts.query}"))
    except (OSError, HTTPException, ValueError) as error:
        reason = shortened(one_line(getattr(error, "strerror", None) or str(error)), 100)
        if not is_late.is_set():
            if isinstance(error, OSError) and not isinstance(error, HTTPException):
                told = f"cannot be reached ({reason}); is the server up, and is this its port?"
            else:
                told = f"does not answer as a server of HTTP does ({reason}); is this its port?"
            raise InputError(f"{shortened(address, 300)} {told}") from None
    finally:
        timer.cancel()
        connection.close()
    if is_late.is_set():
        raise InputError(
            f"{shortened(address, 300)} has not ended its answer after {limit_s:g} s {how_to_raise('answer_s')}"
        )
    if status != 200:
        raise InputError(f"{shortened(address, 300)} answers {status} {shortened(one_line(reason), 100)}")
    return text


def server_address(given: str) -> SplitResult:
    """The parts of a server's address. Raises InputError where it is none of HTTP."""
    try:
        parts = urlsplit(given)
        if re.fullmatch("https?://[!-~]+", given) and parts.hostname and parts.port != 0:
            return parts
    except ValueError:  # brackets of an IPv6 address, a port that is none
        pass
    told = shortened(one_line(given), 80)
    raise InputError(f"'{told}' is not the address of a server; give one such as http://localhost:8000")


def _asked(connection: HTTPConnection, sockets: list[socket.socket], path: str) -> tuple[int, str, str]:
    connection.connect()
    sockets.append(connection.sock)
    connection.request("GET", path, headers={"Accept": "text/plain", "Connection": "close"})
    answer = connection.getresponse()
    reason = answer.reason
    if 300 <= answer.status < 400:
        reason += f" and leads to {answer.getheader('Location', 'nowhere')}; give the address of the server itself"
    most = int(limits().answer_bytes)
    body = answer.read(most + 1)
    if len(body) > most:
        raise HeadcountError(f"more than {most:,} bytes {how_to_raise('answer_bytes')}")
    if answer.length:
        raise HeadcountError(f"it ended {answer.length:,} bytes early")
    return answer.status, reason, body.decode("utf-8", errors="replace")


def _give_up(connection: HTTPConnection, sockets: list[socket.socket], is_late: Event) -> None:
    """Ends what waits for a piece."""
    is_late.set()
    for each in (*sockets, connection.sock):
        with suppress(OSError, AttributeError):
            each.shutdown(socket.SHUT_RDWR)
