"""Where a server listens: this machine's own addresses, a port that is taken."""

import socket

from files.errors import HeadcountError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def taken(host: str, port: int) -> socket.socket:
    """The address, taken. Raises HeadcountError where that fails."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1000)
    except OSError as error:
        raise HeadcountError(
            f"{host} port {port} cannot be used: {error.strerror or error}; choose another --port"
        ) from None


def url(host: str, port: int) -> str:
    """As a client writes it."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
