"""What does a longer context, more users or another setting cost?"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from files.documents import Json
from files.errors import HeadcountError
from files.reading import InputError
from headcount.diagnostics import find_diagnostics
from headcount.inputs.engine import EngineInput
from headcount.inputs.prices import GPUPriceInput
from headcount.inputs.question import question
from headcount.inputs.reading.variations import Axis, Choice, choices, varied
from headcount.inputs.run import RunInput
from headcount.inputs.search import SweepInput
from headcount.inputs.slo import SLOInput
from headcount.inputs.traffic import TrafficInput
from headcount.queries.compare import DECIDE_HITS
from headcount.queries.report_data.study import Study
from headcount.queries.result import Progress, Verdict, Watch, noted
from headcount.queries.sweeps.layout import Layout
from headcount.queries.sweeps.layouts import SHARED_REPLICATIONS, Layouts, SweepResult, facts_of
from headcount.queries.sweeps.needs import Bought, Need, bought, is_size_open, need, other_size, with_fewest_gpus
from headcount.queries.sweeps.same import same_as
from simulator.fleet.router import check_router
from simulator.study.candidate import Level
from simulator.study.capacity import PRECISION
from simulator.study.points import Point
from simulator.study.served import latency_summary
from simulator.study.slo import SLO
from simulator.study.statistics import Interval
from workloads.traces.trace_file import Source
from workloads.traffic_changes import Amount

MOST_CELLS = 400
SWING = 0.2  # of each assumption, in a tornado
GPU_COUNTS = (1, 2, 4, 8)
OTHERS_PRECISION = 0.1  # of a larger server, which only says how many GPUs it takes
_SWUNG = ("context", "retrieved", "output", "think-time", "turns", "system-prompt", "step_times", "ttft", "tpot")
_NO_TRAFFIC = {"step_times": "step times", "ttft": "TTFT limit", "tpot": "TPOT limit"}  # of these, as people say it


@dataclass(frozen=True, kw_only=True, eq=False)
class Swing:
    """What one assumption does, a fifth less and a fifth more of it."""

    name: str
    less: Layout
    more: Layout
    base: Layout

    @property
    def effects(self) -> tuple[Interval | None, Interval | None]:
        """Users over the base's."""
        return self.less.users_over(self.base), self.more.users_over(self.base)

    @property
    def width(self) -> float:
        """From the fewest users to the most, as a share of the base's; one that serves nobody has lost all."""
        less, more = (0.0 if found is None else found.mean for found in self.effects)
        return max(less, more, 1.0) - min(less, more, 1.0)

    def to_json(self) -> Json:
        less, more = self.effects
        return {"name": self.name, "less": vars(less) if less else None, "more": vars(more) if more else None}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WhatifResult(SweepResult):
    """A grid of cells, each beside the first; or what each assumption does, the largest effect first."""

    kind = "what-if"
    view = "whatif"
    users: tuple[int, ...]  # which are no axis
    cells: tuple[Layout, ...]
    others: tuple[Layout | None, ...] = ()  # each cell on a larger server, where that was tried
    shared_load: str = ""  # such as `398 users`; "" where no load was simulated in all cells
    under_shared_load: tuple[Point | None, ...] = ()  # what it shows in each cell
    swings: tuple[Swing, ...] = ()
    bought: tuple[Bought, ...] = ()  # of each cell; () before fleets were simulated

    @property
    def base(self) -> Layout | None:
        """The cell of every axis's first value."""
        return self.cells[0] if self.cells else None

    @cached_property
    def fleets(self) -> tuple[Layout, ...]:
        """Of each cell what is bought for the first number of users: as many of its servers, or of larger ones."""
        if self.bought:
            return tuple(fleet for fleet, _ in self.bought)
        return tuple(with_fewest_gpus(self.cells, self.others, self.users))

    @cached_property
    def needs(self) -> tuple[tuple[Need, ...], ...]:
        """Of each cell, one for each number of users; in proportion until fleets were simulated."""
        if self.bought:
            return tuple(needs for _, needs in self.bought)
        return tuple(
            tuple(need(fleet, count) if fleet.row else Need(users=count) for count in self.users)
            for fleet in self.fleets
        )

    def figures(self) -> Json:
        return self.shared_figures() | {
            "varied": [axis.name for axis in self.axes],
            "users_asked": list(self.users),
            "shared_load": self.shared_load or None,
            "cells": self.rows(),
            "tornado": [swing.to_json() for swing in self.swings],
        }

    def rows(self) -> list[Json]:
        return [self._row(place) for place in range(len(self.cells))]

    def _row(self, place: int) -> dict[str, object]:
        found = self.cells[place].to_json(self.base)
        for key in ("users_over_best", "usd_per_user_over_best"):
            found[key.replace("best", "base")] = found.pop(key)
        under = self.under_shared_load[place] if self.under_shared_load else None
        found["ttft_s_under_shared_load"] = latency_summary(under, "ttft_s") if under else None
        return found | {"needs": [vars(need) for need in self.needs[place]]}

    @property
    def study(self) -> Study | None:
        """Of what is bought for the first number of users in the first case; else of that case as it is."""
        study = self.base.study if self.base else None
        if not self.bought or (fleet := self.fleets[0].study) is None or (gpus := self.needs[0][0].gpus) is None:
            return study
        scale = gpus / fleet.row.gpus
        return replace(fleet, users_needed=self.users[0], servers=round(fleet.servers * scale), scale=scale)

    @property
    def has_table(self) -> bool:
        """Whether there is more to lay side by side than what each assumption does."""
        return len(self.cells) > 1 or not self.swings


@question
def whatif(
    model: str,
    gpu: str,
    *,
    workload: Source = "chat",
    traffic: TrafficInput = TrafficInput(),
    slo: SLOInput = SLOInput(),
    engine: EngineInput = EngineInput(),
    sweep: SweepInput = SweepInput(),
    prices: GPUPriceInput = GPUPriceInput(),
    run: RunInput = RunInput(),
) -> WhatifResult:
    """Users over a grid, or GPUs and dollars for given users; `vary` has lists by name, such as context=["x1", "x2"].

    With `tornado` each assumption is also a fifth less and a fifth more. Without `gpus` the fewest are taken that hold
    the model. The first case is confirmed, the others are known from few replications, unless `precision` or
    `replications` is given. Raises HeadcountError for a bad argument or a grid that is too large, RefusedError where
    `strict` refuses a diagnostic.
    """
    router, progress = sweep.router, run.progress
    if not sweep.vary and not sweep.tornado:
        raise HeadcountError("nothing to vary; give --vary NAME=VALUE,VALUE, such as context=x1,x2,x4, or --tornado")
    axes, counts, asked = _grid(sweep.vary or {}, sweep.users)
    for each in next((axis.values for axis in axes if axis.name == "router"), () if router is None else (router,)):
        check_router(each)
    prices.check(*next((map(str, axis.values) for axis in axes if axis.name == "gpu"), (gpu,)))
    limits, precision = slo.found(workload), sweep.precision or PRECISION
    others = Level.COARSE if sweep.precision is None and sweep.replications is None else Level.CONFIRMED

    def layouts_on(count: int) -> Layouts:
        return Layouts(
            model=model,
            workload=workload,
            traffic=traffic,
            prices=prices,
            base={"gpu": gpu, "gpus": count, **engine.arguments, "router": router},
            study={"slo": limits, "precision": precision, "replications": sweep.replications, "seed": run.seed},
        )

    layouts = layouts_on(sweep.gpus) if sweep.gpus else _smallest(layouts_on, asked[0])
    found = layouts.all_screened(asked, progress)
    if run.strict:
        find_diagnostics(facts_of(found, Verdict.DONE), strict=True)
    tried = _swung(layouts, asked[0], limits) if sweep.tornado else []
    grid = _Run(
        layouts=layouts, axes=tuple(axes), users=counts, progress=progress, shown=len(found),
        total=len(found) + 2 * len(tried),
    )  # fmt: skip
    with layouts.simulations(run) as simulations:
        progress(Progress(done=0, total=grid.total, so_far=grid.answer(found)))
        first, *rest = found
        cells = [grid.simulated(first), *(grid.simulated(layout, level=others) for layout in rest)]
        more: dict[str, Any] = {"swings": grid.swings(cells[0], tried)}
        is_open = is_size_open({**engine.arguments, "gpus": sweep.gpus}, asked[0])
        if counts:
            more["bought"] = grid.bought(cells, others, is_size_open=is_open)
        elif axes and is_open:
            more["others"] = grid.others(cells, precision)
        if decides_hits(axes):
            more |= _under_shared_load(layouts, cells)
    return replace(grid.answer(cells, strict=run.strict, **more), simulations=simulations)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Run:
    """A what-if while it is simulated, one layout after the other; `progress` hears of each."""

    layouts: Layouts
    axes: tuple[Axis, ...]
    users: tuple[int, ...]
    progress: Watch
    shown: int  # cells of the grid, which come first
    total: int  # layouts, as far as is known at the start
    done: list[Layout] = field(default_factory=list)

    def answer(self, cells: Sequence[Layout], *, strict: bool = False, **more: Any) -> WhatifResult:
        verdict = _verdict(cells)
        larger = [*filter(None, more.get("others", ())), *(fleet for fleet, _ in more.get("bought", ()))]
        return WhatifResult(
            diagnostics=find_diagnostics(facts_of(cells, verdict, judged=len(cells), larger=larger), strict=strict),
            verdict=verdict,
            **self.layouts.asked,
            axes=self.axes,
            users=self.users,
            cells=tuple(cells),
            **more,
        )

    def simulated(self, layout: Layout, name: str = "", level: Level = Level.CONFIRMED) -> Layout:
        most = max(self.total, len(self.done) + 1)
        watcher = noted(self.progress, len(self.done), most, layout.name)
        enough = [each for each in self.done if each.row and not (each.is_coarse and level is Level.CONFIRMED)]
        known = same_as(layout, enough)
        result = layout.with_row(known.row) if known and known.row else self.layouts.simulated(layout, watcher, level)
        self.done.append(result)
        so_far = self.answer(self.done[: self.shown])
        self.progress(Progress(done=len(self.done), total=most, found=f"{name}{result.found_line}", so_far=so_far))
        return result

    def swings(self, base: Layout, tried: Sequence[tuple[str, Layout, Layout]]) -> tuple[Swing, ...]:
        """What each assumption does, the largest effect first; all from few replications, paired."""
        coarse = self.layouts.simulated(replace(base, row=None), level=Level.COARSE)
        found = [
            Swing(
                name=name,
                less=self.simulated(less, level=Level.COARSE),
                more=self.simulated(more, level=Level.COARSE),
                base=coarse,
            )
            for name, less, more in tried
        ]
        return tuple(sorted(found, key=lambda swing: -swing.width))

    def others(self, cells: Sequence[Layout], precision: float) -> tuple[Layout | None, ...]:
        """Each cell on a larger server; None where that should take no fewer GPUs."""
        more_gpus = [count for count in GPU_COUNTS if count > self.layouts.base["gpus"]]
        larger = [self.layouts.on_larger_server(count, max(precision, OTHERS_PRECISION)) for count in more_gpus]
        others = [other_size(cell, self.users, larger) for cell in cells]
        return tuple(self.simulated(other, f"{other.layout}, ") if other else None for other in others)

    def bought(self, cells: Sequence[Layout], others: Level, *, is_size_open: bool) -> tuple[Bought, ...]:
        """Of each cell what the users need: of the first confirmed, of the others as well known as they are."""
        done, how = len(self.done), self.layouts.how
        found: list[Bought] = []
        for place, cell in enumerate(cells):
            how.watcher = noted(self.progress, done, done + 1, f"fleets, {cell.name}")
            level = others if place else Level.CONFIRMED
            known = same_as(cell, cells[:place])
            found.append(
                found[cells.index(known)] if known else bought(cell, self.users, how, level, is_size_open=is_size_open)
            )
        return tuple(found)


def _under_shared_load(layouts: Layouts, cells: Sequence[Layout]) -> dict[str, object]:
    """What every cell shows under the load that the weakest of them serves; nothing where fewer than two serve."""
    points = [cell.row.point for cell in cells if cell.row and cell.row.point]
    if len(points) < 2:
        return {}
    size = min(point.size for point in points)
    under = tuple(layouts.under(cell, size, SHARED_REPLICATIONS) for cell in cells)
    return {"shared_load": layouts.load_name(size), "under_shared_load": under}


def _grid(
    vary: Mapping[str, object] | Sequence[str], users: int | None
) -> tuple[list[Axis], tuple[int, ...], list[Choice]]:
    """Axes, numbers of users to answer for, the choices to simulate. Raises ValueError where the cells are too many."""
    axes = varied(vary)
    choices(axes, most=MOST_CELLS, what="cells")  # users counted
    counts = next((axis.values for axis in axes if axis.name == "users"), () if users is None else (users,))
    simulated = [axis for axis in axes if axis.name != "users"]
    return simulated, counts, list(choices(simulated, most=MOST_CELLS, what="cells"))


def _smallest(layouts_on: Callable[[int], Layouts], first: Choice) -> Layouts:
    """On the fewest GPUs that hold the model."""
    tried = [layouts_on(count) for count in GPU_COUNTS]
    return next((each for each in tried if (seen := each.screened(first)).looked and seen.looked.plan), tried[0])


def _swung(layouts: Layouts, base: Choice, slo: SLO) -> list[tuple[str, Layout, Layout]]:
    """Each assumption that can be less and more."""
    found = []
    for name in _SWUNG:
        limit = {"ttft": slo.ttft_s, "tpot": slo.tpot_s}.get(name, 1.0)
        if name in base or limit is None:
            continue
        values: list[object] = [
            factor * limit if name in _NO_TRAFFIC else Amount(value=factor, is_factor=True)
            for factor in (1 - SWING, 1 + SWING)
        ]
        try:
            less, more = (layouts.screened({**base, name: value}) for value in values)
        except InputError:  # this load has no such thing
            continue
        if less.refusal is None and more.refusal is None and less.looked and more.looked:
            changes = less.looked.question.workload != more.looked.question.workload
            if changes or name in _NO_TRAFFIC:
                found.append((_NO_TRAFFIC.get(name, name), less, more))
    return found


def _verdict(cells: Sequence[Layout]) -> Verdict:
    served = [cell.row for cell in cells if cell.row is not None and cell.row.users]
    if served:
        confirmed = [row for row in served if row.evidence == Level.CONFIRMED.word]
        return Verdict.DONE if all(row.is_precise for row in confirmed) else Verdict.INCONCLUSIVE
    return Verdict.TARGET_MISSED if any(cell.row for cell in cells) else Verdict.BAD_INPUT


def decides_hits(axes: Sequence[Axis]) -> bool:
    """Whether something is varied on which it depends how much of the prompts is found in a cache."""
    return not DECIDE_HITS.isdisjoint(axis.name for axis in axes)
