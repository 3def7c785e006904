"""Which way to serve is the cheapest, or serves the most?"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from files.documents import Json
from files.errors import HeadcountError
from headcount.diagnostics import find_diagnostics
from headcount.inputs.disaggregation import ComparedPoolsInput
from headcount.inputs.engine import EngineInput
from headcount.inputs.prices import GPUPriceInput, catalog_names
from headcount.inputs.question import question
from headcount.inputs.reading.deployments import check_counts
from headcount.inputs.reading.variations import (
    FORMATS,
    Axis,
    Choice,
    axes_of,
    check_axes_of_engines,
    choices,
    first_values,
    values_of,
)
from headcount.inputs.run import RunInput
from headcount.inputs.search import CompareSearch
from headcount.inputs.slo import SLOInput
from headcount.inputs.traffic import TrafficInput
from headcount.queries.report_data.study import Study
from headcount.queries.result import Progress, Verdict, Watch, noted
from headcount.queries.sweeps.attribution import Attribution, attribution
from headcount.queries.sweeps.drafts import Drafts, drafts_compared
from headcount.queries.sweeps.layout import Layout
from headcount.queries.sweeps.layouts import SHARED_REPLICATIONS, Layouts, SweepResult, facts_of
from headcount.queries.sweeps.ranking import check_sort, is_promising, ranked, to_confirm
from headcount.queries.sweeps.same import distinct, same_as
from headcount.text.blocks import Block, Line
from headcount.text.words import PRECISION_REMARK
from simulator.fleet.router import check_router
from simulator.study.candidate import Level
from simulator.study.capacity import PRECISION
from simulator.study.points import Watcher
from workloads.traces.trace_file import Source

MOST_LAYOUTS = 1000
SHOWN_CUT = 0.01  # of conversations, prompts or answers, from which on a table has a column for it
HITS_LEGEND = (
    "prefix hits: share of prompt tokens found in GPU memory, and in CPU memory or a remote KV cache if KV is "
    "offloaded there."
)
OUTSIDE_GPUS = frozenset({"kv_offloading_size", "kv_store_size"})
NO_MEMORY_PRICE = "costs are those of GPUs: memory outside them, which holds the offloaded KV, has no price here"
DECIDE_HITS = frozenset({"router", "kv_offloading_size", "kv_store_size", "enable_prefix_caching"})


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CompareResult(SweepResult):
    """Layouts side by side, the best first; those that lost stay, with the reason."""

    kind = "compare"
    view = "compare"
    sort: str
    users: int | None = None
    """That were asked for."""
    layouts: tuple[Layout, ...]
    base: Choice
    attribution: Attribution | None = None
    drafts: Drafts | None = None
    """Speculative decoding beside none, where both are compared."""

    @property
    def best(self) -> Layout | None:
        """The first of those that serve somebody at 95 % confidence; None where none does."""
        first = self.layouts[0] if self.layouts else None
        return first if first is not None and first.row is not None and first.users else None

    def figures(self) -> Json:
        return self.shared_figures() | {
            "sort": self.sort,
            "users": self.users,
            "varied": [axis.name for axis in self.axes],
            "best": self.best.name if self.best else None,
            "layouts": self.rows(),
            "attribution": self.attribution.to_json() if self.attribution else None,
            "drafts": self.drafts.to_json() if self.drafts else None,
        }

    def rows(self) -> list[Json]:
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
    traffic: TrafficInput = TrafficInput(),
    slo: SLOInput = SLOInput(),
    engine: EngineInput = EngineInput(),
    pools: ComparedPoolsInput = ComparedPoolsInput(),
    search: CompareSearch = CompareSearch(),
    prices: GPUPriceInput = GPUPriceInput(),
    run: RunInput = RunInput(),
) -> CompareResult:
    """Layouts side by side, ranked; GPU, GPU count, router, pools and every engine argument may be a list.

    `pools` are "prefill=1,decode=3", … and "together", where all `gpus` do both; `kv_transfer` is "pull" or "push". The
    first value of every list is the base. The answer shows what each change from the base to the best layout gains.
    Layouts far behind by their estimate are only screened, unless `simulate_all`. The first of the ranking is
    confirmed, the others are known from few replications, unless `precision` or `replications` is given. Raises
    HeadcountError for a bad argument, RefusedError where `strict` refuses a diagnostic.
    """
    check_sort(search.sort)
    check_axes_of_engines(engine.arguments)
    check_counts("gpus", values_of("gpus", gpus))
    for each in () if search.router is None else values_of("router", search.router):
        check_router(each)
    between = pools.between(gpus)
    prices.check(*values_of("gpu", gpu))
    given = {
        "gpu": catalog_names(gpu),
        "gpus": gpus,
        **engine.arguments,
        "router": search.router,
        **pools.axes(),
    }
    axes, base = axes_of(given), first_values(given)
    asked = list(choices(axes, most=MOST_LAYOUTS, what="layouts"))
    layouts = Layouts(
        model=model,
        workload=workload,
        traffic=traffic,
        prices=prices,
        base=base,
        study={
            "slo": slo.found(workload),
            "precision": search.precision or PRECISION,
            "replications": search.replications,
            "seed": run.seed,
        },
        between=between,
    )
    if search.users is not None and layouts.unit != "users":
        raise HeadcountError(f"--users cannot be set for a trace: '{workload}' brings its own arrivals")
    found = distinct(layouts.all_screened(asked, run.progress))
    if run.strict:
        find_diagnostics(facts_of(found, Verdict.DONE), strict=True)
    comparing = _Comparing(layouts=layouts, axes=tuple(axes), search=search, progress=run.progress, found=found)
    with layouts.simulations(run) as simulations:
        comparing.simulate_promising()
        comparing.confirm()
        gained, drafts = comparing.gained(), drafts_compared(layouts, found, search.users)
        return comparing.answer(strict=run.strict, attribution=gained, drafts=drafts, simulations=simulations)


@dataclass(kw_only=True)
class _Comparing:
    """Layouts as they get better known, the base first."""

    layouts: Layouts
    axes: tuple[Axis, ...]
    search: CompareSearch
    progress: Watch
    found: list[Layout]

    def answer(self, *, strict: bool = False, **more: Any) -> CompareResult:
        order = ranked(self.found, self.search.sort)
        verdict = verdict_of(order)
        return CompareResult(
            diagnostics=find_diagnostics(facts_of(order, verdict), strict=strict),
            verdict=verdict,
            **self.layouts.asked,
            sort=self.search.sort,
            users=self.search.users,
            axes=self.axes,
            layouts=order,
            base=self.found[0].choice,
            **more,
        )

    def simulate_promising(self) -> None:
        """Each that is not far behind by its estimate, from few replications unless more were asked for."""
        search, found = self.search, self.found
        level = Level.COARSE if search.precision is None and search.replications is None else Level.CONFIRMED
        wanted = [each for each in range(len(found)) if search.simulate_all or is_promising(found, each, search.sort)]
        for done, place in enumerate(wanted):
            self.progress(Progress(done=done, total=len(wanted), note=found[place].name, so_far=self.answer()))
            self.simulate(place, level, noted(self.progress, done, len(wanted), found[place].name))
            self.progress(Progress(done=done + 1, total=len(wanted), found=found[place].found_line))

    def confirm(self) -> None:
        """The first of the ranking, and what may come before it."""
        while (first := to_confirm(self.found, self.search.sort)) is not None:
            place, done = self.found.index(first), sum(each.row is not None for each in self.found)
            self.simulate(place, Level.CONFIRMED, noted(self.progress, done, done + 1, first.name))
            self.progress(Progress(done=done + 1, total=done + 1, found=self.found[place].found_line))

    def simulate(self, place: int, level: Level, watcher: Watcher | None = None) -> Layout:
        """One of them; under the users that were asked for, too."""
        one, users = self.layouts.simulated(self.found[place], watcher, level), self.search.users
        if users is not None:
            one = replace(one, under=self.layouts.under(one, users, SHARED_REPLICATIONS))
        self.found[place] = one
        return one

    def gained(self) -> Attribution | None:
        """What the best gains over the base; layouts between them are simulated where they were only screened."""
        best = ranked(self.found, self.search.sort)[0]
        if best.row is None or not best.users:
            return None

        def at(choice: Choice) -> Layout:
            known = same_as(self.layouts.screened(choice), self.found)
            assert known is not None, "every choice was listed"
            return self.simulate(self.found.index(known), Level.COARSE)

        return attribution(self.found[0], best, at, by_cost=self.search.sort in ("cost", "month"))


def remarks_on(axes: Sequence[Axis]) -> list[Block]:
    """What to mind where formats, or the size of a cache outside the GPUs, are varied."""
    names = {axis.name for axis in axes}
    cached = [Line(NO_MEMORY_PRICE)] * bool(names & OUTSIDE_GPUS)
    return [*[Line(PRECISION_REMARK)] * bool(names & set(FORMATS)), *cached]


def verdict_of(layouts: Sequence[Layout]) -> Verdict:
    """Bad input if nothing runs, missed if no user is sure, inconclusive if the best is not known well enough."""
    best = layouts[0]
    if best.row is not None and best.users:
        return Verdict.DONE if best.row.is_precise else Verdict.INCONCLUSIVE
    if any(layout.is_screened_only for layout in layouts):
        return Verdict.DONE
    return Verdict.TARGET_MISSED if any(layout.row for layout in layouts) else Verdict.BAD_INPUT
