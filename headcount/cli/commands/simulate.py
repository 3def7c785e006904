"""`headcount simulate`: one load on one deployment."""

from typing import Any

import click

from headcount.cli.command import Command, section
from headcount.cli.option_types import OutPath, option
from headcount.cli.options import (
    LENGTH_SPREAD,
    cold_start_option,
    deployment_options,
    output_options,
    report_options,
    scheduler_options,
    workload_options,
)
from headcount.questions.arrivals import ArrivalProcess, usage
from simulator.engines.values import COUNT, Number, Text, TokenCount, WholeNumber
from workloads.arrivals import PROCESSES


@click.command("simulate", cls=Command)
@deployment_options()
@section(
    "Deployment",
    option("--replicas", WholeNumber(1), "Engines behind the router.", default=1),
)
@section(
    "Traffic",
    option(
        "--workload", Text(may_be_path=True), "A trace to replay, or with --users a preset or a population's TOML file."
    ),
    workload_options,
    option("--users", WholeNumber(1), "Closed-loop users; needs --think-time or a preset."),
    option("--concurrency", WholeNumber(1), "Clients without think time; all start at 0 s."),
    option("--rate", Number("requests per second, or inf"), "Open arrivals per second."),
    option(
        "--arrivals",
        ArrivalProcess(),
        f"How open requests arrive: {', '.join(map(usage, PROCESSES))}.  [default: poisson]",
    ),
    option(
        "--burstiness",
        Number("1 for Poisson, less for bursts"),
        "Burstiness of open arrivals, as in vLLM.  [default: 1, Poisson]",
    ),
    option("--input-len", TokenCount(), "Prompt tokens."),
    option("--output-len", TokenCount(), "Output tokens."),
    option("--length-spread", LENGTH_SPREAD, "0.8: lengths uniform in 0.8–1 × the given ones.  [default: 1]"),
    option("--num-requests", COUNT, "Number of requests.  [default: 10 × concurrency, or the whole file]"),
)
@scheduler_options
@cold_start_option
@section(
    "Output",
    option("--requests-out", OutPath(), "CSV with every request's times."),
    option("--steps-out", OutPath(), "JSON lines with every step's decisions."),
)
@report_options
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
    from headcount.cli.output import finish  # noqa: PLC0415
    from headcount.cli.progress import watched  # noqa: PLC0415

    report, as_json, think_time_s = (values.pop(name) for name in ("report", "as_json", "think_time"))
    with watched("one load") as progress:
        answer = simulate(**values, think_time_s=think_time_s, progress=progress)
    return finish(answer, report, as_json=as_json)
