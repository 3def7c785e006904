"""Layouts of one question: screened, then simulated, with the same users in all."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from files.documents import Json, ReadJson
from files.errors import HeadcountError
from files.names import UnknownNameError, readable
from headcount.diagnostics import Facts, facts_about
from headcount.inputs.disaggregation import compared_pools
from headcount.inputs.load import effects_on, trace_notes
from headcount.inputs.prices import GPUPriceInput
from headcount.inputs.reading.deployments import ENGINE_ARGUMENTS, ModelOnGPU, resolve_model_and_gpu
from headcount.inputs.reading.variations import STEP_TIMES, Axis, Choice, choice_text
from headcount.inputs.run import RunInput
from headcount.inputs.traffic import TrafficInput
from headcount.queries.front_end import api_server_facts
from headcount.queries.result import SCREENING, Progress, Result, Verdict, Watch
from headcount.queries.sweeps.layout import Layout
from headcount.text.units import counted
from headcount.text.words import joined
from kvcache.models.catalog import load_model
from kvcache.shape.architecture import Architecture
from simulator.deployment import Deployment
from simulator.disaggregation import PoolLink
from simulator.study.candidate import Level, RunContext, evaluator_of
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_table import plans_of
from simulator.study.fleets.disaggregation import evaluator_of_disaggregated
from simulator.study.points import Point, Watcher
from simulator.study.running.simulations import Simulations
from simulator.study.slo import SLO
from simulator.study.variations.variation import screen, screen_disaggregated, simulated
from workloads.populations.population import Population
from workloads.traces.trace import Trace
from workloads.traces.trace_file import Source
from workloads.traffic import changed, changed_trace
from workloads.traffic_changes import CHANGES, Amount

MOST_REASONS: Final = 3
SHARED_REPLICATIONS: Final = 8  # of a load that several layouts are put under


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SweepResult(Result):
    """An answer about many layouts of one model under one load."""

    model: str
    workload: str
    slo: SLO
    seed: int
    axes: tuple[Axis, ...]  # what is varied

    def shared_figures(self) -> Json:
        """What every such answer says under the same names."""
        return {"model": self.model, "workload": self.workload, "slo": vars(self.slo), "seed": self.seed}


@dataclass(kw_only=True)
class Layouts:
    """What all layouts share, and how each is found; `base` has a value for everything that a choice may change."""

    model: str
    workload: Source
    traffic: TrafficInput
    base: Choice
    study: ReadJson  # of a CapacityQuestion
    prices: GPUPriceInput = field(default_factory=GPUPriceInput)
    between: PoolLink = field(default_factory=PoolLink)  # of pools, where disaggregated
    _how: RunContext = field(default_factory=RunContext)

    @cached_property
    def architecture(self) -> Architecture:
        return load_model(self.model)

    @cached_property
    def _load(self) -> tuple[Population | Trace, float]:
        return self.traffic.unchanged.load(self.workload, model=self.architecture)

    @property
    def asked(self) -> Json:
        """What a SweepResult says of the question."""
        named = self.traffic.named(self.workload)
        return {
            "model": self.architecture.name,
            "workload": named,
            "slo": self.study["slo"],
            "seed": self.study["seed"],
        }

    @property
    def unit(self) -> str:
        """Of a load's size."""
        return "requests/s" if isinstance(self._load[0], Trace) else "users"

    def load_name(self, size: float) -> str:
        """Such as `398 users`."""
        return counted(round(size), "user") if self.unit == "users" else f"{readable(size)} {self.unit}"

    @contextmanager
    def simulations(self, run: RunInput) -> Iterator[Simulations]:
        """Where simulations run, and whether they are saved, meanwhile."""
        with run.simulations() as found:
            self._how.simulations = found
            yield found

    @property
    def how(self) -> RunContext:
        """How its simulations run."""
        return self._how

    def on_larger_server(self, gpus: int, precision: float) -> "Layouts":
        """The same with one server of so many GPUs, all of them in tensor parallelism; the load is read already."""
        found = copy(self)
        found.base = {**self.base, "gpus": gpus, "tensor_parallel_size": gpus}
        found.study = {**self.study, "precision": precision}
        return found

    def screened(self, choice: Choice) -> Layout:
        """A layout with its estimate. Raises HeadcountError for an unknown name, or traffic that is impossible."""
        given = {**self.base, **choice}
        gpus, load = given["gpus"], self._workload(given)
        try:
            engine = {name: value for name, value in given.items() if name in ENGINE_ARGUMENTS}
            asked = self.prices.at(
                resolve_model_and_gpu(self.model, given["gpu"], engine, is_shared="engine" in choice)
            )
            pools, decider, kv_transfer = (given.get(name) for name in ("pools", "decider", "kv_transfer"))
            disaggregated = compared_pools(asked, pools, decider, kv_transfer, self.between)
            question = self._question(given, asked, load)
            _check_context((self.traffic.changes | dict(choice)).get("context"), question)
            found = (
                screen(question, self._how)
                if disaggregated is None
                else screen_disaggregated(question, disaggregated, self._how)
            )
        except UnknownNameError:
            raise
        except ValueError as error:
            return Layout(choice=choice, gpus=gpus, refusal=str(error))
        traffic = effects_on(found.question.workload, [found.plan.engine]) if found.plan else None
        return Layout(choice=choice, gpus=found.gpus, asked=asked, looked=found, traffic=traffic)

    def all_screened(self, choices: Sequence[Choice], progress: Watch) -> list[Layout]:
        """Each of them. Raises HeadcountError where none of them runs, with the reasons."""
        found: list[Layout] = []
        for choice in choices:
            progress(Progress(done=len(found), total=len(choices), note=choice_text(choice), what=SCREENING))
            found.append(self.screened(choice))
        if not any(layout.looked and layout.looked.plan for layout in found):
            raise HeadcountError(_none_runs(found))
        return found

    def _workload(self, given: Choice) -> tuple[Population | Trace, float]:
        """With the traffic that is asked for, and the mean think time."""
        workload, think_time_s = self._load
        changes = self.traffic.changes | {name: given[name] for name in CHANGES if name in given}
        if not changes:
            return workload, think_time_s
        if isinstance(workload, Trace):
            return changed_trace(workload, changes), think_time_s
        found = changed(workload, changes)
        return found, found.think_time_s.mean()

    def _question(self, given: Choice, asked: ModelOnGPU, load: tuple[Population | Trace, float]) -> CapacityQuestion:
        workload, think_time_s = load
        slo: SLO = self.study["slo"]
        limits = {f"{name}_s": given[name] for name in ("ttft", "tpot") if name in given}
        return CapacityQuestion(
            architecture=asked.architecture,
            gpu=asked.gpu,
            gpus=(given["gpus"],),
            workload=workload,
            think_time_s=think_time_s,
            args=asked.args,
            router=given["router"],
            step_time_factor=given.get(STEP_TIMES, 1.0),
            **{**self.study, "slo": replace(slo, **limits)},
        )

    def simulated(self, layout: Layout, watcher: Watcher | None = None, level: Level = Level.CONFIRMED) -> Layout:
        """The same with its row; as it is where nothing runs."""
        if layout.looked is None or layout.looked.plan is None:
            return layout
        if layout.row is not None and layout.row.evidence in (level.word, Level.CONFIRMED.word):
            return layout
        self._how.watcher = watcher
        return layout.with_row(simulated(layout.looked, level))

    def under(self, layout: Layout, size: float, replications: int) -> Point | None:
        """What a load of that size shows; None where nothing runs."""
        looked = layout.looked
        if looked is None or looked.plan is None:
            return None
        if looked.disaggregated is not None:
            pools = evaluator_of_disaggregated(looked.question, looked.disaggregated, self._how)
            return pools.point(size, replications)
        return evaluator_of(looked.question, looked.plan, layout.num_servers, self._how).point(size, replications)


def _check_context(asked: Amount | None, question: CapacityQuestion) -> None:
    """Raise HeadcountError where conversations should be longer on average than the longest context."""
    if asked is None or asked.is_factor:
        return
    for plan in plans_of(question, question.gpus[0]).values():
        if isinstance(plan, Deployment) and asked.value > plan.engine.max_model_len:
            raise HeadcountError(
                f"context is {asked.value:,.0f} tokens on average, beyond the longest context, max_model_len "
                f"{plan.engine.max_model_len:,}; give a shorter one, or a model that takes it"
            )


def _none_runs(layouts: Sequence[Layout]) -> str:
    """Why nothing can be answered: each reason once, with the first layout that it is of."""
    reasons: dict[str, str] = {}
    for layout in layouts:
        reasons.setdefault(layout.reason or "", layout.name)
    if len(reasons) == 1:
        return next(iter(reasons))
    told = "; ".join(f"{name}: {reason}" for reason, name in list(reasons.items())[:MOST_REASONS])
    return f"none of {len(layouts):,} layouts runs; {told}{'; …' if len(reasons) > MOST_REASONS else ''}"


def _share_cut(layout: Layout) -> tuple[bool, float]:
    """Whether its traffic is not as it was asked for, and the share that is cut."""
    return (not layout.traffic.is_as_asked, layout.traffic.cut) if layout.traffic else (False, 0.0)


def _others_cut(layouts: Sequence[Layout], most: Layout) -> str:
    """That other layouts' traffic is not what was asked for either."""
    others = {each.name: each for each in layouts if each.traffic and not each.traffic.is_as_asked}
    others.pop(most.name, None)
    return f" (and less so {joined(list(others))})" if others else ""


def facts_of(layouts: Sequence[Layout], verdict: Verdict, *, judged: int = 1, larger: Sequence[Layout] = ()) -> Facts:
    """What notes are found in, the first layout leading; so many of the simulated ones have to be known well.

    `larger`: bigger servers and fleets that were tried, too.
    """
    running = [layout for layout in layouts if layout.looked and layout.looked.plan]
    led = [*(layout for layout in running if layout.row), *(layout for layout in running if not layout.row)]
    plans = [layout.looked.plan for layout in led if layout.looked and layout.looked.plan]
    rows = [layout.row for layout in led if layout.row]
    steps = [(row.plan, step) for row in rows if row.plan and row.point and (step := row.point.mean_step) is not None]
    reasons = [layout.reason for layout in layouts if layout.reason]
    asked = next((layout.asked for layout in (*led, *layouts) if layout.asked), None)
    cut = max((each for each in led if each.traffic), key=_share_cut, default=None)
    several = len({each.traffic for each in led}) > 1
    more: dict[str, Any] = {
        "plans": plans,
        "steps": steps,
        "imprecise": [
            (each.name, row.precision, row.replications)
            for each in led[:judged]
            if (row := each.row) and row.users and row.is_rough and row.evidence == Level.CONFIRMED.word
        ],
        "near_limit": [
            (", ".join(filter(None, (each.layout, each.name))), each.row)
            for each in dict.fromkeys([*led, *larger])
            if each.row and each.row.is_near_limit
        ],
        **api_server_facts((each.name, each.row) for each in led if each.row),
        "traffic": cut.traffic if cut else None,
        "traffic_of": f"{cut.name}{_others_cut(led, cut)}" if cut and several else "",
        "trace": next((trace_notes(each.looked.question.workload) for each in layouts if each.looked), ()),
        "why_unfit": reasons[0] if verdict is Verdict.BAD_INPUT and reasons else None,
        "why_missed": f"no layout serves a user at 95 % confidence; {reasons[0]}"
        if verdict is Verdict.TARGET_MISSED and reasons
        else None,
    }
    return facts_about(asked, **more) if asked else Facts(**more)
