"""How many users do pools of different GPUs serve behind one router?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from files.errors import HeadcountError
from headcount.diagnostics import find_diagnostics
from headcount.inputs.deployments import resolve_model_and_gpu
from headcount.inputs.loads import AskedWorkload, trace_notes
from headcount.inputs.traffic import TrafficChanges
from headcount.queries.autoscaling.pooled import PooledResult, effects_of, facts_of, verdict_of
from headcount.queries.report_data.sensitivity import swings_of_pools
from headcount.queries.result import Progress, Watch, question, unwatched
from headcount.text.capacity import found_line
from headcount.text.units import counted
from headcount.text.words import load_text
from kvcache.models.catalog import find_gpu
from simulator.fleet.router import RouterFactory, check_router, router_name
from simulator.study.capacity import PRECISION
from simulator.study.capacity_table import CapacityQuestion, RunContext, capacity_rows
from simulator.study.fleets.heterogeneous_fleet import InFleet, PoolAlone, Together, serve_together
from simulator.study.points import Point
from simulator.study.running.executor import DEFAULT_EXECUTOR, find_executor
from simulator.study.running.simulations import Simulations
from simulator.study.slo import find_slo
from simulator.study.statistics import summary
from simulator.study.store.store import kept_simulations
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

    def figures(self) -> dict[str, Any]:
        return self.shared_figures() | {"pools": self.rows()}

    def rows(self) -> list[dict[str, Any]]:
        return [_row(pool, inside) for pool, inside in zip(self.together.pools, self.together.in_fleet, strict=True)]

    def report_figures(self) -> dict[str, Any]:
        return swings_of_pools(self.together.pools) if self.users_low else {}


def _row(pool: PoolAlone, inside: InFleet) -> dict[str, Any]:
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
    think_time_s: float | None = None,
    trace_block_size: int | None = None,
    traffic: TrafficChanges = None,
    slo: str = "chat",
    ttft_s: float | None = None,
    tpot_s: float | None = None,
    attainment: float | None = None,
    router: str | RouterFactory = "shortest-expected-delay",
    precision: float = PRECISION,
    replications: int | None = None,
    seed: int = 0,
    strict: bool = False,
    store: bool = True,
    executor: str = DEFAULT_EXECUTOR,
    workers: int | None = None,
    progress: Watch = unwatched,
    **engine: Any,
) -> FleetResult:
    """Users that pools of different GPUs serve together, and what each of them serves alone.

    `pools` has the number of GPUs by the name of the GPU, two at least; `engine` are vLLM's engine arguments under
    their names, of all pools. Raises HeadcountError for a bad argument or a pool that serves nobody, RefusedError where
    `strict` refuses a note.
    """
    _check_pools(pools)
    check_router(router)
    runs_on = find_executor(executor, workers)
    asked = [resolve_model_and_gpu(model, gpu, engine) for gpu in pools]
    load = AskedWorkload(
        workload=workload, think_time_s=think_time_s, trace_block_size=trace_block_size, traffic=traffic
    )
    found, mean_s = load.load()
    questions = [
        CapacityQuestion(
            architecture=each.architecture, gpu=each.gpu, gpus=(count,), workload=found, think_time_s=mean_s,
            slo=find_slo(slo, ttft_s=ttft_s, tpot_s=tpot_s, attainment=attainment), args=each.args, router=router,
            precision=precision, replications=replications, seed=seed,
        )
        for each, count in zip(asked, pools.values(), strict=True)
    ]  # fmt: skip
    with Simulations(executor=runs_on, store=kept_simulations() if store else None) as simulations:
        alone = _each_alone(questions, progress, simulations)
        how = RunContext(watcher=_watcher(progress, len(alone), len(alone) + 1), simulations=simulations)
        together = serve_together(alone, how)
    plans = tuple(pool.plan for pool in alone)
    traffic_found = effects_of(found, plans)
    steps = [(pool.plan, step) for pool in alone if pool.row.point and (step := pool.row.point.mean_step) is not None]
    known = facts_of(
        asked[0], questions[0], together.found, gpus=sum(pools.values()), plans=plans, steps=steps,
        traffic=traffic_found, trace=trace_notes(found),
    )  # fmt: skip
    return FleetResult(
        diagnostics=find_diagnostics(known, strict=strict),
        verdict=verdict_of(questions[0], together.found),
        question=questions[0],
        plans=plans,
        found=together.found,
        interval=together.figures,
        router=router_name(router),
        together=together,
        workload=str(load),
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
        watch = _watcher(progress, len(alone), len(questions) + 1)
        (row,) = capacity_rows(each, watch, simulations)
        alone.append(PoolAlone(question=each, row=row))
        alone[-1].check()
        line = f"{each.gpu.name} alone, {found_line(row)}"
        progress(Progress(done=len(alone), total=len(questions) + 1, found=line))
    return alone


def _watcher(progress: Watch, done: int, total: int) -> Any:
    progress(Progress(done=done, total=total))

    def watch(point: Point, unit: str) -> None:
        progress(Progress(done=done, total=total, note=load_text(point, unit)))

    return watch
