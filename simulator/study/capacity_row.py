"""The answer for one GPU count: users with their interval, and what was simulated for them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from files.documents import Json, ReadJson
from simulator.deployment import Deployment
from simulator.disaggregation import DisaggregatedDeployment
from simulator.fleet.router import RouterFactory, router_name
from simulator.study.bottleneck import not_served, step_causes, what_binds
from simulator.study.capacity import Capacity
from simulator.study.capacity_interval import interval_of_users, users_at, users_by_sampling
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.points import Evaluator, Point
from simulator.study.served import served_json
from simulator.study.slo_crossing import SLOCrossing
from simulator.study.statistics import Interval

_FIGURES = (
    "gpus", "replicas", "tp", "pp", "dp", "users", "users_low", "users_high", "users_low_sampling",
    "users_high_sampling", "precision", "users_low_precision", "users_high_precision", "replications",
    "users_at_step_time_error_high", "users_at_step_time_error_low", "step_time_error",
    "users_at_ttft_error_high", "users_at_ttft_error_low", "ttft_error",
    "users_at_kv_cache_low", "users_at_kv_cache_high", "binding", "reason", "usd_per_hour",
)  # fmt: skip
_USERS = (
    "users", "users_low", "users_high", "users_low_sampling", "users_high_sampling", "users_long_run",
    "users_at_step_time_error_high", "users_at_step_time_error_low", "users_at_ttft_error_high",
    "users_at_ttft_error_low", "users_at_kv_cache_low", "users_at_kv_cache_high",
)  # fmt: skip
TOLD_REQUESTS, MOST_TELLING = 2_000, 48  # of a load that is not served, replicated so often at most
ROUGH: Final = 0.25  # half of the sampling interval, as a share of the users
_POOL = ("num_gpu_blocks", "num_gpu_blocks_low", "num_gpu_blocks_high")


@dataclass(frozen=True, kw_only=True)
class Screened:
    """A way to serve that was looked at, and what is known of it; with a reason it does not run."""

    tp: int
    router: str | None = None  # of several engines
    users: int = 0
    users_low: int = 0
    evidence: str = "estimated"  # or coarse: from few replications; or confirmed
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
    users_low_precision: float | None = None  # the same of users_low itself; None where few replications say it
    users_high_precision: float | None = None
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
    screened: tuple[Screened, ...] = ()  # every layout and router that was looked at
    router: str | RouterFactory | None = None  # before several engines
    evidence: str = "confirmed"  # or coarse: from few replications
    coarse: "CapacityRow | None" = None  # what few replications showed of a confirmed row: paired with coarse ones

    @property
    def is_rough(self) -> bool:
        """Whether the users are known worse than asked, or hardly known where so many replications were asked for."""
        return not self.is_precise or self.precision > ROUGH

    @property
    def is_near_ttft_limit(self) -> bool:
        """Whether TTFT's own error takes more than half of the users, as where a lone prompt takes what is allowed."""
        return self.users_at_ttft_error_high is not None and 2 * self.users_at_ttft_error_high < self.users

    @property
    def is_near_kv_limit(self) -> bool:
        """Whether the fewest KV blocks that a server may have take more than half of the users, but not all."""
        return 0 < 2 * (self.users_at_kv_cache_low or 0) < self.users

    @property
    def may_queue(self) -> bool:
        """Whether steps as long as they may be take more than half of the users, which then wait: TPOT is in time."""
        slower = self.users_at_step_time_error_high
        return slower is not None and 2 * slower < self.users and not (self.binding or "").startswith("TPOT")

    @property
    def is_near_limit(self) -> bool:
        """Whether something that is not known well takes most of the users."""
        return self.is_near_ttft_limit or self.is_near_kv_limit or self.may_queue

    def to_json(self) -> Json:
        """The keys of `headcount capacity --json`, units in each."""
        point, budget = self.point, self.plan.budget if self.plan else None
        found = {name: getattr(self, name) for name in _FIGURES}
        found["at_users_low"], found["at_users"] = self._at(self.safe_point), self._at(point)
        found |= {name: getattr(budget, name, None) for name in _POOL}
        found["users_long_run"] = self.users_long_run
        found["hours_over_long_run"] = vars(self.hours_over_long_run) if self.hours_over_long_run else None
        found["screened"] = [asdict(each) for each in self.screened]
        found |= {"router": self.router_name, "unused_gpus": self.unused_gpus, "evidence": self.evidence}
        return found

    @property
    def router_name(self) -> str | None:
        """What divides requests among several engines."""
        return router_name(self.router) if self.router is not None and self.replicas * self.dp > 1 else None

    @property
    def unused_gpus(self) -> int:
        """GPUs beside those of whole replicas."""
        if self.plan is None or self.disaggregated is not None:
            return 0
        return self.gpus - self.replicas * self.plan.gpus

    def in_copies(self, copies: int, gpus: int, usd_per_hour: float | None) -> "CapacityRow":
        """As many of these replicas that share nothing, on so many GPUs."""
        known = {name: getattr(self, name) for name in _USERS}
        users: Json = {name: copies * count for name, count in known.items() if count is not None}
        return replace(
            self,
            **users,
            gpus=gpus,
            replicas=copies * self.replicas,
            usd_per_hour=usd_per_hour,
            point=self.point.in_copies(copies) if self.point else None,
            safe_point=self.safe_point.in_copies(copies) if self.safe_point else None,
            curve=tuple(point.in_copies(copies) for point in self.curve),
            curve_users=tuple(copies * users for users in self.curve_users),
            knee=self.knee.times(copies) if self.knee else None,
        )

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
    """The row whose number leads: the most users at 95 % confidence, on the fewest GPUs."""
    return min(rows, key=lambda row: (-row.users_low, -row.users, row.gpus))


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
    users = users_by_sampling(evaluator.load, found)
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
        router=question.router,
    )


def _just_above(curve: tuple[Point, ...], found: Capacity) -> Point:
    """The first load that fails: what it fails by is the bottleneck."""
    return next((point for point in curve if point.size > found.mean), curve[-1])


def no_capacity_reason(question: CapacityQuestion, evaluator: Evaluator) -> str:
    """Why not even the smallest load is served."""
    point = _well_known(evaluator)
    load = "1 user" if (point.size, evaluator.load.unit) == (1, "users") else f"{point.size:g} {evaluator.load.unit}"
    return not_served(question.slo, point, load, is_long_run=evaluator.hours_met is None)


def _well_known(evaluator: Evaluator) -> Point:
    """The smallest load, with as many requests as tell which limits it meets."""
    first = evaluator.points()[0]
    count = math.ceil(TOLD_REQUESTS / max(first.mean("num_requests"), 1))
    return evaluator.point(first.size, min(max(count, len(first.replications)), MOST_TELLING))


def empty_row(
    question: CapacityQuestion, gpus: int, tp: int, reason: str, plan: Deployment | None = None
) -> CapacityRow:
    """Nobody is served, for that reason."""
    usd_per_hour = question.gpu.usd_per_hour_of(gpus)
    args = question.args.with_attention_ranks(tp)
    return CapacityRow(
        gpus=gpus, tp=tp, dp=args.num_engines * args.attention_groups, pp=args.pipeline_parallel_size,
        replicas=gpus // args.num_gpus,
        users=0, users_low=0, users_high=0, reason=reason, plan=plan, usd_per_hour=usd_per_hour, router=question.router,
    )  # fmt: skip


def _interval(interval: Interval) -> dict[str, float]:
    return {"mean": interval.mean, "low": max(interval.low, 0.0), "high": min(interval.high, 1.0)}
