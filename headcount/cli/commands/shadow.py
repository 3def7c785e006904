"""`headcount shadow`: a running fleet beside its simulation, minute by minute."""

import json
from functools import partial
from typing import TYPE_CHECKING

import click

from headcount.cli.command import QuestionCommand, section
from headcount.cli.given import Given
from headcount.cli.option_types import json_option
from headcount.cli.options import engine_argument_options, inputs, scheduler_options
from headcount.inputs.measured import MeasuredInput
from headcount.inputs.metrics import MetricsInput
from headcount.inputs.slo import SLOInput
from headcount.version import SCHEMA_VERSION

if TYPE_CHECKING:
    from headcount.queries.shadow import Shadow
    from simulator.deployment import Deployment


@click.command("shadow", cls=QuestionCommand)
@inputs(MetricsInput)
@inputs(SLOInput)
@inputs(MeasuredInput, "model", "gpu")
@engine_argument_options()
@scheduler_options()
@section("Output", json_option)
def command(given: Given) -> int:
    """Compare a running fleet with its simulation, and name what drifts: live, from Prometheus, or from a recording.

    For each minute: the load, and TTFT, ITL, requests and KV cache as measured and, in brackets, as simulated for that
    load; how much more load the fleet takes within the SLO, and when the trend will use that up. A latency that leaves
    what it was for the same load is named within three minutes, with the likely cause.

    Only metrics are read. With --json, one object per line.
    """
    from headcount.queries.shadow import shadow  # noqa: PLC0415  imported once the command runs
    from headcount.views.terminal.shadow import bias_lines, drift_line, header, window_line  # noqa: PLC0415

    metrics, plans = given.input(MetricsInput), list["Deployment"]()
    before: Shadow | None = None
    try:
        for found in shadow(
            metrics=metrics,
            measured=MeasuredInput(model=given.text("model"), gpu=given.text("gpu")),
            engine=given.engine_given,
            slo=given.input(SLOInput),
            begun=plans.append,
            lost=partial(click.echo, err=True),
        ):
            if given.is_on("as_json"):
                click.echo(json.dumps({"schema_version": SCHEMA_VERSION, **found.to_json()}))
                continue
            lines = [window_line(found, metrics.think_time_s), *map(drift_line, found.drifts)]
            if before is None:
                lines = [f"{plans[0].architecture.name} on {plans[0].gpu.name}: measured (simulated)", header(), *lines]
            if found.bias and not (before and before.bias):
                lines += bias_lines(found.bias, plans[0])
            click.echo("\n".join(lines))
            before = found
    except KeyboardInterrupt:  # the usual end
        if not plans:
            raise
    return 0
