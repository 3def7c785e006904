"""`headcount simulate`: one load on one deployment."""

from typing import Any

import click

from headcount.cli.command import Command, section
from headcount.cli.option_types import COUNT, NAME_OR_FILE, Number, OutFile, TokenCount, WholeNumber
from headcount.cli.options import (
    cold_start_option,
    deployment_options,
    output_options,
    scheduler_options,
    workload_options,
)


@click.command("simulate", cls=Command)
@deployment_options()
@section(
    "Deployment",
    click.option("--replicas", type=WholeNumber(1), default=1, show_default=True, help="Engines behind the router."),
)
@section(
    "Traffic",
    click.option("--workload", type=NAME_OR_FILE, help="A trace file to replay, or a preset with --users."),
)
@workload_options
@section(
    "Traffic",
    click.option("--users", type=WholeNumber(1), help="Closed-loop users; needs --think-time or a preset."),
    click.option("--concurrency", type=WholeNumber(1), help="Clients without think time; all start at 0 s."),
    click.option("--rate", type=Number("requests per second, or inf"), help="Open arrivals per second."),
    click.option(
        "--burstiness",
        type=Number("1 for Poisson, less for bursts"),
        help="Burstiness of open arrivals, as in vLLM.  [default: 1, Poisson]",
    ),
    click.option("--input-len", type=TokenCount(), help="Prompt tokens."),
    click.option("--output-len", type=TokenCount(), help="Output tokens."),
    click.option(
        "--length-spread",
        type=Number("1 for exact lengths, 0.8 for 80 % to 100 % of them"),
        help="0.8: lengths uniform in 0.8–1 × the given ones.  [default: 1]",
    ),
    click.option(
        "--num-requests", type=COUNT, help="Number of requests.  [default: 10 × concurrency, or the whole file]"
    ),
)
@scheduler_options
@cold_start_option
@section(
    "Output",
    click.option("--requests-out", type=OutFile(), help="CSV with every request's times."),
    click.option("--steps-out", type=OutFile(), help="JSON lines with every step's decisions."),
)
@output_options
def command(**values: Any) -> int:
    """Serve one load and report latency percentiles, throughput, KV use.

    \b
    Loads:  --workload FILE                          replay a trace as it is
            --workload chat --users 500              closed-loop users of a preset
            --input-len I --output-len O --users N --think-time 30s
            --input-len I --output-len O --concurrency C
            --input-len I --output-len O --rate R --num-requests N
    """
    from headcount.answers.simulate import simulate  # noqa: PLC0415  imported once the command runs
    from headcount.cli.output import show  # noqa: PLC0415
    from headcount.cli.progress import watched  # noqa: PLC0415

    as_json, think_time_s = values.pop("as_json"), values.pop("think_time")
    with watched("one load") as progress:
        answer = simulate(**values, think_time_s=think_time_s, progress=progress)
    return show(answer, as_json=as_json)
