"""`headcount simulate`: one load on one deployment."""

from collections.abc import Callable
from typing import Any

import click

from files.errors import HeadcountError
from headcount.cli.command import Command, all_of, section
from headcount.cli.option_types import OutPath, flag, option
from headcount.cli.options import (
    LENGTH_SPREAD,
    apart_options,
    cold_start_option,
    deployment_options,
    gateway_options,
    output_options,
    report_options,
    scheduler_options,
    slo_options,
    workload_options,
)
from headcount.inputs.arrivals import ArrivalProcess, usage
from simulator.engines.values import COUNT, ROUTER, Duration, Listed, Number, Text, TokenCount, WholeNumber
from workloads.arrivals import PROCESSES

_OVER_TIME = {  # parameters of hc.simulate_over_time that hc.simulate has not, with what they are if nothing is said
    "autoscaler": None, "min_replicas": None, "max_replicas": None, "initial_replicas": None, "daily_profile": None,
    "duration": None, "events": None, "startup": None, "grace_period": 30.0, "loses_requests": False,
}  # fmt: skip
_RENAMED = ("duration", "grace_period", "loses_requests", "events")
_SLO = {"slo_name": "chat", "ttft": None, "tpot": None, "attainment": None}
_over_time_options = all_of(
    section(
        "Over time",
        option(
            "--autoscaler",
            Listed(ROUTER),
            "Who scales the fleet: aibrix-apa, dynamo-planner, hpa, keda, knative-kpa, llm-d-wva, ray-serve, schedule, "
            "or one of your own; with parameters as in hpa:target_average_value=30. Several are compared.",
        ),
        option("--min-replicas", WholeNumber(0), "The fewest.  [default: --replicas]"),
        option("--max-replicas", WholeNumber(1), "The most.  [default: --replicas]"),
        option(
            "--initial-replicas",
            WholeNumber(0),
            "Ready at the start.  [default: the fewest; with a daily profile the most]",
        ),
        option(
            "--daily-profile",
            Text(),
            "Users come and go: 'day', as in RAGPulse, or requests by hour, 24 of a day or 168 of a week. --users are "
            "those of the busiest hour.",
        ),
        option("--duration", Duration(), "For how long users come.  [default: 1h, or the profile's days]"),
        option(
            "--event events",
            Listed(Text()),
            "What befalls the fleet, and when: crash@10min, node@10min, zone@10min:replicas=2, update@2h; separated by "
            "commas.",
        ),
        option(
            "--startup",
            Text(),
            "How a replica starts: weights-from=object-store, local-disk, nvme, nfs, fastsafetensors or peer-gpu; and "
            "stages that you know, such as node=0s,image=2s,weights=20s.",
        ),
        option(
            "--grace-period", Duration(), "For how long a replica that goes may finish its requests.", default="30s"
        ),
        flag("--lose-requests loses_requests", "Requests of a replica that fails are lost, not sent again."),
    ),
    slo_options,
)


@click.command("simulate", cls=Command)
@deployment_options()
@section(
    "Deployment",
    option("--replicas", WholeNumber(1), "Engines behind the router.", default=1),
)
@apart_options
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
    option(
        "--runs", WholeNumber(1, 1000), "So many runs, each with a seed of its own: how sure is the p99?", default=1
    ),
)
@gateway_options
@_over_time_options
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
    \b
    Fleets that change, beside one that does not:
            --workload chat --users 1000 --daily-profile day --autoscaler hpa --min-replicas 1 --max-replicas 4
            --workload chat --users 1000 --replicas 3 --event crash@10min
    """
    from headcount.cli.output import finish  # noqa: PLC0415  imported once the command runs
    from headcount.cli.progress import watched  # noqa: PLC0415

    report, as_json, think_time_s = (values.pop(name) for name in ("report", "as_json", "think_time"))
    ask = _asked(values)
    with watched("one load") as progress:
        answer = ask(**values, think_time_s=think_time_s, progress=progress)
    return finish(answer, report, as_json=as_json)


def _asked(values: dict[str, Any]) -> Callable[..., Any]:
    """The question that the options ask; `values` keeps what it takes."""
    over_time = {name: values.pop(name) for name in _OVER_TIME}
    slo = {name: values.pop(name) for name in _SLO}
    if over_time == _OVER_TIME:
        values |= {"slo": slo["slo_name"], "ttft_s": slo["ttft"], "tpot_s": slo["tpot"]}
        values["attainment"] = slo["attainment"]
        from headcount.queries.simulate import simulate  # noqa: PLC0415

        return simulate
    if values.pop("runs") != 1:
        raise HeadcountError("--runs goes with one load on a fleet that does not change")
    one_load = ("pools", "kv_transfer", "kv_transfer_rate", "dispatch_s", "decider")
    for name in ("requests_out", "steps_out", *one_load):
        if values.pop(name) is not None:
            flag_name = name.removesuffix("_s").replace("_", "-")
            raise HeadcountError(f"--{flag_name} goes with one load on a fleet that does not change")
    from headcount.queries.autoscaling.over_time import simulate_autoscaling  # noqa: PLC0415

    values |= {name: over_time[name] for name in over_time if name not in _RENAMED}
    values |= {"duration_s": over_time["duration"], "grace_period_s": over_time["grace_period"]}
    values |= {"sends_again": not over_time["loses_requests"], "events": over_time["events"] or ()}
    values |= {"slo": slo["slo_name"], "ttft_s": slo["ttft"], "tpot_s": slo["tpot"], "attainment": slo["attainment"]}
    return simulate_autoscaling
