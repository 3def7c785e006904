"""One interval of users for what replications, step times and the KV pool leave open."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from files.documents import Json, ReadJson
from simulator.deployment import Deployment
from simulator.study.capacity import Capacity, capacity_beside, crossing_under, size_near
from simulator.study.estimate import Estimate, estimate_users
from simulator.study.loads import Load
from simulator.study.points import Evaluator, Point
from simulator.study.slo import SLO
from simulator.study.slo_crossing import Located, added

POOL_MATTERS = 0.02  # half of the interval of KV blocks, from which on users are searched at its ends
TTFT_MATTERS = 0.05  # requests near the limit on TTFT over those that may miss, from which on users are searched
GUESSED_POWER = -2 / 3  # of the factor of steps: users over those under the scaled SLO, before that is simulated
HITS_POWER = 0.8  # of the factor of steps, for each share of prompt tokens that is found in a cache (search.md)
FEW_USERS = 100  # below which an interval is made of fractions of users: a whole one is more than 1 %
SLOWER, FASTER = "users_at_step_time_error_high", "users_at_step_time_error_low"
LATER, SOONER = "users_at_ttft_error_high", "users_at_ttft_error_low"
SMALLER, LARGER = "users_at_kv_cache_low", "users_at_kv_cache_high"
FEWER, MORE = "fewer_by_sampling", "more_by_sampling"


def interval_of_users(sampled: Mapping[str, int], within: ReadJson) -> Json:
    """All sources of error as one interval: their logarithms add as independent errors do.

    `sampled` has what replications say (`low`, `mean`, `high`), `within` what `users_within_errors` found. The
    precision of an end is its own simulation noise: half of its 95 % interval, as a share.
    """
    within = dict(within)
    located: Mapping[str, Located] = within.pop("located", {})
    users, low, high = sampled["mean"], sampled["low"], sampled["high"]
    found = {name: within.get(name, users) for name in (SLOWER, LATER, SMALLER, FASTER, SOONER, LARGER)}
    ends = {name: located[name].size if name in located else found[name] for name in found}
    centre, least, most = (
        located[name].size if name in located else whole
        for name, whole in (("users", users), (FEWER, low), (MORE, high))
    )
    return {
        **within,
        "users_low": math.floor(_together(centre, [least, *(ends[name] for name in (SLOWER, LATER, SMALLER))])),
        "users_high": math.floor(_together(centre, [most, *(ends[name] for name in (FASTER, SOONER, LARGER))])),
        "users_low_sampling": low,
        "users_high_sampling": high,
        "users_low_precision": _precision(located, (SLOWER, LATER, SMALLER), least),
        "users_high_precision": _precision(located, (FASTER, SOONER, LARGER), most),
    }


def _precision(located: Mapping[str, Located], names: Iterable[str], sampled: float) -> float | None:
    """Of the end that these make together with what replications say alone; None where one is not known so well."""
    users, ends = located.get("users"), [located[name] for name in names if name in located]
    if users is None or not users.size or not sampled or not all(each.size for each in ends):
        return None
    shifts = [math.log(each.size / users.size) for each in ends]
    whole = math.hypot(math.log(sampled / users.size), *shifts)
    weights = [(each, abs(shift) / whole) for each, shift in zip(ends, shifts, strict=True) if shift]
    return _powers((users, 1 - sum(weight for _, weight in weights)), *weights).half_width


def _powers(*factors: tuple[Located, float]) -> Located:
    """The product of powers of what the same replications have shown."""
    size = math.prod(each.size**power for each, power in factors)
    errors = added(*(None if each.errors is None else power * each.errors for each, power in factors))
    return Located(size=size, errors=errors, fewest=min(each.fewest for each, _ in factors))


def _together(users: float, ends: Iterable[float]) -> float:
    """An end of the interval from where each source alone puts it, all on the same side of `users`."""
    others = [end for end in ends if end != users]
    if users == 0 or len(others) < 2 or min(others) == 0:  # exact, whatever logarithms round to
        return max(others, default=users) if min(others, default=users) > users else min(others, default=users)
    distance = math.hypot(*(math.log(end / users) for end in others))
    return users * math.exp(math.copysign(distance, others[0] - users))


def users_by_sampling(load: Load, found: Capacity) -> dict[str, int]:
    """`low`, `mean` and `high` of what replications say; all 0 where nobody is served."""
    point, sizes = found.point, {"low": found.low, "mean": found.mean, "high": found.high}
    return {name: users_at(load, replace(point, size=size)) if point else 0 for name, size in sizes.items()}


def users_within_errors(plans: Sequence[Deployment], evaluator: Evaluator, found: Capacity, users: int) -> Json:
    """Users where step times, then TTFT, then the KV pool, differ by the error that covers 90 % of servers.

    `plans` has the deployment of each of the fleet's pools. All of them err on the same side at once.
    """
    if not users:
        return {}
    changes = _Changes(plans=tuple(plans), evaluator=evaluator, found=found, users=users)
    parts = [_within_step_times(changes), _within_ttft(changes), _within_pool(changes)]
    located = {name: each for part in parts for name, each in part.pop("located", {}).items()}
    return {name: each for part in parts for name, each in part.items()} | {
        "located": {"users": changes.expected, **changes.sampled_ends(), **located}
    }


@dataclass(frozen=True, kw_only=True)
class _Changes:
    """What was found of a fleet, and what its servers would serve if they were others."""

    plans: tuple[Deployment, ...]
    evaluator: Evaluator
    found: Capacity
    users: int

    @property
    def sequences(self) -> float:
        """That run at once."""
        step = self.found.point.mean_step if self.found.point else None
        return step.sequences if step else 1.0

    @property
    def expected(self) -> Located:
        """The users, as the replications show them; few users with their fraction."""
        knee = self.found.knee
        if knee is None or not self.found.mean:
            return Located(size=self.users)
        return self._users(knee.located) if self.users < FEW_USERS else replace(knee.located, size=self.users)

    def sampled_ends(self) -> dict[str, Located]:
        """The simulation noise of few users, with fractions of users.

        Of a dozen users a whole one is 8 %: that hides errors, each of which alone moves less than one user.
        """
        expected, half = self.expected, self.expected.half_width
        if self.users >= FEW_USERS or half is None or not self.found.low:
            return {}
        sizes = {FEWER: expected.size * math.exp(-half), MORE: expected.size * math.exp(half)}
        return {name: Located(size=size) for name, size in sizes.items()}

    def users_under(self, slo: SLO) -> Located:
        """Users of the fleet under another SLO."""
        crossing = crossing_under(self.evaluator, self.found, slo)
        return self._users(crossing.knee.located) if crossing else Located(size=0.0)

    @property
    def power(self) -> float:
        """Of the factor of steps: users over those under the scaled SLO, as close as it is known without simulating.

        Requests take as much more time. Prefixes are used again after as much time as before, with fewer users in
        between: more are served than that where many are found.
        """
        return HITS_POWER * (self.found.point.mean("prefix_hit_rate") if self.found.point else 0.0) - 1

    def step_error(self, plan: Deployment, *, shorter: bool = False) -> float:
        return plan.latency.step_error_at(self.sequences, shorter=shorter)

    @property
    def step_errors(self) -> tuple[float, float]:
        """By what share steps may be longer, and their inverse shorter: of the pool that may be off most."""
        longer, shorter = (
            max(self.step_error(plan, shorter=is_shorter) for plan in self.plans) for is_shorter in (False, True)
        )
        return longer, shorter

    @property
    def ttft_errors(self) -> tuple[float, float]:
        """The same of TTFT beside steps."""
        longer, shorter = (
            max(plan.latency.ttft_error_at(self.sequences, shorter=is_shorter) for plan in self.plans)
            for is_shorter in (False, True)
        )
        return longer, shorter

    def users_near(self, slo: SLO, scale: float = 1.0) -> Located:
        """About so many times the users under another SLO, from what was simulated already."""
        return self._users(size_near(self.evaluator, slo), scale) if self.found.mean else Located(size=0.0)

    def users_with_steps(self) -> tuple[Located, Located]:
        """Users of the fleet if each step takes as much longer as it may, then as much shorter.

        That is nearly a change of scale: so many times the users meet limits that are so many times shorter. What this
        is off by is simulated for longer steps, and taken to be as much, the other way, for shorter ones (by a power,
        where these may be off by less).
        """
        (longest, shortest), slo = self.step_errors, self.evaluator.slo

        def longer(plan: Deployment) -> Deployment:
            return plan.with_step_times(1 + self.step_error(plan))

        slower = self.users_on(longer, *scaled_limits(slo, 1 + longest))
        by_scale, faster = (
            self.users_near(*scaled_limits(slo, factor)) for factor in (1 + longest, (1 + shortest) ** -1)
        )
        return slower, _powers((faster, 1.0), (by_scale, 1.0), (slower, -1.0)) if slower.size else faster

    def users_on(self, change: Callable[[Deployment], Deployment], partner: SLO, scale: float = 1.0) -> Located:
        """Users of the fleet with servers that are changed so, under the same load.

        The `partner` SLO, met by the servers as they are, moves with the change; users are about `scale` times those
        under it.
        """
        changed = [change(plan) for plan in self.plans]
        load = load_on(changed, self.evaluator.load)
        crossing = crossing_under(self.evaluator, self.found, partner)
        if load is None or crossing is None:
            return Located(size=0.0)
        pools = tuple(
            replace(pool, engine=plan.engine, step_times=plan.latency.step_times)
            for plan, pool in zip(changed, self.evaluator.fleet.pools, strict=True)
        )
        fleet = replace(self.evaluator.fleet, pools=pools)
        other = replace(self.evaluator, fleet=fleet, load=load, known={})
        return self._users(capacity_beside(other, crossing, scale))

    def _users(self, found: Located, scale: float = 1.0) -> Located:
        size = self.users * scale * found.size / self.found.mean
        return replace(found, size=size if self.users < FEW_USERS else math.floor(size))

    def between(self, worse: str, least: Located, better: str, most: Located, **more: float) -> Json:
        """The users at both ends, which lie on both sides of those expected."""
        low = least if least.size < self.expected.size else self.expected
        high = most if most.size > self.expected.size else self.expected
        ends = {worse: low, better: high}
        return {**{name: math.floor(end.size) for name, end in ends.items()}, **more, "located": ends}


def _within_step_times(changes: _Changes) -> Json:
    if all(plan.latency.is_given for plan in changes.plans):
        return {}
    slower, faster = changes.users_with_steps()
    return changes.between(SLOWER, slower, FASTER, faster, step_time_error=changes.step_errors[0])


def _within_ttft(changes: _Changes) -> Json:
    """TTFTs that are so many times as long meet a limit that is so many times shorter."""
    slo, point = changes.evaluator.slo, changes.found.point
    error, shorter_by = changes.ttft_errors
    if slo.ttft_s is None or not error or point is None:
        return {}
    longer, shorter = ttft_limits(slo, error, shorter_by)
    if float(np.mean(point.ttft_over(longer) > 1)) < TTFT_MATTERS * (1 - slo.attainment):
        return {}
    return changes.between(LATER, changes.users_under(longer), SOONER, changes.users_near(shorter), ttft_error=error)


def scaled_limits(slo: SLO, factor: float, power: float = GUESSED_POWER) -> tuple[SLO, float]:
    """Limits as much shorter as steps take longer, and about how many times the users under them there are then."""
    tpot_s = None if slo.tpot_s is None else slo.tpot_s / factor
    return replace(slo.with_ttft(1 / factor), tpot_s=tpot_s), factor**power


def ttft_limits(slo: SLO, error: float, shorter: float | None = None) -> tuple[SLO, SLO]:
    """What to ask of simulated TTFTs where real ones are longer by this share, then where theirs are `shorter` by one.

    None: by as much.
    """
    return slo.with_ttft(1 / (1 + error)), slo.with_ttft(1 + (error if shorter is None else shorter))


def safe_share(
    found: Estimate, plan: Deployment, servers: int, *, load: Load, slo: SLO, role: str | None = None
) -> float:
    """The users at 95 % confidence over those of an estimate, by what step times and TTFT may err; estimated, too."""
    sequences = found.in_flight / (servers * plan.data_parallel_size)
    steps, waits = math.log1p(plan.latency.step_error_at(sequences)), 0.0
    if slo.ttft_s is not None and (error := plan.latency.ttft_error_at(sequences)):
        longer, _ = ttft_limits(slo, error)
        waits = math.log(max(found.size / estimate_users(plan, servers, load, longer, role).size, 1.0))
    return math.exp(-math.hypot(steps, waits))


def located_within_errors(
    plans: Sequence[Deployment],
    counts: Sequence[int],
    evaluator: Evaluator,
    found: Capacity,
    users: int,
    *,
    slo: SLO | None = None,
) -> Json:
    """The same from what was simulated to locate the users; what fewer KV blocks leave is estimated.

    `counts` has the servers of each pool; `slo` is what the users were found for, if not the evaluator's.
    """
    if not users:
        return {}
    changes = _Changes(plans=tuple(plans), evaluator=evaluator, found=found, users=users)
    within: Json = {}
    slo = slo or evaluator.slo
    if not all(plan.latency.is_given for plan in plans):
        longest, shortest = changes.step_errors
        slower, faster = (
            changes.users_near(*scaled_limits(slo, factor, changes.power))
            for factor in (1 + longest, (1 + shortest) ** -1)
        )
        within |= changes.between(SLOWER, slower, FASTER, faster, step_time_error=longest)
    error, shorter = changes.ttft_errors
    if slo.ttft_s is not None and error:
        later, sooner = (changes.users_near(limits) for limits in ttft_limits(slo, error, shorter))
        within |= changes.between(LATER, later, SOONER, sooner, ttft_error=error)
    if _pool_matters(plans):
        served = estimated_size(plans, counts, evaluator.load, slo)

        def users_on(changed: Sequence[Deployment]) -> int:
            load = load_on(changed, evaluator.load)
            return math.floor(users * estimated_size(changed, counts, load, slo) / served) if load else 0

        smaller = users_on([*map(with_fewest, plans)]) if all(map(starts_with_fewest, plans)) else 0
        larger = users_on([*map(with_most, plans)])
        within |= {SMALLER: min(smaller, users), LARGER: max(larger, users)}
    within.pop("located", None)  # few replications do not say how well they know it
    return within


def estimated_size(plans: Sequence[Deployment], counts: Sequence[int], load: Load, slo: SLO) -> float:
    """As large a load as all servers of all pools should serve, each of them by itself."""
    return sum(estimate_users(plan, count, load, slo).size for plan, count in zip(plans, counts, strict=True))


def _pool_matters(plans: Sequence[Deployment]) -> bool:
    budgets = [plan.budget for plan in plans]
    widths = [(each.num_gpu_blocks_high - each.num_gpu_blocks_low) / each.num_gpu_blocks for each in budgets]
    return max(widths) >= 2 * POOL_MATTERS


def _within_pool(changes: _Changes) -> Json:
    if not _pool_matters(changes.plans):
        return {}
    starts = all(map(starts_with_fewest, changes.plans))
    slo = changes.evaluator.slo
    smaller = changes.users_on(with_fewest, slo) if starts else Located(size=0.0)
    return changes.between(SMALLER, smaller, LARGER, changes.users_on(with_most, slo))


def with_fewest(plan: Deployment) -> Deployment:
    """With the fewest KV blocks that its server may have."""
    return plan.with_kv_blocks(plan.budget.num_gpu_blocks_low)


def with_most(plan: Deployment) -> Deployment:
    """With the most KV blocks that its server may have."""
    return plan.with_kv_blocks(plan.budget.num_gpu_blocks_high)


def starts_with_fewest(plan: Deployment) -> bool:
    """vLLM refuses to start where a request of max_model_len does not fit; SGLang takes shorter ones instead."""
    return plan.budget.kv_cache_tokens_low >= with_fewest(plan).engine.max_model_len


def load_on(plans: Sequence[Deployment], load: Load) -> Load | None:
    """As engines meet it that take no longer requests than they can hold; None where they refuse some."""
    engines = [plan.engine for plan in plans]
    return load.within(min(each.max_model_len for each in engines), min(each.max_prompt_tokens for each in engines))


def users_at(load: Load, point: Point | None) -> int:
    """How many users a simulated load stands for; 0 where there is none."""
    if point is None:
        return 0
    e2e_s = point.times("e2e_s")
    finished_s = e2e_s[np.isfinite(e2e_s)]
    e2e_mean_s = float(finished_s.mean()) if len(finished_s) else point.mean("horizon_s")  # none: it takes longer still
    return int(load.users(point.size, requests_per_s=point.mean("requests_per_s"), e2e_mean_s=e2e_mean_s))
