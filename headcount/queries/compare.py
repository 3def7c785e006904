"""Which way to serve is the cheapest, or serves the most?"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from files.names import check_names
from headcount.diagnostics import find_diagnostics
from headcount.inputs.deployments import ENGINE_ARGUMENTS, check_counts
from headcount.inputs.disaggregation import check_compared
from headcount.inputs.loads import AskedWorkload
from headcount.inputs.offers import catalog_names
from headcount.inputs.traffic import TrafficChanges
from headcount.inputs.variations import (
    FORMATS,
    Axis,
    Choice,
    axes_of,
    check_axes_of_engines,
    choices,
    first_values,
    values_of,
)
from headcount.queries.report_data.study import Study
from headcount.queries.result import Progress, Result, Verdict, Watch, question, unwatched
from headcount.queries.sweeps.attribution import Attribution, attribution
from headcount.queries.sweeps.layout import Layout
from headcount.queries.sweeps.layouts import Layouts, facts_of, noted
from headcount.queries.sweeps.ranking import check_sort, is_promising, ranked
from headcount.text.blocks import Block, Line
from headcount.text.words import (
    PRECISION_REMARK,
)
from simulator.fleet.router import RouterFactory, check_router
from simulator.study.running.executor import DEFAULT_EXECUTOR
from simulator.study.slo import SLO, find_slo
from workloads.traces.trace_file import Source

MOST_LAYOUTS = 1000
PRECISION = 0.05
SHOWN_CUT = 0.01  # of conversations, prompts or answers, from which on a table has a column for it
HITS_LEGEND = (
    "prefix hits: share of prompt tokens found in GPU memory, and in host memory or a KV store where KV is kept there."
)
DECIDE_HITS = frozenset({"router", "kv_offloading_size", "kv_store_size", "enable_prefix_caching"})


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CompareResult(Result):
    """Layouts side by side, the best first; those that lost stay, with the reason."""

    kind = "compare"
    view = "compare"
    model: str
    workload: str
    slo: SLO
    seed: int
    sort: str
    axes: tuple[Axis, ...]
    layouts: tuple[Layout, ...]
    base: Choice
    attribution: Attribution | None = None

    @property
    def best(self) -> Layout | None:
        """The first of those that serve somebody."""
        first = self.layouts[0] if self.layouts else None
        return first if first is not None and first.row is not None and first.row.users else None

    def figures(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "workload": self.workload,
            "slo": vars(self.slo),
            "seed": self.seed,
            "sort": self.sort,
            "varied": [axis.name for axis in self.axes],
            "best": self.best.name if self.best else None,
            "layouts": self.rows(),
            "attribution": self.attribution.to_json() if self.attribution else None,
        }

    def rows(self) -> list[dict[str, Any]]:
        return [layout.to_json(self.best) for layout in self.layouts]

    @property
    def study(self) -> Study | None:
        return self.best.study if self.best else None

    @property
    def by_cost(self) -> bool:
        return self.sort in ("cost", "month")


@question
def compare(
    model: str,
    gpu: str | Sequence[str],
    *,
    gpus: int | Sequence[int] = 8,
    workload: Source = "chat",
    think_time_s: float | None = None,
    trace_block_size: int | None = None,
    traffic: TrafficChanges = None,
    slo: str = "chat",
    ttft_s: float | None = None,
    tpot_s: float | None = None,
    attainment: float | None = None,
    router: str | RouterFactory | Sequence[str | RouterFactory] | None = None,
    pools: str | Sequence[str] | None = None,
    kv_transfer: str | Sequence[str] | None = None,
    kv_transfer_rate: float | None = None,
    dispatch_s: float | None = None,
    decider: str | Sequence[str] | None = None,
    sort: str = "cost",
    simulate_all: bool = False,
    precision: float = PRECISION,
    replications: int | None = None,
    seed: int = 0,
    strict: bool = False,
    store: bool = True,
    executor: str = DEFAULT_EXECUTOR,
    workers: int | None = None,
    progress: Watch = unwatched,
    **engine: Any,
) -> CompareResult:
    """Layouts side by side, ranked; GPU, GPU count, router, pools and every engine argument may be a list.

    `pools` are "prefill=1,decode=3", … and "together", where all `gpus` do both; `kv_transfer` is "pull" or "push". The
    first value of every list is the base. The answer shows what each change from the base to the best layout gains.
    Layouts far behind by their estimate are only screened, unless `simulate_all`. Raises ValueError for a bad argument,
    RefusedError where `strict` refuses a note.
    """
    check_sort(sort)
    check_names(engine, ENGINE_ARGUMENTS, "engine argument")
    check_axes_of_engines(engine)
    check_counts("gpus", values_of("gpus", gpus))
    for each in () if router is None else values_of("router", router):
        check_router(each)
    pools, decider, kv_transfer = (None if each == () else each for each in (pools, decider, kv_transfer))
    asked_pools = () if pools is None else values_of("pools", pools)
    deciders = () if decider is None else values_of("decider", decider)
    transfers = () if kv_transfer is None else values_of("kv_transfer", kv_transfer)
    between = check_compared(
        asked_pools, deciders, transfers, gpus=gpus, kv_transfer_rate=kv_transfer_rate, dispatch_s=dispatch_s
    )
    given = {
        "gpu": catalog_names(gpu),
        "gpus": gpus,
        **engine,
        "router": router,
        "pools": pools,
        "decider": decider,
        "kv_transfer": kv_transfer,
    }
    axes, base = axes_of(given), first_values(given)
    asked = list(choices(axes, most=MOST_LAYOUTS, what="layouts"))
    limits = find_slo(slo, ttft_s=ttft_s, tpot_s=tpot_s, attainment=attainment)
    load = AskedWorkload(
        workload=workload, think_time_s=think_time_s, trace_block_size=trace_block_size, traffic=traffic
    )
    layouts = Layouts(
        model=model,
        asked=load,
        base=base,
        study={"slo": limits, "precision": precision, "replications": replications, "seed": seed},
        between=between,
    )
    found = layouts.all_screened(asked, progress)

    def answer(rows: Sequence[Layout], gained: Attribution | None = None, *, strict: bool = False) -> CompareResult:
        order = ranked(rows, sort)
        verdict = verdict_of(order)
        return CompareResult(
            diagnostics=find_diagnostics(facts_of(order, verdict), strict=strict),
            verdict=verdict,
            model=layouts.architecture.name,
            workload=str(load),
            slo=limits,
            seed=seed,
            sort=sort,
            axes=tuple(axes),
            layouts=order,
            base=asked[0],
            attribution=gained,
        )

    if strict:
        find_diagnostics(facts_of(found, Verdict.DONE), strict=True)
    wanted = [place for place in range(len(found)) if simulate_all or is_promising(found, place, sort)]
    with layouts.simulations(executor, workers, store=store) as simulations:
        for done, place in enumerate(wanted):
            progress(Progress(done=done, total=len(wanted), note=found[place].name, so_far=answer(found)))
            watcher = noted(progress, done, len(wanted), found[place].name)
            found[place] = layouts.simulated(found[place], watcher, is_served=True)
            progress(Progress(done=done + 1, total=len(wanted), found=found[place].found_line))
        gained = _gained(layouts, found, asked, sort)
    return replace(answer(found, gained, strict=strict), simulations=simulations)


def _gained(layouts: Layouts, found: list[Layout], asked: Sequence[Choice], sort: str) -> Attribution | None:
    """What the best gains over the base; layouts between them are simulated where they were only screened."""
    best = ranked(found, sort)[0]
    if best.row is None or not best.row.users:
        return None

    def at(choice: Choice) -> Layout:
        place = asked.index(choice)
        found[place] = layouts.simulated(found[place], is_served=True)
        return found[place]

    return attribution(found[0], best, at, by_cost=sort in ("cost", "month"))


def remarks_on(axes: Sequence[Axis]) -> list[Block]:
    """What to mind where formats are varied."""
    return [Line(PRECISION_REMARK)] if any(axis.name in FORMATS for axis in axes) else []


def verdict_of(layouts: Sequence[Layout]) -> Verdict:
    """Bad input if nothing runs, missed if nobody is served, inconclusive if the best is not known well enough."""
    best = layouts[0]
    if best.row is not None and best.row.users:
        return Verdict.DONE if best.row.is_precise else Verdict.INCONCLUSIVE
    if any(layout.is_screened_only for layout in layouts):
        return Verdict.DONE
    return Verdict.TARGET_MISSED if any(layout.row for layout in layouts) else Verdict.BAD_INPUT
