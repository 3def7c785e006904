"""`headcount web`: the page in the browser."""

import os
import secrets
from importlib.util import find_spec

import click

from files.errors import HeadcountError
from headcount.cli.command import Command, section
from headcount.cli.listening import LOOPBACK, taken, url
from headcount.cli.option_types import flag, option
from simulator.engines.values import Duration, Text, TokenCount, WholeNumber

TOKEN = "HEADCOUNT_WEB_TOKEN"
SHORTEST_TOKEN = 16
JOB_TIME_S = {False: 900.0, True: 120.0}  # whether the page is public
MOST_PUBLIC_BYTES = 1_000_000  # of a form, which has no files
_NEEDS = ("fastapi", "uvicorn", "httptools", "jinja2", "python_multipart")


@click.command("web", cls=Command)
@section(
    "Server",
    option("--port", WholeNumber(1, 65535), "Port of the page.", default=8600),
    option("--host", Text(), "Address of the page. Any address except 127.0.0.1 needs a token.", default="127.0.0.1"),
    flag("--public", "Let anyone ask: no token, no uploads, no list of others' questions, few questions a minute."),
)
@section(
    "Limits",
    option("--jobs", WholeNumber(1, 64), "Questions that run in parallel.", default=1),
    option("--job-time", Duration(), "Time limit of a question.  [default: 15min; with --public 2min]"),
    option(
        "--asks-per-minute", WholeNumber(1, 1000), "New questions of one address a minute, with --public.", default=6
    ),
    option("--job-memory", WholeNumber(1, 4096), "Memory limit of a question, in GB.", default=4),
    option("--max-upload", TokenCount("BYTES", most=2**40, is_decimal=True), "Size limit of an upload.", default="64M"),
)
def command(
    *,
    port: int,
    host: str,
    public: bool,
    jobs: int,
    job_time: float | None,
    asks_per_minute: int,
    job_memory: int,
    max_upload: int,
) -> int:
    """Serve the web page: the same questions in the browser, with progress, sliders, history and uploads.

    By default only this machine can open the page. With --host ADDRESS, everyone who has the token can; the printed
    link contains it. The environment variable HEADCOUNT_WEB_TOKEN sets the token; else it is random at each start.
    With --public, anyone who reaches the address can ask. Ctrl-C stops the server and its running questions. Needs
    headcount[web].
    """
    if missing := [name for name in _NEEDS if find_spec(name) is None]:
        raise HeadcountError(f"the page needs {', '.join(missing)}; install headcount[web]")
    import uvicorn  # noqa: PLC0415  an optional extra

    from headcount.web.app import Settings, make_app  # noqa: PLC0415
    from headcount.web.bounded_http import server_config  # noqa: PLC0415
    from headcount.web.jobs import Bounds  # noqa: PLC0415

    token = None if host in LOOPBACK or public else _token()
    seconds = JOB_TIME_S[public] if job_time is None else job_time
    bounds = Bounds(side_by_side=jobs, seconds=seconds, memory_bytes=job_memory * 10**9)
    settings = Settings(
        port=port,
        token=token,
        most_upload_bytes=MOST_PUBLIC_BYTES if public else max_upload,
        is_public=public,
        asks_per_minute=asks_per_minute,
        bounds=bounds,
    )
    place = taken(host, port)
    click.echo(f"Headcount at {url(host, port)}/" + (f"?token={token}" if token else ""))
    config = server_config(make_app(settings), limit_concurrency=200)
    with place:
        uvicorn.Server(config).run(sockets=[place])
    return 0


def _token() -> str:
    given = os.environ.get(TOKEN)
    if given is not None and (len(given) < SHORTEST_TOKEN or not given.isascii() or not given.isalnum()):
        raise HeadcountError(f"{TOKEN} must have at least {SHORTEST_TOKEN} letters and digits; or leave it unset")
    return given or secrets.token_hex(16)
