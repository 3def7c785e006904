"""How many users do pools of different GPUs serve behind one router?"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headcount.diagnostics import find_diagnostics
from headcount.inputs.deployments import resolve_model_and_gpu
from headcount.inputs.loads import AskedWorkload, trace_notes
from headcount.inputs.traffic import TrafficChanges
from headcount.queries.autoscaling.pooled import NOBODY, PooledResult, effects_of, facts_of, verdict_of
from headcount.queries.money import usd_per_month, usd_per_user_month
from headcount.queries.report_data.assumptions import gpu_rows, of_terms
from headcount.queries.report_data.sensitivity import swings_of_pools
from headcount.queries.result import Progress, Watch, question, unwatched
from headcount.views.of.capacity import found_line, row_layout
from headcount.views.summary.summary import Options, Priced, Summary, price_figures, servers_text
from headcount.text.blocks import Block, Line, Table
from headcount.text.units import counted, dollars, milliseconds, percent, seconds, whole_dollars
from headcount.text.words import BEST, PER_SAFE_MEANING, PER_SAFE_USER, SAFE, joined, load_text, model_title
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
MOST_DOWN = 2  # failures that the first page tells
COLUMNS = (
    "pool", "layout", "users alone", "of requests", "miss TTFT", "miss TPOT", "TTFT p95", "TPOT p95", "prefix hits",
    "$/hour",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FleetResult(PooledResult):
    """Users of all pools behind one router, and what each serves alone."""

    kind = "fleet"
    together: Together

    @property
    def usd_per_hour(self) -> float | None:
        prices = [pool.row.usd_per_hour for pool in self.together.pools]
        return sum(filter(None, prices)) if None not in prices else None

    @property
    def _gpus(self) -> str:
        return joined([f"{pool.row.gpus} × {pool.question.gpu.name}" for pool in self.together.pools])

    def figures(self) -> dict[str, Any]:
        return self.shared_figures() | {"pools": self.rows()}

    def rows(self) -> list[dict[str, Any]]:
        return [_row(pool, inside) for pool, inside in zip(self.together.pools, self.together.in_fleet, strict=True)]

    def head(self) -> list[Block]:
        return self.headline(self._gpus, f"behind the router {self.router}")

    def body(self) -> list[Block]:
        if not self.users:
            return [Line(NOBODY)]
        rows = [
            (
                f"{row['gpus']} × {row['gpu']}", row_layout(pool.row), f"{row['users_alone']:,}", f"{row['share']:.0%}",
                percent(round(row["ttft_misses"], 3)), percent(round(row["tpot_misses"], 3)),
                seconds(row["ttft_s"]["p95"]), milliseconds(row["tpot_s"]["p95"]), f"{row['prefix_hit_rate']:.0%}",
                dollars(row["usd_per_hour"]),
            )
            for pool, row in zip(self.together.pools, self.rows(), strict=True)
        ]  # fmt: skip
        return [
            Table(columns=COLUMNS, rows=rows, text_columns=(0,)),
            Line(),
            *(Line(text, dim=True) for text in self._legend()),
        ]

    def _legend(self) -> Iterator[str]:
        alone = sum(pool.row.users for pool in self.together.pools)
        yield f"alone the pools serve {alone:,} users in sum (mean); together {self.users / alone - 1:+.0%}"
        yield (
            "users alone: the mean that the pool serves without the others. What follows is of one run of the whole "
            f"fleet at {self.users:,} users: the share of requests that the router sends there, which of them miss the "
            "SLO, their latencies."
        )

    def summary(self) -> Summary:
        pools = self.together.pools
        gpus = joined([_pool_title(pool) for pool in pools])
        return self.page(
            f"How many users can {model_title(self.question.architecture.name)} serve on {gpus} together?",
            f"on {gpus} together",
            priced=self._priced,
            risk=f"{self._failure_text()} With another router than {self.router} the users may be fewer.",
            options=self._options(),
            words=[("router", f"what sends each request to a server. {self.router} is its rule.")],
        )

    @property
    def _priced(self) -> list[Priced]:
        return [(pool.question.gpu, pool.question.gpu.usd_per_hour) for pool in self.together.pools]

    @property
    def bought_figures(self) -> tuple[tuple[str, str], ...]:
        servers = [
            f"{servers_text(pool.row.replicas, pool.row.gpus)} ({pool.question.gpu.title})"
            for pool in self.together.pools
        ]
        return (("servers", f"{', '.join(servers)}; no spare"), *self.rent, *price_figures(self._priced))

    def _options(self) -> Options:
        rows = [
            (_pool_title(pool), f"{pool.row.users_low:,}", f"{pool.row.users:,}",
             *_money_cells(usd_per_month(pool.row.gpus, pool.question.gpu.usd_per_hour), pool.row.users_low))
            for pool in self.together.pools
        ]  # fmt: skip
        money = _money_cells(self.usd_per_month, self.users_low)
        together = ("all together", f"{self.users_low:,}", f"{self.users:,}", *money)
        alone = sum(pool.row.users for pool in self.together.pools)
        return Options(
            title="Each kind of GPU alone, and all together",
            columns=("GPUs", SAFE, BEST, "$ a month", PER_SAFE_USER),
            rows=(*rows, together),
            marked=len(rows),
            note=f"The best estimates of all alone add up to {alone:,}; together {self.users / alone - 1:+.0%}. "
            f"{PER_SAFE_MEANING}{self._added_text()}",
        )

    def _added_text(self) -> str:
        """Of two pools, what the one that serves fewer costs for each user that it adds."""
        if len(self.together.pools) != 2:
            return ""
        less, more = sorted(self.together.pools, key=lambda pool: pool.row.users_low)
        month = usd_per_month(less.row.gpus, less.question.gpu.usd_per_hour)
        added = self.users_low - more.row.users_low
        if month is None:
            return ""
        each = f", {dollars(month / added)} for each" if added > 0 else ""
        return f" Beside {_pool_title(more)} alone, {_pool_title(less)} adds {max(added, 0):,} of them{each}."

    def _failure_text(self) -> str:
        """What is left while a server of each pool is down, the one that is missed most first."""
        pools = sorted(self.together.pools, key=self._left_without)
        down = [
            f"while {'one' if pool.row.replicas > 1 else 'the one'} with {pool.question.gpu.title} is down, about "
            f"{self._left_without(pool):,} users are safe to promise"
            for pool in pools
        ]
        return f"No server is spare: {'; '.join(down[:MOST_DOWN])}."

    def _left_without(self, lost: PoolAlone) -> int:
        """Users without one server of a pool: those of the only other pool alone, else in proportion."""
        others = [pool for pool in self.together.pools if pool is not lost]
        if lost.row.replicas == len(others) == 1:
            return others[0].row.users_low
        share = lost.row.users_low / lost.row.replicas / max(sum(pool.row.users_low for pool in self.together.pools), 1)
        return math.floor((1 - share) * self.users_low)

    def details(self) -> dict[str, Any]:
        """Where the figures of each GPU come from."""
        terms = [
            item
            for pool in self.together.pools
            for item in (*of_terms(pool.question.gpu.name, gpu_rows(pool.question.gpu)),
                         *of_terms(f"{pool.question.gpu.name}: memory and step times", pool.plan.assumptions))
        ]  # fmt: skip
        return self.pooled_details(self._gpus, terms, swings_of_pools(self.together.pools) if self.users_low else {})


def _money_cells(month: float | None, users: int) -> tuple[str, str]:
    return whole_dollars(month), dollars(usd_per_user_month(month, users))


def _pool_title(pool: PoolAlone) -> str:
    return f"{pool.row.gpus:,} × {pool.question.gpu.title}"


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
    their names, of all pools. Raises ValueError for a bad argument or a pool that serves nobody, RefusedError where
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
    """Raise ValueError unless there are several pools of different GPUs, none of them empty."""
    if not 2 <= len(pools) <= MOST_POOLS:
        raise ValueError(
            f"pools has {counted(len(pools), 'pool')}; give 2 to {MOST_POOLS}, such as h100-sxm=4,l40s=8, or ask "
            "'headcount capacity' about one"
        )
    for name, count in pools.items():
        if count < 1:
            raise ValueError(f"the pool {name!r} has {count} GPUs; give at least 1")
    names = [find_gpu(name).name for name in pools]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"pools has {twice} twice; give each GPU once")


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
