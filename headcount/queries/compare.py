"""Which way to serve is the cheapest, or serves the most?"""

from collections.abc import Callable, Sequence
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
from headcount.queries.money import price_lines
from headcount.queries.report_data.study import study_json
from headcount.queries.result import Progress, Result, Verdict, Watch, question, unwatched
from headcount.queries.sweeps.attribution import Attribution, attribution
from headcount.queries.sweeps.layout import Layout
from headcount.queries.sweeps.layouts import Layouts, facts_of, noted
from headcount.queries.sweeps.ranking import FAR_BEHIND, check_sort, is_promising, ranked
from headcount.queries.sweeps.ties import ties
from headcount.views.of.layouts_summary import GPUS_REMARK, compared_options, layout_page, layouts_json, spoken
from headcount.views.summary.summary import Summary
from headcount.text.blocks import Block, Line, Table
from headcount.text.units import counted, dollars, milliseconds, percent, seconds
from headcount.text.words import (
    BEST,
    COVERED,
    PER_SAFE_MEANING,
    PER_SAFE_USER,
    PRECISION_REMARK,
    SAFE,
    model_title,
    ratio_text,
    safe_meaning,
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
WORDS = {
    "tensor_parallel_size": ("TP", "tensor parallelism: so many GPUs share the work of one server."),
    "kv_cache_dtype": ("KV", "what GPUs keep of conversations; in fewer bits it takes less memory and may change the "
                       "answers."),
}  # fmt: skip
COLUMNS = (
    "layout", "servers", SAFE, BEST, "$/month", PER_SAFE_USER, "TTFT p95", "TPOT p95", "vs best",
    "what binds",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CompareResult(Result):
    """Layouts side by side, the best first; those that lost stay, with the reason."""

    kind = "compare"
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

    def summary(self) -> Summary:
        question = (
            f"Which of {counted(len(self.layouts), 'way')} to serve {model_title(self.model)} has {ORDERS[self.sort]}?"
        )
        options = compared_options(self.layouts, self.best)
        return layout_page(
            self, question, self.best, slo=self.slo, options=options, others=self.layouts, also=self._ties(spoken),
            about=f"With {spoken(self.best)}: " if self.best else "", leads="step times",
            words=[WORDS[axis.name] for axis in self.axes if axis.name in WORDS],
        )  # fmt: skip

    def _ties(self, named: Callable[[Layout], str]) -> list[tuple[str, str]]:
        return list(ties(self.layouts, self.best, named)) if self.sort == "cost" else []

    def details(self) -> dict[str, Any]:
        bars = layouts_json(self.layouts, self.best, by_cost=self.by_cost)
        return study_json(self, self.best.study if self.best else None) | {"layouts": bars}

    def head(self) -> list[Block]:
        title = Line(f", workload {self.workload}: {self.slo}", bold=self.model)
        best = self.best
        if best is None:
            return [title]
        cost = best.usd_per_user_month
        said = f": {counted(best.users, 'user')} on {counted(best.gpus, 'GPU')}" + (
            f", ${cost:,.2f} per safe user and month" if cost else ""
        )
        of = f"{ORDERS[self.sort]} of {counted(len(self.layouts), 'layout')}"
        near = [Line(f"{label}: {told}") for label, told in self._ties(lambda each: each.name)]
        return [title, Line(f"{said}; {of}", bold=best.name), *near, *remarks_on(self.axes)]

    def body(self) -> list[Block]:
        reasons = [Line(f"{layout.name}: {layout.reason}") for layout in self.layouts if layout.reason]
        return [
            Table(columns=self.columns, rows=self.cells(), text_columns=(0, 1, len(self.columns) - 1), bold_column=2),
            *reasons,
            *self._gains(),
            Line(),
            *(Line(text, dim=True) for text in self.legend),
        ]

    @property
    def is_cut(self) -> bool:
        """Whether some layout's limit on the context touches at least 1 % of the traffic."""
        return any(layout.traffic and layout.traffic.worst >= SHOWN_CUT for layout in self.layouts)

    @property
    def shows_hits(self) -> bool:
        """Whether something is varied on which it depends how much of the prompts is found in a cache."""
        return not DECIDE_HITS.isdisjoint(axis.name for axis in self.axes)

    @property
    def columns(self) -> tuple[str, ...]:
        more = [*(["prefix hits"] if self.shows_hits else []), *(["traffic cut"] if self.is_cut else [])]
        beside = f"{'$/user' if self.by_cost else 'users'} vs best"
        return (*COLUMNS[:-2], beside, *more, COLUMNS[-1])

    def cells(self) -> list[tuple[str, ...]]:
        return [self._cells(layout) for layout in self.layouts]

    def _cells(self, layout: Layout) -> tuple[str, ...]:
        cut = [percent(layout.traffic.worst) if layout.traffic else "–"] if self.is_cut else []
        money = dollars(layout.usd_per_month), dollars(layout.usd_per_user_month)
        if layout.row is None or not layout.row.users:
            more = ["–"] if self.shows_hits else []
            if not layout.is_screened_only:
                return (layout.name, layout.layout, "0", "–", *money, "–", "–", "–", *more, *cut, "see below")
            about, cost = f"about {layout.users:,}", f"over {money[1]}" if layout.users else "–"
            why = "only screened: far behind"
            return (layout.name, layout.layout, "–", about, money[0], cost, "–", "–", "–", *more, *cut, why)
        ratio = layout.cost_over(self.best) if self.by_cost and self.best else None
        ratio = ratio or (layout.users_over(self.best) if self.best else None)
        return (
            layout.name,
            layout.layout,
            f"{layout.users:,}",
            f"{layout.row.users:,}",
            *money,
            seconds(layout.p95_s("ttft_s")),
            milliseconds(layout.p95_s("tpot_s")),
            "best" if layout is self.best else f"{self._dearer(layout)}{ratio_text(ratio)}",
            *([layout.hits] if self.shows_hits else []),
            *cut,
            layout.row.binding or "",
        )

    def _dearer(self, layout: Layout) -> str:
        """Of another GPU than the best, first by what rows are ranked: it may differ much from the best estimates'."""
        best = self.best
        if best is None or self.sort != "cost" or not best.asked or not layout.asked:
            return ""
        usd, least = layout.usd_per_user_month, best.usd_per_user_month
        if layout.asked.gpu == best.asked.gpu or not usd or not least:
            return ""
        return f"{100 * (usd / least - 1):+.0f} %; best estimate "

    @property
    def is_of_several_gpus(self) -> bool:
        return len({layout.asked.gpu.name for layout in self.layouts if layout.asked}) > 1

    @property
    def by_cost(self) -> bool:
        return self.sort in ("cost", "month")

    def _gains(self) -> list[Block]:
        found = self.attribution
        if found is None:
            return []
        if found.whole is None:
            return [Line(), Line("the first layout that was asked for serves nobody, so no change has a gain over it")]
        whole = f" {found.of} from the base to the best, one change after the other: "
        chain, alone = ", ".join(map(str, found.chain)), ", ".join(map(str, found.alone))
        said: list[Block] = [Line(), Line(f"{whole}{chain}", bold=ratio_text(found.whole))]
        return [*said, Line(f"each change alone: {alone}")] if len(found.alone) > 1 else said

    @property
    def legend(self) -> list[str]:
        """What the columns mean."""
        of = "dollars per user of the best estimate" if self.by_cost else "users"
        shared = "layouts of one GPU share them."
        if self.is_of_several_gpus:
            lead = " Of another GPU, what comes first is $/safe user, which ranks the rows and has them."
            shared = f"they differ by GPU.{lead if self.sort == 'cost' else ''}"
        screened = f"only screened: by its estimate over {FAR_BEHIND:g} times as far behind; --all simulates it, too."
        is_served = any(layout.row and layout.row.safe_point for layout in self.layouts)
        at = "with the users who are safe to promise" if is_served else "at the best estimate, there near their limits"
        return [
            f"{safe_meaning(COVERED)} Best estimate: its mean. Latencies: {at}. {PER_SAFE_MEANING}",
            *price_lines(
                {
                    layout.asked.gpu.name: (layout.asked.gpu, layout.asked.gpu.usd_per_hour)
                    for layout in self.layouts
                    if layout.asked
                }.values()
            ),
            f"… vs best: {of} beside the first row, from the same users and requests in both, with its 95 % interval "
            f"over replications. Errors of step times are not in it: {shared}",
            *([GPUS_REMARK] if self.is_of_several_gpus else []),
            *([HITS_LEGEND] if self.shows_hits else []),
            *([screened] if any(layout.is_screened_only for layout in self.layouts) else []),
        ]


ORDERS = {
    "cost": "the lowest cost per safe user",
    "users": "the most users",
    "ttft": "the least TTFT",
    "tpot": "the least TPOT",
    "month": "the lowest cost per month",
}


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
