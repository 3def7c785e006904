"""What a plan's diagnostics look at."""

from collections.abc import Sequence
from typing import Any, Final

from headcount.diagnostics import Facts
from headcount.inputs.load import length_facts, trace_notes
from headcount.queries.front_end import api_server_facts
from headcount.queries.plan_rows import why_missed
from headcount.text.units import counted
from simulator.study.fleets.layouts import FleetQuestion
from simulator.study.fleets.search import FleetSearch
from workloads.effects import TrafficEffects

AMPLE: Final = 2.0  # times the users to serve: where a fleet serves so many, noise decides nothing


def facts(asked: FleetQuestion, plans: Sequence[Any], **more: Any) -> Facts:
    """Of what was asked, and deployments that may serve it."""
    args = asked.variants[0]
    return Facts(
        vllm_version=args.vllm_version,
        environment=args.ignored_environment,
        architecture=asked.architecture,
        max_model_len=args.max_model_len,
        plans=plans,
        trace=trace_notes(asked.workload),
        **more,
    )


def facts_of(race: FleetSearch, traffic: TrafficEffects | None) -> Facts:
    """Of the cheapest fleet that was found; where there is none, why."""
    best = race.best
    if best is None:
        return facts(race.question, [], why_missed=why_missed(race) if race.is_over else None)
    step, plans = best.row.point.mean_step if best.row.point else None, best.layout.plans
    steps = [(plan, step) for plan in plans if step]
    row = best.row
    matters = best.users() < AMPLE * race.question.users  # else the lower end is enough by far
    is_rough = row.is_rough and race.is_over and matters
    imprecise = [(counted(row.gpus, "GPU"), row.precision, row.replications)] if is_rough else []
    near_limit = [(counted(row.gpus, "GPU"), row)] if row.is_near_limit else []
    scaled = [] if best.is_whole else [(best.row.replicas, best.servers)]
    cancelled = row.point.cancelled if row.point else None
    return facts(
        race.question, plans, steps=steps, traffic=traffic, cancelled=cancelled, scaled=scaled,
        imprecise=imprecise, near_limit=near_limit, **api_server_facts([("", row)]),
        **length_facts(race.question.load(best.layout)),
    )  # fmt: skip
