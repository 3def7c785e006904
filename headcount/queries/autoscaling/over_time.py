"""How does a fleet that changes serve a load, and what does it cost beside a fixed one?"""

from dataclasses import dataclass, replace

from files.documents import Json
from files.errors import HeadcountError
from headcount.diagnostics import facts_about, find_diagnostics
from headcount.inputs.autoscaling import AutoscalingInput
from headcount.inputs.engine import EngineInput
from headcount.inputs.load import LoadInput
from headcount.inputs.question import question
from headcount.inputs.routing import ReplicasInput
from headcount.inputs.run import SeedInput
from headcount.inputs.slo import SLOInput
from headcount.inputs.traffic import TrafficInput
from headcount.queries.autoscaling.question import (
    FleetOverTime,
    LoadOverTime,
    Question,
    figures_of,
    load_over_time,
)
from headcount.queries.result import Progress, Result, Watch
from simulator.deployment import resolve
from simulator.fleet.events import Event, read_event
from simulator.fleet.startup import read_startup
from workloads.daily_profile import WORKING_DAY, Profile, read_profile


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AutoscalingResult(Result):
    """One load on autoscaled fleets, then on fixed ones: attainment, replicas over time, GPU-hours, cost.

    The last one is the smallest fixed fleet that meets the SLO, or the largest allowed where none does.
    """

    kind = "autoscaling"
    view = "autoscaling"
    question: Question
    load: LoadOverTime
    fleets: tuple[FleetOverTime, ...]

    def figures(self) -> Json:
        plan, first, later = self.question.plan, *self.question.stages()
        return {
            "model": plan.architecture.name,
            "gpu": plan.gpu.name,
            "gpus_per_replica": plan.gpus,
            "min_replicas": self.question.min_replicas,
            "max_replicas": self.question.max_replicas,
            "slo": str(self.question.slo),
            "load": self.load.words,
            "duration_s": self.fleets[0].shown.until_s,
            "startup_new_node": first.to_json(),
            "startup_later": later.to_json(),
            "settings": plan.settings,
            **({} if self.question.flow_control is None else {"flow_control": self.question.flow_control}),
            "fleets": self.rows(),
        }

    def rows(self) -> list[Json]:
        plan = self.question.plan
        return [figures_of(fleet, gpus=plan.gpus, usd_per_gpu_hour=plan.gpu.usd_per_hour) for fleet in self.fleets]


@question
def simulate_autoscaling(
    model: str,
    gpu: str,
    *,
    load: LoadInput = LoadInput(),
    traffic: TrafficInput = TrafficInput(),
    slo: SLOInput = SLOInput(),
    engine: EngineInput = EngineInput(),
    deployed: ReplicasInput = ReplicasInput(),
    scaling: AutoscalingInput = AutoscalingInput(),
    run: SeedInput = SeedInput(),
) -> AutoscalingResult:
    """Serve one load with a fleet that changes, and with fixed ones: of its most replicas, and of the fewest that do.

    `autoscaler` is a name, with parameters as in `hpa:target_average_value=30`, or several to compare. With a
    `daily_profile` (`day`, or requests by hour) `users` are those of the busiest hour. `events` befall every fleet:
    `crash@10min`, `node@10min`, `zone@10min:replicas=2`, `update@2h`. `startup` gives stages of a replica's start, such
    as `weights-from=nfs,node=0s`. With `loses_requests` those of a replica that fails are not sent again. A load is as
    of `simulate`, but for users: they come for `duration_s`, one hour without a profile. `flow_control` and `tenants`
    are as of `simulate`; with a queue, requests wait in it while no replica is ready.
    Raises HeadcountError for a bad argument, RefusedError where `strict` refuses a diagnostic.
    """
    if load.runs != 1:
        raise HeadcountError("--runs goes with one load on a fleet that does not change")
    asked, strict = engine.on(model, gpu), run.strict
    known = facts_about(asked)
    find_diagnostics(known, strict=strict)
    plan = resolve(asked.architecture, asked.gpu, asked.args)
    profile, autoscaler = _profile(scaling.daily_profile), scaling.autoscaler
    scalers = () if autoscaler is None else autoscaler if isinstance(autoscaler, list | tuple) else (autoscaler,)
    fewest, replicas = scaling.min_replicas, deployed.replicas
    most = scaling.max_replicas or max(replicas, fewest or 1)
    initial = scaling.initial_replicas
    whole = Question(
        plan=plan,
        router=deployed.router,
        slo=slo.found(),
        autoscalers=tuple(scalers),
        min_replicas=min(replicas, most) if fewest is None else fewest,
        max_replicas=most,
        initial_replicas=most if initial is None and profile is not None else initial,
        events=tuple(map(read_event, scaling.events)),
        startup=read_startup(scaling.startup),
        grace_period_s=scaling.grace_period_s,
        sends_again=not scaling.loses_requests,
        seed=run.seed,
        flow_control=deployed.flow_control,
    )
    given = load.asked(traffic, deployed.tenants, run.seed)
    served = load_over_time(
        given, max_model_len=plan.engine.max_model_len, profile=profile, duration_s=scaling.duration_s
    )
    _check_events(whole.events, served.duration_s)
    fleets = _fleets(whole, served, run.progress)
    known = replace(known, plans=[plan], traffic=served.traffic, cancelled=fleets[0].shown.result.cancelled)
    return AutoscalingResult(
        diagnostics=find_diagnostics(known, strict=strict), question=whole, load=served, fleets=fleets
    )


def _fleets(asked: Question, load: LoadOverTime, progress: Watch) -> tuple[FleetOverTime, ...]:
    """What is asked for and, beside autoscalers, the smallest fixed fleet that meets the SLO, found by bisection."""
    names = asked.names
    total = len(names) + bool(asked.autoscalers)
    fleets = []
    for number, name in enumerate(names):
        progress(Progress(done=number, total=total, note=name))
        fleets.append(asked.fleet(number, load))
    few, many, smallest = asked.min_replicas, asked.max_replicas, fleets[-1]
    if not asked.autoscalers or smallest.shown.attainment < asked.slo.attainment:
        return tuple(fleets)
    tried = round(fleets[0].shown.mean_replicas)
    while few < many:
        tried = min(max(tried, few), many - 1)
        fixed = asked.fixed_at(tried)
        progress(Progress(done=len(names), total=total, note=fixed.names[0]))
        found = fixed.fleet(0, load)
        if found.shown.attainment >= asked.slo.attainment:
            many, smallest = tried, found
        else:
            few = tried + 1
        tried = (few + many) // 2
    return (*fleets, smallest) if smallest is not fleets[-1] else tuple(fleets)


def _profile(given: str | Profile | None) -> Profile | None:
    if given is None or isinstance(given, Profile):
        return given
    return WORKING_DAY if given.strip().lower() == "day" else read_profile(given)


def _check_events(events: tuple[Event, ...], duration_s: float) -> None:
    late = next((event for event in events if event.time_s >= duration_s), None)
    if late is not None:
        raise HeadcountError(
            f"{late} is after the load's end at {duration_s:,.0f} s; give an earlier time, or --duration"
        )
