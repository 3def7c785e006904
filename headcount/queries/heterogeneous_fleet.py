"""How many users do pools of different GPUs serve behind one router?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from files.documents import Json
from files.errors import HeadcountError
from headcount.diagnostics import find_diagnostics
from headcount.inputs.engine import EngineInput
from headcount.inputs.load import trace_notes
from headcount.inputs.prices import GPUPriceInput
from headcount.inputs.question import question
from headcount.inputs.run import RunInput
from headcount.inputs.search import HeterogeneousSearch
from headcount.inputs.slo import SLOInput
from headcount.inputs.traffic import TrafficInput
from headcount.queries.autoscaling.pooled import PooledResult, effects_of, facts_of, verdict_of
from headcount.queries.report_data.sensitivity import swings_of_pools
from headcount.queries.result import Progress, Watch, noted
from headcount.text.capacity import found_line
from headcount.text.units import counted
from kvcache.models.catalog import find_gpu
from simulator.fleet.router import check_router, router_name
from simulator.study.candidate import RunContext
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_table import capacity_rows
from simulator.study.fleets.heterogeneous_fleet import InFleet, PoolAlone, Together, serve_together
from simulator.study.running.simulations import Simulations
from simulator.study.statistics import summary
from workloads.traces.trace_file import Source

MOST_POOLS = 16


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FleetResult(PooledResult):
    """Users of all pools behind one router, and what each serves alone."""

    kind = "fleet"
    view = "heterogeneous_fleet"
    together: Together

    @property
    def usd_per_hour(self) -> float | None:
        prices = [pool.row.usd_per_hour for pool in self.together.pools]
        return sum(filter(None, prices)) if None not in prices else None

    def figures(self) -> Json:
        return self.shared_figures() | {"pools": self.rows()}

    def rows(self) -> list[Json]:
        return [_row(pool, inside) for pool, inside in zip(self.together.pools, self.together.in_fleet, strict=True)]

    def report_figures(self) -> Json:
        return swings_of_pools(self.together.pools) if self.users_low else {}


def _row(pool: PoolAlone, inside: InFleet) -> dict[str, object]:
    row = pool.row
    return {
        "gpu": pool.question.gpu.name,
        "gpus": row.gpus,
        "replicas": row.replicas,
        "tp": row.tp,
        "users_alone": row.users,
        "users_alone_low": row.users_low,
        "users_alone_high": row.users_high,
        "share": inside.share,
        "ttft_misses": inside.ttft_misses,
        "tpot_misses": inside.tpot_misses,
        "prefix_hit_rate": inside.prefix_hit_rate,
        "ttft_s": summary(inside.times.ttft_s),
        "tpot_s": summary(inside.times.tpot_s),
        "usd_per_hour": row.usd_per_hour,
    }


@question
def fleet(
    model: str,
    pools: Mapping[str, int],
    *,
    workload: Source = "chat",
    traffic: TrafficInput = TrafficInput(),
    slo: SLOInput = SLOInput(),
    engine: EngineInput = EngineInput(),
    search: HeterogeneousSearch = HeterogeneousSearch(),
    prices: GPUPriceInput = GPUPriceInput(),
    run: RunInput = RunInput(),
) -> FleetResult:
    """Users that pools of different GPUs serve together, and what each of them serves alone.

    `pools` has the number of GPUs by the name of the GPU, two at least; the engine's arguments are those of all pools.
    Raises HeadcountError for a bad argument or a pool that serves nobody, RefusedError where `strict` refuses a
    diagnostic.
    """
    _check_pools(pools)
    router, progress = search.router, run.progress
    if router is not None:
        check_router(router)
    run.check()
    pools = dict(sorted(pools.items(), key=lambda pool: find_gpu(pool[0]).name))  # engines have ids in this order
    prices.check(*pools)
    asked = [prices.at(engine.on(model, gpu)) for gpu in pools]
    found, mean_s = traffic.load(workload, model=asked[0].architecture)
    questions = [
        CapacityQuestion(
            architecture=each.architecture, gpu=each.gpu, gpus=(count,), workload=found, think_time_s=mean_s,
            slo=slo.found(workload), args=each.args, router=router, precision=search.precision,
            replications=search.replications, seed=run.seed,
        )
        for each, count in zip(asked, pools.values(), strict=True)
    ]  # fmt: skip
    with run.simulations() as simulations:
        alone = _each_alone(questions, progress, simulations)
        progress(Progress(done=len(alone), total=len(alone) + 1))
        how = RunContext(watcher=noted(progress, len(alone), len(alone) + 1), simulations=simulations)
        together = serve_together(alone, how)
    plans = tuple(pool.plan for pool in alone)
    traffic_found = effects_of(found, plans)
    steps = [(pool.plan, step) for pool in alone if pool.row.point and (step := pool.row.point.mean_step) is not None]
    known = facts_of(
        asked[0], questions[0], together.found, gpus=sum(pools.values()), plans=plans, steps=steps,
        traffic=traffic_found, trace=trace_notes(found),
    )  # fmt: skip
    return FleetResult(
        diagnostics=find_diagnostics(known, strict=run.strict),
        verdict=verdict_of(questions[0], together.found),
        question=questions[0],
        plans=plans,
        found=together.found,
        interval=together.figures,
        router=router_name(together.router),
        together=together,
        workload=traffic.named(workload),
        traffic=traffic_found,
        simulations=simulations,
    )


def _check_pools(pools: Mapping[str, int]) -> None:
    """Raise HeadcountError unless there are several pools of different GPUs, none of them empty."""
    if not 2 <= len(pools) <= MOST_POOLS:
        raise HeadcountError(
            f"pools has {counted(len(pools), 'pool')}; give 2 to {MOST_POOLS}, such as h100-sxm=4,l40s=8, or ask "
            "'headcount capacity' about one"
        )
    for name, count in pools.items():
        if count < 1:
            raise HeadcountError(f"the pool {name!r} has {count} GPUs; give at least 1")
    names = [find_gpu(name).name for name in pools]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise HeadcountError(f"pools has {twice} twice; give each GPU once")


def _each_alone(questions: Sequence[CapacityQuestion], progress: Watch, simulations: Simulations) -> list[PoolAlone]:
    alone: list[PoolAlone] = []
    for each in questions:
        progress(Progress(done=len(alone), total=len(questions) + 1))
        watch = noted(progress, len(alone), len(questions) + 1)
        (row,) = capacity_rows(each, watch, simulations)
        alone.append(PoolAlone(question=each, row=row))
        alone[-1].check()
        line = f"{each.gpu.name} alone, {found_line(row)}"
        progress(Progress(done=len(alone), total=len(questions) + 1, found=line))
    return alone
