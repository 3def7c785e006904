"""What each assumption does to the users, and what a longer context takes: estimated, and the costliest simulated."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from files.documents import Json
from files.reading import InputError
from headcount.queries.sweeps.candidates import candidates, change_text, screen_change
from headcount.text.populations import mean_context_tokens
from headcount.text.words import LEAST_LOST, error_sign
from simulator.deployment import Deployment
from simulator.disaggregation import DisaggregatedDeployment
from simulator.study.candidate import Level, RunContext
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_row import CapacityRow
from simulator.study.capacity_table import CapacityTable
from simulator.study.fleets.heterogeneous_fleet import PoolAlone
from simulator.study.running.simulations import Simulations
from simulator.study.variations.variation import screen, screen_disaggregated
from workloads.populations.population import Population
from workloads.populations.summary import population_summary
from workloads.traces.trace import Trace
from workloads.traffic import changed, changed_trace
from workloads.traffic_changes import Amount

SWING: Final = 0.2
CONTEXTS: Final = (1.0, 1.5, 2.0, 4.0)
USERS: Final = (0.5, 1.0, 2.0, 4.0)
MOST_SIMULATED: Final = 3  # swings: the first page has no more
_TRAFFIC: Final = {"context": "context length", "output": "length of answers", "think-time": "think time"}


@dataclass(frozen=True, kw_only=True)
class Swings:
    """What each assumption of a question does to its users, by an `estimate` of how many are served."""

    question: CapacityQuestion
    estimate: Callable[[CapacityQuestion], float]
    speed: str  # where step times are from
    simulate: Callable[[CapacityQuestion], int] | None = None
    """Users at 95 % confidence from few replications, for the swings that cost the most."""

    @cached_property
    def base(self) -> float:
        return self.estimate(self.question)

    def to_json(self) -> Json:
        """The largest first; empty where the estimate serves nobody."""
        if not self.base:
            return {}
        asked = {name: both for name, *both in self._swings()}
        swings: list[Json] = []
        for name, both in asked.items():
            less, more = map(self.ratio, both)
            if less is not None and more is not None:
                swings.append({"name": name, "value": self._values.get(name, ""), "less": less, "more": more})
        while self._simulated_base and (swing := _costliest_estimate(swings)):
            which = "less" if swing["less"] < swing["more"] else "more"
            question = asked[swing["name"]][which == "more"]
            assert question is not None and self.simulate is not None, "what was estimated was asked"
            swing |= {which: min(self.simulate(question) / self._simulated_base, 1.0), "simulated": which}
        return {"swing": SWING, "tornado": sorted(swings, key=lambda each: -abs(each["more"] - each["less"]))}

    @cached_property
    def _simulated_base(self) -> int:
        return self.simulate(self.question) if self.simulate is not None else 0

    @cached_property
    def _values(self) -> dict[str, str]:
        """What is assumed now."""
        load, slo = self.question.workload, self.question.slo
        if isinstance(load, Population):
            of, answer = "of prompt and answer", population_summary(load).mean_output_tokens
        else:
            of, answer = "a prompt", load.table.output_tokens.mean()
        return {
            "context length": f"{mean_context_tokens(load):,.0f} tokens {of} on average",
            "length of answers": f"{answer:,.0f} tokens on average",
            "think time": f"{self.question.think_time_s:,.0f} s on average",
            "step times": self.speed,
            "TTFT limit": slo.ttft_text,
            "TPOT limit": f"{1000 * slo.tpot_s:g} ms" if slo.tpot_s else "",
        }

    def _swings(self) -> Iterator[tuple[str, CapacityQuestion | None, CapacityQuestion | None]]:
        """The question with a fifth less and a fifth more of each assumption."""
        (few, many), slo = (1 - SWING, 1 + SWING), self.question.slo
        for key, name in _TRAFFIC.items():
            yield name, self.with_traffic(key, few), self.with_traffic(key, many)
        yield (
            "step times",
            replace(self.question, step_time_factor=few),
            replace(self.question, step_time_factor=many),
        )
        for name in ("ttft_s", "tpot_s"):
            if (limit := getattr(slo, name)) is not None:
                less, more = (replace(slo, **{name: factor * limit}) for factor in (few, many))
                yield f"{name[:4].upper()} limit", replace(self.question, slo=less), replace(self.question, slo=more)

    def with_traffic(self, name: str, factor: float) -> CapacityQuestion | None:
        """None where the load has no such thing."""
        if factor == 1:
            return self.question
        changes = {name: Amount(value=factor, is_factor=True)}
        load = self.question.workload
        try:
            found: Population | Trace = (
                changed_trace(load, changes) if isinstance(load, Trace) else changed(load, changes)
            )
        except InputError:
            return None
        think_time_s = found.think_time_s.mean() if isinstance(found, Population) else self.question.think_time_s
        return replace(self.question, workload=found, think_time_s=think_time_s)

    def ratio(self, asked: CapacityQuestion | None) -> float | None:
        if asked is None:
            return None
        try:
            return self.estimate(asked) / self.base
        except ValueError:  # such requests cannot be served at all
            return None


def _costliest_estimate(swings: Sequence[Json]) -> Json | None:
    """Of the costliest, one that is only estimated; None where all of them are simulated."""
    costliest = sorted(swings, key=lambda each: min(each["less"], each["more"]))[:MOST_SIMULATED]
    open_ = (each for each in costliest if "simulated" not in each and min(each["less"], each["more"]) < 1 - LEAST_LOST)
    return next(open_, None)


def speed_source(plans: Sequence[Deployment], error: float | None = None) -> str:
    """Where the step times of deployments are from, and how exact they are, in words of the first page."""
    latencies = [plan.latency for plan in plans]
    if latencies and all(latency.is_given for latency in latencies):
        return "as it was given"
    if latencies and all(latency.calibrated for latency in latencies):
        return "from your latency profile"
    if error is None:
        return "simulated, not measured on your servers"
    sign = next((found for latency in latencies if (found := error_sign(latency.tpot_log_error)) != "±"), "±")
    if not all(latency.is_measured for latency in latencies):
        return f"simulated; no such server was measured; the estimated error is {sign}{error:.0%}"
    return f"simulated, not measured on your servers; 90 % of measured servers are within {sign}{error:.0%} of it"


def swings_of_pools(pools: Sequence[PoolAlone]) -> dict[str, object]:
    """Of pools behind one router: the sum of what the estimates say of each alone."""

    def estimate(asked: CapacityQuestion) -> float:
        changed = {name: getattr(asked, name) for name in ("workload", "think_time_s", "slo", "step_time_factor")}
        return sum(screen(replace(_on(pool.question, pool.row), **changed)).users for pool in pools)

    speed = speed_source([pool.plan for pool in pools])
    return Swings(question=pools[0].question, estimate=estimate, speed=speed).to_json()


def swings_disaggregated(question: CapacityQuestion, disaggregated: DisaggregatedDeployment) -> dict[str, object]:
    """Of pools that compute prompts and answers apart, by the estimate of both."""

    def estimate(asked: CapacityQuestion) -> float:
        factor = asked.step_time_factor
        both = [plan if factor == 1 else plan.with_step_times(factor) for plan in disaggregated.plans]
        return screen_disaggregated(asked, replace(disaggregated, prefill=both[0], decode=both[1])).users

    return Swings(question=question, estimate=estimate, speed=speed_source(disaggregated.plans)).to_json()


def _on(question: CapacityQuestion, row: CapacityRow) -> CapacityQuestion:
    """The same of this row's layout alone."""
    return replace(question, gpus=(row.gpus,), args=question.args.with_attention_ranks(row.tp))


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """Estimates around one row; `users` is what its fleet is said to serve, `load_users` the load."""

    question: CapacityQuestion
    row: CapacityRow
    users: float
    load_users: float
    simulations: Simulations | None = None

    @cached_property
    def _swings(self) -> Swings:
        plans = [self.row.plan] if self.row.plan else []
        here, speed = _on(self.question, self.row), speed_source(plans, self.row.step_time_error)
        return Swings(
            question=here, estimate=lambda asked: screen(asked).users, speed=speed, simulate=self._users_of_a_server
        )

    def _users_of_a_server(self, asked: CapacityQuestion) -> int:
        """At 95 % confidence, from few replications of one of the servers."""
        plan = self.row.plan
        assert plan is not None, "a row that serves users has a plan"
        how = RunContext(simulations=self.simulations or Simulations())
        alone = CapacityTable(question=replace(asked, gpus=(plan.gpus,), router=None), how=how)
        return max((each.known_as(Level.COARSE).users_low for each in alone.candidates(plan.gpus)), default=0)

    def to_json(self) -> Json:
        """Empty where the estimate serves nobody."""
        swings = self._swings
        if not swings.base or not self.users:
            return {}
        contexts = [(factor, swings.ratio(swings.with_traffic("context", factor))) for factor in CONTEXTS]
        return swings.to_json() | {"contexts": self._grid(contexts), "estimated_suggestions": list(self._suggestions())}

    def _suggestions(self) -> Iterator[dict[str, object]]:
        """Changes of one setting; estimates know nothing of routers."""
        plan, here = self.row.plan, self._swings.question
        for name, value in candidates(here, self.row, plan) if plan else ():
            if name != "router" and (looked := screen_change(here, name, value)) is not None:
                yield {"change": change_text(name, value), "ratio": looked.users / self._swings.base}

    def _grid(self, contexts: list[tuple[float, float | None]]) -> dict[str, object] | None:
        """Servers and GPUs by context and users, whole servers in proportion to users at 95 % confidence."""
        known = [(factor, ratio) for factor, ratio in contexts if ratio is not None]
        if len(known) < 2 or self.row.plan is None:
            return None
        each = self.users / self.row.replicas
        gpus, users = self.row.plan.gpus, [round(share * self.load_users) for share in USERS]
        rows = [
            {
                "factor": factor,
                "gpus": [gpus * math.ceil(count / (each * ratio)) if each * ratio else None for count in users],
            }
            for factor, ratio in known
        ]
        return {"users": users, "rows": rows}
