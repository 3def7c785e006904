"""A hostile client's headers: large, many, slow, or where trailers are. Real sockets, of both servers."""

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from headcount.cli.listening import taken
from headcount.web import bounded_http
from headcount.web.bounded_http import MOST_BYTES, MOST_HEADERS, server_config

BEGIN = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"


async def count_body(scope: Any, receive: Any, send: Any) -> None:
    """Answers with how many bytes came."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    text = str(size).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(text))]})
    await send({"type": "http.response.body", "body": text})


@pytest.fixture
def port() -> Iterator[int]:
    """Of a server that runs in a thread."""
    place = taken("127.0.0.1", 0)
    server = uvicorn.Server(server_config(count_body, lifespan="off"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[place])), daemon=True)
    thread.start()
    yield place.getsockname()[1]
    server.should_exit = True
    thread.join(10)
    place.close()
    assert not thread.is_alive()


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with closing(socket.create_connection(("127.0.0.1", port), timeout=10)) as client:
        yield client


def sent(client: socket.socket, parts: Any) -> None:
    """As much as the server takes."""
    try:
        for part in parts:
            client.sendall(part)
    except (BrokenPipeError, ConnectionResetError):
        pass


def answer(client: socket.socket) -> tuple[int, bytes]:
    """Status and body. Raises ConnectionError where there is none."""
    response = HTTPResponse(client)
    response.begin()
    return response.status, response.read()


def status(client: socket.socket, *parts: bytes) -> int:
    sent(client, parts)
    return answer(client)[0]


@pytest.mark.parametrize(
    "head",
    [
        BEGIN + b"x: " + b"a" * (MOST_BYTES + 1) + b"\r\n\r\n",
        BEGIN + b"x: " + b"a" * (MOST_BYTES + 1),  # without an end
        BEGIN + b"a" * (MOST_BYTES + 1),
        b"GET /" + b"a" * (MOST_BYTES + 1),
        BEGIN + b"x: %s\r\n" % (b"a" * 999) * 70 + b"\r\n",
        BEGIN + b"x: a\r\n" * MOST_HEADERS + b"\r\n",
    ],
)
def test_headers_that_are_too_large_or_too_many_get_431(port: int, head: bytes) -> None:
    with connected(port) as client:
        assert status(client, head) == 431
        assert client.recv(1) == b""


def test_headers_within_the_bounds_are_let_in(port: int) -> None:
    heads = [
        BEGIN + b"x: " + b"a" * (MOST_BYTES - 100) + b"\r\n\r\n",
        BEGIN + b"x: a\r\n" * (MOST_HEADERS - 1) + b"\r\n",
    ]
    with connected(port) as client:  # one connection, whose bounds begin anew
        for head in heads * 2:
            assert status(client, head) == 200


def test_bodies_have_no_such_bound(port: int) -> None:
    size = 100 * MOST_BYTES
    with connected(port) as client:
        sent(client, [b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % size, b"x" * size])
        assert answer(client) == (200, str(size).encode())
        sent(client, [CHUNKED.removesuffix(b"0\r\n"), b"1\r\nx\r\n" * size, b"0\r\n\r\n"])
        assert answer(client) == (200, str(size + 1).encode())


def test_endless_trailers_end_the_connection(port: int) -> None:
    with connected(port) as client:
        sent(client, [CHUNKED, b"x: ", *[b"a" * MOST_BYTES] * 100])
        with pytest.raises(ConnectionError):
            answer(client)


@pytest.mark.parametrize("begins", [b"", b"\r\n", b"GET / HT", BEGIN])
@pytest.mark.parametrize("is_second", [False, True])
def test_headers_that_come_slowly_get_408(
    port: int, begins: bytes, is_second: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_http, "HEADERS_WITHIN_S", 0.3)
    with connected(port) as client:
        if is_second:
            assert status(client, BEGIN + b"\r\n") == 200
            begins = begins or b"\r\n"  # an idle connection may stay for uvicorn's five seconds
        start = time.monotonic()
        assert status(client, begins) == 408
        assert 0.2 < time.monotonic() - start < 2
        assert client.recv(1) == b""


WEB = ("web",)
EMULATE = ("emulate", "--model", "llama-3.1-8b", "--gpu", "h100-sxm")


@pytest.mark.slow
@pytest.mark.parametrize("command", [WEB, EMULATE], ids=lambda command: command[0])
def test_a_hostile_client_neither_stalls_others_nor_takes_memory(command: tuple[str, ...]) -> None:
    with closing(taken("127.0.0.1", 0)) as place:
        port = place.getsockname()[1]
    line = [sys.executable, "-c", "from headcount.cli.main import main; main()", *command, "--port", str(port)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and str(port) in server.stdout.readline()
        try:
            attacked(port, server.pid)
        finally:
            server.terminate()


def attacked(port: int, pid: int) -> None:
    waited_s(port)
    before = peak_kb(pid)
    with connected(port) as client:
        attack = threading.Thread(target=sent, args=(client, [BEGIN + b"x: ", *[b"a" * 1_000_000] * 200]))
        attack.start()
        slowest_s = max(waited_s(port) for _ in range(20))
        attack.join()
        assert answer(client)[0] == 431
    assert slowest_s < 1
    assert peak_kb(pid) - before < 20_000


def waited_s(port: int) -> float:
    """For another client's answer."""
    start = time.monotonic()
    for _ in range(100):  # the server says where it is before it listens
        try:
            with connected(port) as client:
                assert status(client, b"GET /health HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n\r\n" % port) in (200, 404)
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    return time.monotonic() - start


def peak_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
