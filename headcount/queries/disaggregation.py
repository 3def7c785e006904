"""How many users do pools serve that compute prompts and answers apart?"""

from dataclasses import dataclass

from files.documents import Json, ReadJson
from headcount.diagnostics import facts_about, find_diagnostics
from headcount.inputs.disaggregation import DisaggregatedPools, LinkInput, asked_disaggregated
from headcount.inputs.engine import EngineInput
from headcount.inputs.load import trace_notes
from headcount.inputs.prices import GPUPriceInput
from headcount.inputs.question import question
from headcount.inputs.run import RunInput
from headcount.inputs.search import PoolsSearch
from headcount.inputs.slo import SLOInput
from headcount.inputs.traffic import TrafficInput
from headcount.queries.autoscaling.pooled import PooledResult, effects_of, facts_of, verdict_of
from headcount.queries.report_data.disaggregation import disaggregated_json
from headcount.queries.report_data.sensitivity import swings_disaggregated
from headcount.queries.result import Progress, noted
from simulator.disaggregation import DEFAULT_ROUTER, DisaggregatedDeployment
from simulator.fleet.router import check_router, router_name
from simulator.study.candidate import RunContext
from simulator.study.capacity import Capacity
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.fleets.disaggregation import PairTable
from simulator.study.points import Evaluator, Point
from simulator.study.replication import simulate_users
from simulator.study.served import served_json
from workloads.traces.trace_file import Source


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DisaggregationResult(PooledResult):
    """Users of engines that compute prompts and engines that compute answers."""

    kind = "disaggregation"
    view = "disaggregation"
    disaggregated: DisaggregatedDeployment
    served: ReadJson  # the pools and handovers in one run at the capacity
    safe_point: Point | None  # what the users at 95 % confidence get

    @property
    def usd_per_hour(self) -> float | None:
        return self.question.gpu.usd_per_hour_of(self.disaggregated.gpus)

    def figures(self) -> Json:
        point = self.found.point
        return self.shared_figures() | {
            "gpu": self.question.gpu.name,
            "gpus": self.disaggregated.gpus,
            "at_users_low": served_json(self.safe_point) if self.safe_point else None,
            "at_users": served_json(point) if point else None,
            **self.served,
        }

    def rows(self) -> list[Json]:
        rows: list[Json] = self.served.get("pools", [])
        return rows

    def report_figures(self) -> Json:
        return swings_disaggregated(self.question, self.disaggregated) if self.users_low else {}


@question
def disaggregated_capacity(
    model: str,
    gpu: str,
    pools: DisaggregatedPools,
    *,
    link: LinkInput = LinkInput(),
    workload: Source = "chat",
    traffic: TrafficInput = TrafficInput(),
    slo: SLOInput = SLOInput(),
    engine: EngineInput = EngineInput(),
    search: PoolsSearch = PoolsSearch(),
    prices: GPUPriceInput = GPUPriceInput(),
    run: RunInput = RunInput(),
) -> DisaggregationResult:
    """Users that disaggregated prefill/decode serves: engines that compute prompts, and engines that compute answers.

    `pools` is such as {"prefill": "2", "decode": "2xtp4"}. Between them decode engines "pull" KV, or prefill engines
    "push" it (`kv_transfer`), at `kv_transfer_rate` GB/s by one GPU.
    `decider` says which prompts decode engines compute themselves, such as "isl_bounding:eff_isl_threshold=512".
    Raises HeadcountError for a bad argument, RefusedError where `strict` refuses a diagnostic.
    """
    run.check()
    router, progress = search.router, run.progress
    asked = prices.on(engine.on(model, gpu))
    disaggregated = asked_disaggregated(asked, pools, link)
    assert disaggregated is not None, "pools were asked for"
    check_router(router or DEFAULT_ROUTER)
    found, mean_s = traffic.load(workload, model=asked.architecture)
    question = CapacityQuestion(
        architecture=asked.architecture, gpu=asked.gpu, gpus=(disaggregated.gpus,), workload=found, think_time_s=mean_s,
        slo=slo.found(workload), args=asked.args, router=router, precision=search.precision,
        replications=search.replications, seed=run.seed,
    )  # fmt: skip
    find_diagnostics(facts_about(asked, plans=list(disaggregated.plans)), strict=run.strict)
    with run.simulations() as simulations:
        progress(Progress(done=0, total=1))
        how = RunContext(simulations=simulations, watcher=noted(progress, 0, 1))
        best = PairTable(question=question, disaggregated=disaggregated, how=how).best(disaggregated.counts)
        capacity, interval, safe_point = best.found(), best.interval(), best.safe_point
    effects, point = effects_of(found, disaggregated.plans), capacity.point
    known = facts_of(
        asked, question, capacity, gpus=disaggregated.gpus, plans=disaggregated.plans, traffic=effects,
        trace=trace_notes(found),
        steps=[(plan, point.mean_step) for plan in disaggregated.plans if point and point.mean_step],
    )  # fmt: skip
    return DisaggregationResult(
        diagnostics=find_diagnostics(known, strict=run.strict),
        verdict=verdict_of(question, capacity),
        question=question,
        plans=disaggregated.plans,
        disaggregated=disaggregated,
        found=capacity,
        interval=interval,
        router=router_name(best.router),
        served=_served(disaggregated, best.evaluator, capacity),
        safe_point=safe_point,
        workload=traffic.named(workload),
        traffic=effects,
        simulations=simulations,
    )


def _served(disaggregated: DisaggregatedDeployment, evaluator: Evaluator, found: Capacity) -> dict[str, object]:
    """What both pools do in one run at the capacity."""
    if found.point is None:
        return {}
    simulation, _ = simulate_users(evaluator.fleet, evaluator.load, evaluator.load.round(found.mean))
    return disaggregated_json(disaggregated, simulation)
