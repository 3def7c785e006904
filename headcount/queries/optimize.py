"""Which engine arguments serve the most users on these GPUs?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from files.documents import Json
from files.errors import HeadcountError
from files.names import check_names
from headcount.diagnostics import find_diagnostics
from headcount.inputs.engine import EngineInput
from headcount.inputs.prices import GPUPriceInput
from headcount.inputs.question import question
from headcount.inputs.reading.deployments import ENGINE_ARGUMENTS, check_counts
from headcount.inputs.reading.variations import Axis, Choice, varied
from headcount.inputs.run import RunInput
from headcount.inputs.search import OptimizeSearch
from headcount.inputs.slo import SLOInput
from headcount.inputs.traffic import TrafficInput
from headcount.queries.compare import CompareResult, verdict_of
from headcount.queries.report_data.study import Study
from headcount.queries.result import Progress, Result, Verdict, Watch, noted
from headcount.queries.sweeps.attribution import Attribution, attribution
from headcount.queries.sweeps.layout import Layout
from headcount.queries.sweeps.layouts import Layouts, facts_of
from headcount.queries.sweeps.ranking import FAR_BEHIND, ranked
from headcount.queries.sweeps.same import distinct, same_as
from headcount.queries.sweeps.search import CLOSE, check_space, leader, race, searched, simplest
from simulator.engines.engines import TUNINGS, VLLM, own_arguments
from simulator.fleet.router import check_router
from simulator.study.candidate import Level
from simulator.study.statistics import Interval
from workloads.traces.trace_file import Source

ABOUT: Final = 1.01  # figures nearer than that count as equal
MOST_TRIALS, MOST_FINALISTS = 10_000, 100


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OptimizeResult(Result):
    """The best arguments found beside the defaults, and the frontier of cost and latency."""

    kind = "optimize"
    view = "optimize"
    compared: CompareResult
    base: Layout
    best: Layout
    num_looked_at: int

    @property
    def gain(self) -> Interval | None:
        """Users over those of the defaults, paired; None where either serves nobody."""
        return self.best.users_over(self.base)

    @property
    def held(self) -> Choice:
        """The values of the searched arguments where nothing is changed, as far as the engine tells them."""
        plan = self.base.looked.plan if self.base.looked else None
        known = {} if plan is None else {**vars(plan.args), **plan.settings}
        return {axis.name: known[axis.name] for axis in self.compared.axes if axis.name in known}

    def gain_is_close(self, layout: Layout) -> bool:
        """Whether a layout has more users than the best, within noise or by no more than settings must gain."""
        ratio = layout.users_over(self.best)
        if ratio is None or layout.users <= self.best.users:
            return False
        return ratio.low <= 1 or ratio.mean <= 1 / (1 - CLOSE)

    @property
    def serve_line(self) -> str:
        """The command that starts one of the best servers; nothing where nobody is served."""
        looked = self.best.looked
        return looked.plan.serve_line if self.best.users and looked and looked.plan else ""

    @property
    def frontier(self) -> tuple[Layout, ...]:
        """The best, and each layout than which none has more users, less TTFT p95 and less TPOT p95, to within 1 %."""
        served = [layout for layout in self.compared.layouts if layout.row and layout.row.users]
        kept: list[Layout] = []
        for each in served:
            alike = any(_is_as_good(other, each) for other in kept)
            if each is self.best or not (alike or any(_dominates(other, each) for other in served)):
                kept.append(each)
        return tuple(kept)

    def figures(self) -> Json:
        found = self.compared.figures()
        return {
            **self.compared.shared_figures(),
            "searched": found["varied"],
            "num_looked_at": self.num_looked_at,
            "best": self.best.to_json(self.best),
            "defaults": self.base.to_json(self.best),
            "gain": vars(self.gain) if self.gain else None,
            "serve_line": self.serve_line,
            "frontier": [layout.name for layout in self.frontier],
            "layouts": self.rows(),
            "attribution": found["attribution"],
        }

    def rows(self) -> list[Json]:
        on_frontier = self.frontier
        return [
            layout.to_json(self.best) | {"name": layout.name, "is_on_frontier": layout in on_frontier}
            for layout in self.compared.layouts
        ]

    @property
    def study(self) -> Study | None:
        return self.best.study


def _dominates(one: Layout, other: Layout) -> bool:
    """Whether it is about as good in all, and better in some."""
    is_better = any(a * ABOUT < b for a, b in zip(_costs(one), _costs(other), strict=True))
    return is_better and _is_as_good(one, other)


def _is_as_good(one: Layout, other: Layout) -> bool:
    return all(a <= b * ABOUT for a, b in zip(_costs(one), _costs(other), strict=True))


def _costs(layout: Layout) -> tuple[float, float, float]:
    """What should be little."""
    return 1 / max(layout.users, 1), layout.p95_s("ttft_s") or 0.0, layout.p95_s("tpot_s") or 0.0


@question
def optimize(
    model: str,
    gpu: str,
    *,
    workload: Source = "chat",
    traffic: TrafficInput = TrafficInput(),
    slo: SLOInput = SLOInput(),
    engine: EngineInput = EngineInput(),
    search: OptimizeSearch = OptimizeSearch(),
    prices: GPUPriceInput = GPUPriceInput(),
    run: RunInput = RunInput(),
) -> OptimizeResult:
    """The engine arguments that serve the most users on these GPUs, compared with those that are given.

    `search` has lists by name, such as max_num_seqs=[64, 128]; without it everything that the engine's TUNING has, and
    that is not given, is searched. `trials` choices are looked at by their estimates, the best `finalists` are
    simulated. Raises HeadcountError for a bad argument, or where Optuna is missing; RefusedError where `strict` refuses
    a diagnostic.
    """
    router, gpus, finalists = search.router, search.gpus, search.finalists
    check_counts("gpus", [gpus])
    prices.check(gpu)
    check_space(trials=(search.trials, MOST_TRIALS), finalists=(finalists, MOST_FINALISTS))
    if router is not None:
        check_router(router)
    given = {name: value for name, value in engine.arguments.items() if value is not None}
    own_arguments(given)
    axes = space(search.search, {**given, **({"router": router} if router else {})})
    layouts = Layouts(
        model=model,
        workload=workload,
        traffic=traffic,
        prices=prices,
        base={"gpu": gpu, "gpus": gpus, **given, "router": router},
        study={"slo": slo.found(workload), "replications": None, "seed": run.seed},
    )
    base = layouts.screened({})
    if run.strict:
        find_diagnostics(facts_of([base], Verdict.DONE), strict=True)
    tried = {"router", *TUNINGS[str(given.get("engine", VLLM))].tried}
    estimated = [axis for axis in axes if axis.name not in tried]
    looked = searched(layouts, estimated, base, trials=search.trials, seed=run.seed, progress=run.progress)
    entrants = _finalists(looked, base, finalists)
    for axis in (axis for axis in axes if axis.name in tried):
        first = [each for each in (base, *entrants) if each.num_servers > 1 or axis.name != "router"][:3]
        entrants += [layouts.screened({**each.choice, axis.name: value}) for each in first for value in axis.values]
    contest = _Run(layouts, tuple(axes), len(looked), run.progress)
    with layouts.simulations(run) as simulations:
        _, *others = distinct([base, *entrants])
        return replace(contest.answer(base, others, strict=run.strict), simulations=simulations)


@dataclass
class _Run:
    """Simulates the base and the finalists, and makes the answer of them."""

    layouts: Layouts
    axes: tuple[Axis, ...]
    num_looked_at: int
    progress: Watch

    def answer(self, base: Layout, entrants: Sequence[Layout], *, strict: bool) -> OptimizeResult:
        done: list[Layout] = []
        total = len(entrants) + 1

        def simulate(layout: Layout, level: Level) -> Layout:
            watcher = noted(self.progress, min(len(done), total), total, layout.name)
            done.append(self.layouts.simulated(layout, watcher, level))
            if len(done) <= total:
                so_far = self._answer(done, leader(done))
                self.progress(Progress(done=len(done), total=total, so_far=so_far))
            return done[-1]

        rows = race(base, entrants, simulate)

        def at(choice: Choice) -> Layout:
            asked = self.layouts.screened(choice)
            known = same_as(asked, rows)
            place = rows.index(known) if known else len(rows)
            rows[place : place + 1] = [found := self.layouts.simulated(known or asked)]
            return found

        best = simplest(leader(rows), at)
        is_known = best.users and rows[0].users
        gained = attribution(rows[0], best, at, by_cost=False) if is_known else None
        return self._answer(rows, best, gained, strict=strict)

    def _answer(
        self, rows: Sequence[Layout], best: Layout, gained: Attribution | None = None, *, strict: bool = False
    ) -> OptimizeResult:
        order = (best, *(each for each in ranked(rows, "users") if each is not best))
        verdict = verdict_of(order)
        compared = CompareResult(
            diagnostics=(),
            **self.layouts.asked,
            sort="users",
            axes=self.axes,
            layouts=order,
            base=rows[0].choice,
            attribution=gained,
        )
        return OptimizeResult(
            diagnostics=find_diagnostics(facts_of(order, verdict), strict=strict),
            verdict=verdict,
            compared=compared,
            base=rows[0],
            best=best,
            num_looked_at=self.num_looked_at,
        )


def space(search: Mapping[str, object] | Sequence[str] | None, given: Choice) -> list[Axis]:
    """What is searched: what is asked for, else everything in the engine's tuning that is not given.

    Raises HeadcountError for what is no argument of the engine, or is given as well.
    """
    if not search:
        tuning = TUNINGS[given.get("engine", VLLM)]
        known = {**tuning.searched, **tuning.tried}
        return [Axis(name, values) for name, values in known.items() if name not in given]
    axes = varied(search)
    check_names([axis.name for axis in axes], [*ENGINE_ARGUMENTS, "router"], "argument to search")
    for name in (axis.name for axis in axes if axis.name in given):
        raise HeadcountError(f"{name} is given and searched; leave out one or the other")
    for name, value in ((axis.name, value) for axis in axes for value in axis.values):
        if name == "router":
            check_router(value)
        else:
            own_arguments({"engine": given.get("engine"), name: value})
    return axes


def _finalists(looked: Sequence[Layout], base: Layout, count: int) -> list[Layout]:
    """By their estimates the most users, half as many with the least TPOT; one of those that are estimated alike."""
    alike: dict[tuple[float, ...], Layout] = {}
    for each in sorted(looked, key=lambda layout: len(layout.choice)):
        if each.users and each.looked and each.looked.estimate and not each.is_same_as(base):
            alike.setdefault((each.users, each.looked.estimate.ttft_s, each.looked.estimate.tpot_s), each)
    found = sorted(alike.values(), key=lambda each: (-each.users, len(each.choice)))
    near = [each for each in found[count:] if each.users * FAR_BEHIND >= found[0].users]
    near.sort(key=lambda each: each.looked.estimate.tpot_s if each.looked and each.looked.estimate else 0.0)
    return found[:count] + near[: count // 2]
