"""Users per GPU count: the main answer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from files.documents import Json, ReadJson
from simulator.deployment import Deployment, layouts
from simulator.disaggregation import DisaggregatedDeployment
from simulator.fleet.flow_control import read_flow_control
from simulator.study.bottleneck import not_served, step_causes, what_binds
from simulator.study.capacity import Capacity, find_capacity, screen_capacity
from simulator.study.capacity_interval import interval_of_users, users_at, users_within_errors
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.estimate import Estimate, estimate_users, estimated_users, stationary_load
from simulator.study.points import Evaluator, Point, Watcher
from simulator.study.running.simulations import Simulations
from simulator.study.served import safe_point, served_json
from simulator.study.slo_crossing import SLOCrossing
from simulator.study.statistics import Interval

BETTER = 1.06  # a larger TP must serve more by this factor, since it is only screened
RANKED = 1.25  # estimates that differ by more than this are ranked rightly (docs/measurements/screening.md)

_FIGURES = (
    "gpus", "replicas", "tp", "pp", "dp", "users", "users_low", "users_high", "users_low_sampling",
    "users_high_sampling", "precision", "replications",
    "users_at_step_time_error_high", "users_at_step_time_error_low", "step_time_error",
    "users_at_ttft_error_high", "users_at_ttft_error_low", "ttft_error",
    "users_at_kv_cache_low", "users_at_kv_cache_high", "binding", "reason", "usd_per_hour",
)  # fmt: skip
ROUGH: Final = 0.25  # half of the sampling interval, as a share of the users
_POOL = ("num_gpu_blocks", "num_gpu_blocks_low", "num_gpu_blocks_high")


@dataclass(frozen=True, kw_only=True)
class Screened:
    """A tensor-parallel size and about how many users it serves; with a reason it does not run."""

    tp: int
    users: int
    reason: str | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class CapacityRow:
    """The answer for one GPU count; without a plan nothing runs there, and `reason` says why."""

    gpus: int
    tp: int
    replicas: int
    users: int
    users_low: int  # 90 % interval: replications, step times, TTFT, KV pool; replications alone where times are given
    users_high: int
    dp: int = 1  # engines of a replica
    pp: int = 1  # stages of a replica
    users_low_sampling: int = 0  # of replications alone, 95 %
    users_high_sampling: int = 0
    precision: float = 0.0  # half of that interval, as a share of the users
    replications: int = 0  # of each load around the capacity
    is_precise: bool = True  # whether that share is as small as was asked for
    # At the far ends of the 90 % interval of step times; None where times are given, or nobody is served.
    users_at_step_time_error_high: int | None = None
    users_at_step_time_error_low: int | None = None
    step_time_error: float | None = None  # by what share steps may be longer, or their inverse shorter
    # At the far ends of TTFT's own error, beside that of the steps; None where it hardly matters, too.
    users_at_ttft_error_high: int | None = None
    users_at_ttft_error_low: int | None = None
    ttft_error: float | None = None
    users_at_kv_cache_low: int | None = None  # at the ends of the interval of KV blocks; None where they hardly differ
    users_at_kv_cache_high: int | None = None
    # Where single hours have to meet the SLO: users if the long run had to, and the users over them, paired.
    users_long_run: int | None = None
    hours_over_long_run: Interval | None = None
    reason: str | None = None
    binding: str | None = None
    plan: Deployment | None = None  # None: the model does not fit
    disaggregated: DisaggregatedDeployment | None = None  # whose answers `plan` computes; None: every replica does both
    point: Point | None = None  # what the loads next to `users` showed, together
    safe_point: Point | None = None  # what the load of `users_low` showed; None where it was not simulated
    curve: tuple[Point, ...] = ()  # every load simulated, by size
    curve_users: tuple[float, ...] = ()
    step_causes: dict[str, float] | None = None
    usd_per_hour: float | None = None  # without a list price
    knee: SLOCrossing | None = None  # what a paired ratio with another row takes
    screened: tuple[Screened, ...] = ()  # every tensor-parallel size that was looked at

    @property
    def is_rough(self) -> bool:
        """Whether the users are known worse than asked, or hardly known where so many replications were asked for."""
        return not self.is_precise or self.precision > ROUGH

    @property
    def is_near_ttft_limit(self) -> bool:
        """Whether TTFT's own error takes more than half of the users, as where a lone prompt takes what is allowed."""
        return self.users_at_ttft_error_high is not None and 2 * self.users_at_ttft_error_high < self.users

    def to_json(self) -> Json:
        """The keys of `headcount capacity --json`, units in each."""
        point, budget = self.point, self.plan.budget if self.plan else None
        found = {name: getattr(self, name) for name in _FIGURES}
        found["at_users_low"], found["at_users"] = self._at(self.safe_point), self._at(point)
        found |= {name: getattr(budget, name, None) for name in _POOL}
        found["users_long_run"] = self.users_long_run
        found["hours_over_long_run"] = vars(self.hours_over_long_run) if self.hours_over_long_run else None
        found["screened"] = [asdict(each) for each in self.screened]
        return found

    def _at(self, point: Point | None) -> dict[str, object] | None:
        """What is simulated with so many users; None where nothing was."""
        if point is None:
            return None
        found = served_json(point) | {"usd_per_million_output_tokens": self.usd_per_million_at(point)}
        found["attainment"] = _interval(point.attainment)
        if point.cancelled is not None:
            found["cancelled"] = point.cancelled.to_json()
        if point.tenants:
            found["tenants"] = [tenant.to_json() for tenant in point.tenants]
        if point.host_hit_rate is not None:
            found["host_hit_rate"] = point.host_hit_rate
        return found

    @property
    def runs(self) -> bool:
        """Whether the model fits these GPUs at all."""
        return self.plan is not None

    @property
    def usd_per_million_output_tokens(self) -> float | None:
        return self.usd_per_million_at(self.point)

    def usd_per_million_at(self, point: Point | None) -> float | None:
        """Dollars per million output tokens under a load."""
        rate = point.mean("output_tokens_per_s") if point else 0.0
        return self.usd_per_hour / (rate * 3600) * 1e6 if rate and self.usd_per_hour is not None else None


def best_row(rows: Sequence[CapacityRow]) -> CapacityRow:
    """The row whose number leads: the most users to sign for, on the fewest GPUs."""
    return min(rows, key=lambda row: (-row.users_low, -row.users, row.gpus))


def capacity_rows(
    question: CapacityQuestion,
    watcher: Watcher | None = None,
    simulations: Simulations | None = None,
    estimated: Callable[[int, int], None] = lambda *_: None,
) -> Iterator[CapacityRow]:
    """One row per GPU count, as each is found; what a smaller count showed corrects the next estimate.

    `estimated` gets each GPU count with about how many users it serves, before anything is simulated.
    """
    found_over_estimate: dict[int, float] = {}
    how = RunContext(watcher=watcher, simulations=simulations or Simulations(), estimated=estimated)
    for gpus in question.gpus:
        yield _row(question, gpus, found_over_estimate, how)


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """Shows what is simulated to a watcher; knows where it runs, and where it is kept."""

    watcher: Watcher | None = None
    simulations: Simulations = field(default_factory=Simulations)
    estimated: Callable[[int, int], None] = lambda *_: None


def _row(question: CapacityQuestion, gpus: int, found_over_estimate: dict[int, float], how: RunContext) -> CapacityRow:
    plans = plans_of(question, gpus)
    runnable = {tp: plan for tp, plan in plans.items() if isinstance(plan, Deployment)}
    if not runnable:
        reason = str(next(reversed(plans.values()), "no tensor-parallel size divides it"))
        return empty_row(question, gpus, max(plans, default=1), reason)
    evaluators = {tp: evaluator_of(question, plan, gpus // plan.gpus, how) for tp, plan in runnable.items()}
    estimates = {
        tp: estimate_users(runnable[tp], gpus // runnable[tp].gpus, each.load, each.slo)
        for tp, each in evaluators.items()
    }
    abouts = (_about(evaluators[tp], each, found_over_estimate.get(tp, 1.0)) for tp, each in estimates.items())
    how.estimated(gpus, max(abouts))
    best_tp, screened = _best_deployment(evaluators, estimates, found_over_estimate)
    plan, evaluator = runnable[best_tp], evaluators[best_tp]
    looked_at = tuple(
        Screened(tp=tp, users=0, reason=each)
        if isinstance(each, str)
        else Screened(tp=tp, users=_about(evaluators[tp], estimates[tp], found_over_estimate.get(tp, 1.0)))
        for tp, each in sorted(plans.items())
    )
    if screened == 0:
        row = empty_row(question, gpus, best_tp, no_capacity_reason(question, evaluator), plan)
        return replace(row, screened=looked_at)
    row = _refined_row(question, gpus, plan, evaluator, screened)
    if row.point is not None:
        found_over_estimate[best_tp] = row.point.size / estimates[best_tp].size
    return replace(row, screened=looked_at)


def _about(evaluator: Evaluator, estimate: Estimate, correction: float) -> int:
    """Users of the estimate; of a trace they are more than the size that is searched."""
    return round(estimated_users(evaluator.load, estimate, evaluator.slo) * correction)


def _best_deployment(
    evaluators: Mapping[int, Evaluator], estimates: Mapping[int, Estimate], found_over_estimate: dict[int, float]
) -> tuple[int, float]:
    """The TP that serves most, with its screened capacity; a larger TP must be better by BETTER.

    The most promising is searched first, since those that do not serve its load are then done with: by its estimate,
    corrected by what the TP's search of a smaller count found. Those far below the best are not searched.
    """
    guesses = {tp: each.size * found_over_estimate.get(tp, 1.0) for tp, each in estimates.items()}
    best_tp, best = max(evaluators), 0.0
    for tp in sorted(evaluators, key=lambda tp: (-guesses[tp], tp)):
        ratio = BETTER if tp > best_tp else 1 / BETTER
        if guesses[tp] * RANKED < best * ratio:
            continue
        found = screen_capacity(evaluators[tp], max(guesses[tp], best * ratio), at_least=best * ratio)
        if found > best * ratio:
            best_tp, best = tp, found
        if found:
            found_over_estimate[tp] = found / estimates[tp].size
    return best_tp, best


def plans_of(question: CapacityQuestion, gpus: int) -> dict[int, Deployment | str]:
    """By tensor-parallel size: the layout of a replica, or why it does not run."""
    found = layouts(question.architecture, question.gpu, question.args, num_gpus=gpus)
    factor = question.step_time_factor
    if factor == 1:
        return found
    return {tp: plan if isinstance(plan, str) else plan.with_step_times(factor) for tp, plan in found.items()}


def evaluator_of(question: CapacityQuestion, plan: Deployment, replicas: int, how: RunContext) -> Evaluator:
    """Simulates loads on so many replicas."""
    return Evaluator(
        fleet=replace(plan.fleet(replicas, question.router), flow_control=read_flow_control(question.flow_control)),
        load=stationary_load(question.load(plan), plan, replicas, question.slo),
        slo=question.slo,
        hours_met=question.hours_met,
        watcher=how.watcher,
        simulations=how.simulations,
    )


def _refined_row(
    question: CapacityQuestion, gpus: int, plan: Deployment, evaluator: Evaluator, guess: float
) -> CapacityRow:
    found = find_capacity(evaluator, guess, precision=question.precision, replications=question.replications)
    row = row_of(
        question,
        plan,
        evaluator,
        found,
        gpus=gpus,
        within_errors=lambda users: users_within_errors([plan], evaluator, found, users),
    )
    safe = safe_point(evaluator, found, users=row.users, users_low=row.users_low)
    row = replace(row, safe_point=safe)
    return row if question.hours_met is None else _beside_long_run(row, evaluator, found)


def _beside_long_run(row: CapacityRow, evaluator: Evaluator, found: Capacity) -> CapacityRow:
    """What it costs that single hours meet the SLO: the long run is judged in the same replications."""
    if found.knee is None:
        return row
    long_run = find_capacity(replace(evaluator, hours_met=None), found.mean, replications=row.replications)
    if long_run.knee is None or long_run.point is None:
        return row
    users = users_at(evaluator.load, replace(long_run.point, size=long_run.mean))
    return replace(row, users_long_run=users, hours_over_long_run=found.knee.over(long_run.knee))


def row_of(
    question: CapacityQuestion,
    plan: Deployment,
    evaluator: Evaluator,
    found: Capacity,
    *,
    gpus: int,
    within_errors: Callable[[int], ReadJson],
) -> CapacityRow:
    """What was found of one layout; `within_errors` says what its users are where step times and KV pool differ."""
    curve, point = tuple(evaluator.points()), found.point
    ends = {"low": found.low, "mean": found.mean, "high": found.high}
    users = {name: users_at(evaluator.load, replace(point, size=size)) if point else 0 for name, size in ends.items()}
    return CapacityRow(
        gpus=gpus,
        tp=plan.tensor_parallel_size,
        dp=plan.data_parallel_size,
        pp=plan.pipeline_parallel_size,
        replicas=gpus // plan.gpus,
        users=users["mean"],
        **interval_of_users(users, within_errors(users["mean"])),
        precision=found.half_width,
        replications=len(found.better_known.replications) if found.better_known else 0,
        is_precise=question.is_answered_by(found),
        reason=None if found.mean else no_capacity_reason(question, evaluator),
        binding=what_binds(plan, _just_above(curve, found)),
        plan=plan,
        point=point,
        curve=curve,
        curve_users=tuple(float(users_at(evaluator.load, item)) for item in curve),
        step_causes=step_causes(plan, point) if point else None,
        usd_per_hour=question.gpu.usd_per_hour_of(gpus),
        knee=found.knee,
    )


def _just_above(curve: tuple[Point, ...], found: Capacity) -> Point:
    """The first load that fails: what it fails by is what binds."""
    return next((point for point in curve if point.size > found.mean), curve[-1])


def no_capacity_reason(question: CapacityQuestion, evaluator: Evaluator) -> str:
    """Why not even the smallest load is served."""
    point = evaluator.points()[0]
    load = "1 user" if (point.size, evaluator.load.unit) == (1, "users") else f"{point.size:g} {evaluator.load.unit}"
    return not_served(question.slo, point, load, is_long_run=evaluator.hours_met is None)


def empty_row(
    question: CapacityQuestion, gpus: int, tp: int, reason: str, plan: Deployment | None = None
) -> CapacityRow:
    """Nobody is served, for that reason."""
    usd_per_hour = question.gpu.usd_per_hour_of(gpus)
    args = replace(question.args, tensor_parallel_size=tp)
    return CapacityRow(
        gpus=gpus, tp=tp, dp=args.num_engines, pp=args.pipeline_parallel_size, replicas=gpus // args.num_gpus,
        users=0, users_low=0, users_high=0, reason=reason, plan=plan, usd_per_hour=usd_per_hour,
    )  # fmt: skip


def _interval(interval: Interval) -> dict[str, float]:
    return {"mean": interval.mean, "low": max(interval.low, 0.0), "high": min(interval.high, 1.0)}
