"""A server's answer comes within its limits from the server that was asked, or one line says why not."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from files.http import fetch_text
from files.limits import limits_raised
from files.reading import InputError

Result = Callable[[socket.socket], None]
OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def serve() -> Iterator[Callable[[Result], str]]:
    """A server that does with each connection what it is told; gives its address."""
    listeners = []

    def start(answer: Result) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with client, suppress(OSError):
                        client.recv(10_000)
                        answer(client)

        threading.Thread(target=accept, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"

    yield start
    for listener in listeners:
        listener.close()


def saying(*pieces: bytes, every_s: float = 0.0) -> Result:
    def answer(client: socket.socket) -> None:
        for piece in pieces:
            client.sendall(piece)
            time.sleep(every_s)

    return answer


def test_an_answer_comes_as_text(serve: Callable[[Result], str]) -> None:
    for body in (
        b"Content-Length: 5\r\n\r\nhello",
        b"\r\nhello",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ):
        assert fetch_text(serve(saying(OK + body))) == "hello"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (saying(b"SSH-2.0-OpenSSH_9.6\r\n"), "as a server of HTTP does (SSH-2.0-OpenSSH_9.6); is this its port?"),
        (saying(b"\x00\xff\n\n\n"), "does not answer as a server of HTTP does"),
        (saying(), "does not answer as a server of HTTP does (Remote end closed connection"),
        (saying(b"HTTP/1.1 500 No\r\n\r\n"), "answers 500 No"),
        (saying(b"HTTP/1.1 404 " + b"x" * 9000 + b"\r\n\r\n"), "answers 404 xxx"),
        (saying(b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n"),
         "answers 302 Found and leads to file:///etc/passwd; give the address of the server itself"),
        (saying(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello"), "does not answer as a server of HTTP does"),
        (saying(OK + b"Content-Length: 100\r\n\r\nhello"), "it ended 95 bytes early"),
        (saying(OK + b"Content-Length: 5000000\r\n\r\n" + b" " * 5_000_000),
         "more than 1,000,000 bytes (limit answer_bytes; --limit answer_bytes=N raises it)"),
        (saying(OK + b"a: b\r\n" * 200), "does not answer as a server of HTTP does"),
        (saying(OK + b"a: " + b"b" * 70_000), "does not answer as a server of HTTP does"),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_told_in_one_line(serve: Callable[[Result], str], answer: Result, told: str) -> None:
    address = serve(answer)
    with pytest.raises(InputError) as error, limits_raised(answer_bytes=1e6):
        fetch_text(address)
    assert str(error.value).startswith(address) and told in str(error.value)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


@pytest.mark.slow
@pytest.mark.parametrize(
    "begin", [b"", OK, OK + b"Content-Length: 99\r\n\r\n", OK + b"\r\n"], ids=["status", "head", "body", "endless"]
)
def test_an_answer_of_a_byte_now_and_then_ends_at_its_limit(serve: Callable[[Result], str], begin: bytes) -> None:
    address = serve(saying(begin, *[b"x"] * 40, every_s=0.1))
    begin_s = time.monotonic()
    with (
        pytest.raises(InputError, match=r"has not ended its answer after 0.5 s \(limit answer_s"),
        limits_raised(answer_s=0.5),
    ):
        fetch_text(address)
    assert time.monotonic() - begin_s < 3
    with pytest.raises(InputError, match=r"has not ended its answer after 0.3 s"):
        fetch_text(address, most_s=0.3)


def test_who_is_not_there_is_told(serve: Callable[[Result], str]) -> None:
    plain = serve(saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    for address, told in (
        ("http://127.0.0.1:1/metrics", "cannot be reached (Connection refused)"),
        ("http://host.invalid/metrics", "cannot be reached"),
        ("http://" + "a" * 300 + "/metrics", "is this its port?"),
        (plain.replace("http:", "https:"), "cannot be reached ([SSL"),
        (plain + " x", "is not the address of a server"),
        (plain + "/ü", "is not the address of a server"),
        ("http://a b/metrics", "is not the address of a server"),
        ("http://host:99999/", "is not the address of a server"),
        ("http://[::1/", "is not the address of a server"),
        ("http:///metrics", "is not the address of a server"),
        ("file:///etc/passwd", "is not the address of a server"),
    ):
        with pytest.raises(InputError) as error:
            fetch_text(address)
        assert told in str(error.value)
