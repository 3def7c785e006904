"""How many users do these GPUs serve?"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Final

from files.documents import Json
from files.errors import HeadcountError
from files.reading import InputError
from headcount.diagnostics import Facts, facts_about, find_diagnostics
from headcount.inputs.engine import EngineInput
from headcount.inputs.load import effects_on, length_facts, load_effects, trace_notes
from headcount.inputs.prices import GPUPriceInput
from headcount.inputs.question import question
from headcount.inputs.reading.deployments import ModelOnGPU, check_counts, engine_json
from headcount.inputs.routing import RoutingInput
from headcount.inputs.run import RunInput
from headcount.inputs.search import CapacitySearch
from headcount.inputs.slo import SLOInput
from headcount.inputs.traffic import TrafficInput
from headcount.queries.adapters import AdapterCost, adapter_cost, row_without_adapters
from headcount.queries.energy import Energy, check_carbon_intensity, energy_of
from headcount.queries.front_end import api_server_facts
from headcount.queries.money import usd_per_month, usd_per_user_month
from headcount.queries.report_data.study import Study
from headcount.queries.result import Progress, Result, Verdict, Watch
from headcount.queries.suggestions import TRIED, Suggestion, find_suggestions
from headcount.text.capacity import found_line, row_layout
from headcount.text.units import assumptions_json, counted
from headcount.text.words import load_text
from simulator.deployment import Deployment
from simulator.engines.engines import AnyArgs, words_of
from simulator.fleet.router import check_router
from simulator.study.candidate import RunContext
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_row import CapacityRow, best_row, empty_row
from simulator.study.capacity_table import CapacityTable, LongerTTFT, plans_of
from simulator.study.points import Point
from workloads.effects import TrafficEffects
from workloads.traces.trace_file import Source


@dataclass(frozen=True)
class Served:
    """A row that was simulated at its number of users."""

    row: CapacityRow
    point: Point
    plan: Deployment

    @property
    def deployment(self) -> str:
        """Such as `8 GPUs, 4 × TP2`."""
        return f"{counted(self.row.gpus, 'GPU')}, {row_layout(self.row)}"


USUAL_CONTEXTS: Final = (4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144)
LITTLE_CUT: Final = 0.001  # of conversations, messages, prompts or answers


@dataclass(frozen=True, kw_only=True)
class ShorterContext:
    """A row whose users are 0 at the model's own longest context, with the smallest usual one that cuts hardly any."""

    flag: str  # such as `--max-model-len 32768`
    cut: float  # the largest share of what is cut
    row: CapacityRow


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CapacityResult(Result):
    """A capacity question with its answer, one row per GPU count."""

    kind = "capacity"
    view = "capacity"
    question: CapacityQuestion
    capacity: tuple[CapacityRow, ...]
    workload: str  # as asked for: a preset or a path
    traffic: TrafficEffects | None = None  # what max_model_len makes of it; None where the model does not fit
    suggestions: tuple[Suggestion, ...] | None = (
        None  # what was tried to lift the best row, the largest gain first; None: unasked
    )

    shorter_context: tuple[ShorterContext, ...] = ()
    """Of rows without users at 95 % confidence, where nobody said how long a context may be."""
    longer_ttft: tuple[LongerTTFT, ...] = ()
    """What the best row would serve under longer limits on TTFT; () where TTFT is not its bottleneck."""
    without_adapters: CapacityRow | None = None
    """The best row's GPUs for the model alone; None without LoRA adapters."""
    changed: tuple[str, ...] = ()
    """What differs from the workload's own traffic, such as `system-prompt`."""
    carbon_intensity: float | None = None
    """Grams of CO2 equivalent per kWh of the grid; None: not asked."""

    @property
    def best(self) -> CapacityRow:
        """The row whose users the answer gives."""
        return best_row(self.capacity)

    @property
    def users_low(self) -> int:
        """Users at 95 % confidence of the best row."""
        return self.best.users_low

    @property
    def users(self) -> int:
        """Users at which the expected attainment meets the SLO."""
        return self.best.users

    @property
    def users_high(self) -> int:
        """The upper end of the interval."""
        return self.best.users_high

    @property
    def binding(self) -> str | None:
        """What keeps the leading row from serving more users."""
        return self.best.binding

    @cached_property
    def served(self) -> tuple[Served, ...]:
        """The GPU counts that serve somebody, fewest GPUs first."""
        found = [Served(row, row.point, row.plan) for row in self.capacity if row.users and row.point and row.plan]
        return tuple(sorted(found, key=lambda served: served.row.gpus))

    @property
    def adapters(self) -> AdapterCost | None:
        """What LoRA adapters cost the best row; None without any."""
        best = self.best
        return None if best.plan is None else adapter_cost(best.plan, best.point, self.without_adapters)

    @property
    def plans(self) -> tuple[Deployment, ...]:
        """One per layout of a replica, by TP."""
        by_tp = {row.plan.tensor_parallel_size: row.plan for row in self.capacity if row.plan is not None}
        return tuple(by_tp[tp] for tp in sorted(by_tp))

    def figures(self) -> Json:
        asked = self.question
        left_out = dict.fromkeys(item for row in self.capacity if row.plan for item in row.plan.not_simulated)
        return {
            "model": asked.architecture.name,
            "gpu": asked.gpu.name,
            "workload": self.workload,
            "think_time_s": asked.think_time_s,
            "traffic_effects": self.traffic.to_json() if self.traffic else None,
            "slo": vars(asked.slo),
            "vllm_version": asked.args.vllm_version,
            "precision": asked.precision,
            "replications": asked.replications,
            "hours_met": asked.hours_met,
            "architecture_assumptions": assumptions_json(asked.architecture.assumptions),
            "not_simulated": assumptions_json(left_out),
            "seed": asked.seed,
            **({} if asked.flow_control is None else {"flow_control": asked.flow_control}),
            **engine_json(asked.args),
            "capacity": self.rows(),
            **({} if self.adapters is None else {"adapters": self.adapters.to_json()}),
            "shorter_context": [
                {"flag": each.flag, "cut": each.cut, **each.row.to_json()} for each in self.shorter_context
            ],
            "longer_ttft": [asdict(each) for each in self.longer_ttft],
            "suggestions": None if self.suggestions is None else [lift.to_json() for lift in self.suggestions],
        }

    def rows(self) -> list[Json]:
        return [row.to_json() | self._month(row) | self._energy_json(row) for row in self.capacity]

    def energy(self, row: CapacityRow) -> Energy | None:
        """What a row's GPUs take, see `energy_of`."""
        return energy_of(row, self.carbon_intensity)

    def _energy_json(self, row: CapacityRow) -> Json:
        found = self.energy(row)
        return {"energy": None if found is None else found.to_json()}

    def _month(self, row: CapacityRow) -> dict[str, float | None]:
        """A month's cost, and its part per user at 95 % confidence."""
        month = usd_per_month(row.gpus, self.question.gpu.usd_per_hour)
        return {"usd_per_month": month, "usd_per_user_month": usd_per_user_month(month, row.users_low)}

    @property
    def study(self) -> Study:
        """What its report is about: the row that leads."""
        best, price = self.best, self.question.gpu.usd_per_hour
        asked = replace(self.question, router=best.router) if best.router is not None else self.question
        return Study(question=asked, row=best, servers=best.replicas, usd_per_gpu_hour=price)


@question
def capacity(
    model: str,
    gpu: str,
    *,
    workload: Source = "chat",
    traffic: TrafficInput = TrafficInput(),
    slo: SLOInput = SLOInput(),
    engine: EngineInput = EngineInput(),
    routing: RoutingInput = RoutingInput(),
    search: CapacitySearch = CapacitySearch(),
    prices: GPUPriceInput = GPUPriceInput(),
    run: RunInput = RunInput(),
) -> CapacityResult:
    """Users per GPU count, each with an interval and its bottleneck.

    `workload` is a preset, a population or a trace file. Without a tensor-parallel size every one that fits is tried.
    With `hours_met` this share of clock hours has to meet the SLO, such as 0.95; else the long run has to. With
    `suggest` the changes of one setting that promise most are tried on the GPU count that leads.
    Raises HeadcountError for a bad argument, RefusedError before anything is simulated where `strict` refuses a
    diagnostic.
    """
    check_counts("gpus", search.gpus)
    check_carbon_intensity(search.carbon_intensity)
    if routing.router is not None:
        check_router(routing.router)
    run.check()
    asked, progress = prices.on(engine.on(model, gpu)), run.progress
    found, mean_s = traffic.load(workload, routing.tenants, model=asked.architecture)
    wanted = CapacityQuestion(
        architecture=asked.architecture,
        gpu=asked.gpu,
        gpus=tuple(dict.fromkeys(search.gpus)),
        workload=found,
        think_time_s=mean_s,
        slo=slo.found(workload),
        args=asked.args,
        router=routing.router,
        flow_control=routing.flow_control,
        precision=search.precision,
        replications=search.replications,
        hours_met=search.hours_met,
        seed=run.seed,
    )
    searched = _searched(wanted)
    if run.strict:
        find_diagnostics(facts_about(asked, plans=searched), strict=True)

    def answer(rows: tuple[CapacityRow, ...], *, strict: bool = False) -> CapacityResult:
        plan = next((row.plan for row in rows if row.plan is not None), None)
        cut, met = (effects_on(found, [plan.engine]), wanted.load(plan)) if plan else (None, None)
        of_load = {"trace": trace_notes(found), **length_facts(met)}
        return CapacityResult(
            diagnostics=find_diagnostics(replace(_facts_of(asked, rows, cut), **of_load), strict=strict)
            if rows
            else (),
            traffic=cut,
            verdict=_verdict(rows),
            question=wanted,
            capacity=rows,
            workload=traffic.named(workload),
            changed=tuple(traffic.changes),
            carbon_intensity=search.carbon_intensity,
        )

    with run.simulations() as simulations:
        table = CapacityTable(question=wanted, how=RunContext(simulations=simulations))
        rows = _watched(table, progress, answer)
        best = best_row(rows)
        later = table.longer_ttft(best)
        bare = row_without_adapters(wanted, table.how, best)
        shorter = tuple(filter(None, (_with_shorter_context(table, row) for row in rows if not row.users_low)))
        if search.suggest:
            progress(Progress(done=0, total=1, so_far=answer(rows), what=TRIED))
        tried = find_suggestions(wanted, best, progress, simulations) if search.suggest else None
    whole = answer(rows, strict=run.strict)
    whole = replace(whole, simulations=simulations, suggestions=tried, without_adapters=bare)
    return replace(whole, longer_ttft=later, shorter_context=shorter)


def _with_shorter_context(table: CapacityTable, row: CapacityRow) -> ShorterContext | None:
    """None where the context was given, or no shorter one serves anybody."""
    asked, plan = table.question, row.plan
    if plan is None:
        return None
    name = words_of(plan.args).longest
    if getattr(asked.args, name) is not None:
        return None
    for length in (each for each in USUAL_CONTEXTS if each < plan.engine.max_model_len):
        try:
            effects = load_effects(asked.workload, length)
        except InputError:  # not even the system prompt fits
            continue
        if effects.worst < LITTLE_CUT:
            changed: dict[str, Any] = {name: length}
            args: AnyArgs = replace(asked.args, **changed)
            shorter = replace(asked, args=args)
            found = CapacityTable(question=shorter, how=table.how).row(row.gpus)
            flag = f"--{name.replace('_', '-')} {length}"
            return ShorterContext(flag=flag, cut=effects.worst, row=found) if found.users_low else None
    return None


def _searched(asked: CapacityQuestion) -> list[Deployment]:
    """Every layout of a replica. Raises HeadcountError where none runs on any GPU count, with why not on the last."""
    found = {gpus: list(plans_of(asked, gpus).values()) for gpus in asked.gpus}
    plans = [plan for each in found.values() for plan in each if isinstance(plan, Deployment)]
    if not plans:
        last, reasons = list(found.items())[-1]
        why = str(reasons[-1]) if reasons else "no tensor-parallel size divides it"
        raise HeadcountError(why if len(found) == 1 else f"no GPU count runs it; {counted(last, 'GPU')}: {why}")
    return plans


def _watched(
    table: CapacityTable, progress: Watch, answer: Callable[[tuple[CapacityRow, ...]], CapacityResult]
) -> tuple[CapacityRow, ...]:
    """The rows, with progress shown at each simulated load; `answer` makes the answer of the rows so far."""
    rows: list[CapacityRow] = []
    asked = table.question

    def watch(point: Point | None = None, unit: str = "") -> None:
        note = ""
        if point is not None:
            note = load_text(point, unit)
        progress(Progress(done=len(rows), total=len(asked.gpus), note=note))

    def estimated(gpus: int, users: int) -> None:
        about = f"{counted(gpus, 'GPU')}: about {users:,} users (estimated)"
        progress(Progress(done=len(rows), total=len(asked.gpus), note=about, is_estimate=True))

    table.how.watcher, table.how.estimated = watch, estimated
    progress(Progress(done=0, total=len(asked.gpus), so_far=answer(())))
    for gpus in asked.gpus:
        rows.append(_row(table, gpus, is_alone=len(asked.gpus) == 1))
        if len(rows) < len(asked.gpus):
            found = found_line(rows[-1])
            progress(Progress(done=len(rows), total=len(asked.gpus), found=found, so_far=answer(tuple(rows))))
    watch()
    return tuple(rows)


def _row(table: CapacityTable, gpus: int, *, is_alone: bool) -> CapacityRow:
    """A number of GPUs that cannot be simulated leaves the other rows as they are; alone it raises HeadcountError."""
    try:
        return table.row(gpus)
    except HeadcountError as error:
        if is_alone:
            raise
        return empty_row(table.question, gpus, table.question.args.attention_ranks, str(error))


def _verdict(rows: Sequence[CapacityRow]) -> Verdict:
    """Bad input if no GPU count holds the model, missed if none meets the SLO; inconclusive if a row is imprecise."""
    if any(row.users for row in rows):
        return Verdict.INCONCLUSIVE if any(not row.is_precise for row in rows) else Verdict.DONE
    return Verdict.TARGET_MISSED if any(row.runs for row in rows) else Verdict.BAD_INPUT


def _facts_of(asked: ModelOnGPU, rows: Sequence[CapacityRow], traffic: TrafficEffects | None) -> Facts:
    best = best_row([row for row in rows if row.plan is not None] or list(rows))
    led = [best, *(row for row in rows if row is not best)]
    steps = [(row.plan, step) for row in led if row.plan and row.point and (step := row.point.mean_step) is not None]
    running, verdict = [row for row in rows if row.runs], _verdict(rows)
    missed = f"no GPU count meets the SLO; {running[-1].reason}" if verdict is Verdict.TARGET_MISSED else None
    return facts_about(
        asked,
        plans=[row.plan for row in led if row.plan is not None],
        steps=steps,
        traffic=traffic,
        cancelled=best.point.cancelled if best.point else None,
        imprecise=[(counted(row.gpus, "GPU"), row.precision, row.replications) for row in rows if row.is_rough],
        near_limit=[(counted(row.gpus, "GPU"), row) for row in rows if row.is_near_limit],
        **api_server_facts((counted(row.gpus, "GPU"), row) for row in rows),
        why_unfit=rows[-1].reason if verdict is Verdict.BAD_INPUT else None,
        why_missed=missed,
    )
