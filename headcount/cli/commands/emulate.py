"""`headcount emulate`: OpenAI's API at simulated speed."""

import gc
import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from files.errors import HeadcountError
from headcount.cli.command import QuestionCommand, section
from headcount.cli.given import Given
from headcount.cli.listening import LOOPBACK, taken, url
from headcount.cli.option_types import option
from headcount.cli.options import cold_start_option, deployment_options, inputs, output_options, scheduler_options
from headcount.cli.output import print_json
from headcount.inputs.routing import ReplicasInput
from headcount.version import SCHEMA_VERSION
from simulator.engines.values import FilePath, Number, Text, TokenCount, WholeNumber

if TYPE_CHECKING:
    from headcount.endpoint.clock import Clock

API_KEY = "VLLM_API_KEY"  # vLLM's own variable
_NEEDS = ("fastapi", "uvicorn", "httptools", "prometheus_client")


@click.command("emulate", cls=QuestionCommand)
@deployment_options()
@inputs(ReplicasInput, "replicas")
@section(
    "Server",
    option("--port", WholeNumber(1, 65535), "Port of the endpoint.", default=8000),
    option("--host", Text(), "Address of the endpoint. Any address except 127.0.0.1 needs a key.", default="127.0.0.1"),
    option("--api-key", Text(), f"Key that clients must send.  [default: {API_KEY}, if set]"),
    option("--speed", Number("a number, such as 10"), "Simulated seconds per real second.", default=1.0),
    option(
        "--max-concurrent",
        WholeNumber(1, 100_000),
        "Most requests in flight. More are refused with 503.",
        default=10_000,
    ),
    option("--max-body", TokenCount("BYTES", most=2**31, is_decimal=True), "Largest request body.", default="32M"),
)
@section(
    "Answers",
    option(
        "--workload", Text(may_be_path=True), "Preset or TOML file from which answer lengths are drawn.", default="chat"
    ),
    option("--output-len", TokenCount(), "Fixed answer length in tokens, instead of --workload."),
    option("--tokenizer", FilePath(), "The model's tokenizer.json.  [default: four bytes per token]"),
)
@scheduler_options(inputs(ReplicasInput, "router"))
@cold_start_option
@output_options
def command(given: Given) -> int:
    """Serve OpenAI's API at the speed of a simulated fleet, with vLLM's or SGLang's metrics.

    \b
    /v1/completions, /v1/chat/completions (streaming and not), /v1/models, /tokenize, /detokenize,
    /health, /version, /metrics; with --engine sglang also /generate, /model_info, /server_info

    Answers are filler text. Their length is max_tokens with ignore_eos, else drawn. Queueing, batching, preemption,
    prefix caching and step times are those of 'headcount simulate'. Ctrl-C stops it and prints the delay of its tokens.
    Needs headcount[web].
    """
    if missing := [name for name in _NEEDS if find_spec(name) is None]:
        raise HeadcountError(f"the endpoint needs {', '.join(missing)}; install headcount[web]")
    host, port, as_json = str(given.values["host"]), given.values["port"], given.is_on("as_json")
    assert isinstance(port, int), "it has a default"
    key = given.values["api_key"] or os.environ.get(API_KEY) or None
    if host not in LOOPBACK and key is None:
        raise HeadcountError(f"--host {host} lets others in; give --api-key or {API_KEY}, or leave --host out")
    import uvicorn  # noqa: PLC0415  an optional extra

    from headcount.endpoint.app import make_app  # noqa: PLC0415
    from headcount.endpoint.serving import Served, endpoint  # noqa: PLC0415
    from headcount.web.bounded_http import server_config  # noqa: PLC0415

    place = taken(host, port)
    made, notes = endpoint(**given.arguments(endpoint, served=Served(**given.arguments(Served, api_key=key))))
    for note in notes:
        click.echo(f"headcount: {note.severity}: {note}", err=True)
    click.echo(f"{made.model} at {url(host, port)}/v1, as {made.plan.serve_line}", err=as_json)
    gc.collect()
    gc.freeze()  # else looking through what never goes stops all answers for tenths of a second
    config = server_config(make_app(made), access_log=False, timeout_graceful_shutdown=1)
    try:
        with place:
            uvicorn.Server(config).run(sockets=[place])
    finally:
        _tell(made.clock, as_json=as_json)
    return 0


def _tell(clock: "Clock", *, as_json: bool) -> None:
    """How much the endpoint itself has added to the simulated times."""
    delays = clock.delays
    found = {f"p{percent}": delays.percentile(percent) for percent in (50, 90, 99)}
    if as_json:
        print_json({"schema_version": SCHEMA_VERSION, "num_outputs": delays.num, "added_delay_s": found})
    elif delays.num:
        told = ", ".join(f"{name} {1000 * value:.1f} ms" for name, value in found.items())
        click.echo(f"{delays.num:,} outputs left later than simulated by {told}")
