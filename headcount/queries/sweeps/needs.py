"""How many GPUs so many users need, in servers of the size that should need the fewest."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from headcount.inputs.reading.variations import Choice
from headcount.queries.money import usd_per_month, usd_per_user_month
from headcount.queries.plan_rows import no_number
from headcount.queries.sweeps.layout import Layout
from headcount.queries.sweeps.layouts import Layouts
from headcount.text.units import counted, dollars, whole_dollars
from headcount.text.words import AT_CONFIDENCE
from simulator.engines.engines import AnyArgs
from simulator.fleet.router import router_name
from simulator.study.candidate import Level, RunContext
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.fleets.layouts import FleetQuestion, Offer
from simulator.study.fleets.nearest import Nearest, under_longer_limits
from simulator.study.fleets.search import FleetSearch, Tables, search_fleets
from simulator.study.slo import SLO

FEWER: Final = 1.1  # times as many GPUs, by estimates: from there on another size of server is simulated
USUALLY_SAFE: Final = 0.85  # of the users of an estimate
_FIXED: Final = ("gpus", "tensor_parallel_size")
_PARALLEL: Final = ("pipeline_parallel_size", "data_parallel_size", "dp_size")


@dataclass(frozen=True, kw_only=True)
class Need:
    """GPUs for so many users, and what they cost; None where no number of them serves anybody."""

    users: int
    gpus: int | None = None
    usd_per_month: float | None = None
    layout: str | None = None
    """Such as `3 × TP4`."""
    users_low: int | None = None
    """Users at 95 % confidence on these GPUs; then the expected users and the upper end."""
    users_mean: int | None = None
    users_high: int | None = None
    router: str | None = None
    """Before several servers that were simulated together; else the users are in proportion to what was simulated."""
    reason: str | None = None
    """Why no number of GPUs serves them, in servers of any size that was tried."""
    under_longer_limits: str | None = None
    """Such as `16 GPUs with TTFT ≤ 2 s`: what would then serve them, from few replications."""

    def __str__(self) -> str:
        if self.gpus is None:
            return "–" if self.reason is None else "none: see below"
        cost = f", ${whole_dollars(self.usd_per_month)}" if self.usd_per_month is not None else ""
        return f"{counted(self.gpus, 'GPU')} ({self.layout}){cost}"

    def with_each(self) -> str:
        """The same with the dollars of a user."""
        each = usd_per_user_month(self.usd_per_month, self.users)
        return str(self) if each is None else f"{self}, ${dollars(each)} each"


Bought = tuple[Layout, tuple[Need, ...]]
"""The fleet for the first number of users, and what each number needs."""


def need(layout: Layout, users: int, safe: float = 1.0) -> Need:
    """Whole servers, in proportion to what the layout serves; `safe` is the share of its users that counts."""
    plan, served = layout.looked.plan if layout.looked else None, safe * layout.users
    if plan is None or layout.asked is None or served < 1:
        return Need(users=users)
    servers = math.ceil(users * (layout.gpus // plan.gpus) / served)
    gpus = plan.gpus * servers
    ends = (layout.row.users_low, layout.row.users, layout.row.users_high) if layout.row else ()
    low, mean, high = (math.floor(end * gpus / layout.gpus) for end in ends) if ends else (None, None, None)
    return Need(
        users=users,
        gpus=gpus,
        usd_per_month=usd_per_month(gpus, layout.asked.gpu.usd_per_hour),
        layout=layout.layout_of(servers),
        users_low=low,
        users_mean=mean,
        users_high=high,
    )


def bought(cell: Layout, counts: Sequence[int], how: RunContext, level: Level, *, is_size_open: bool) -> Bought:
    """What each number of users needs in a cell, and the fleet of the first; servers of any size where it is open."""
    found = [_bought(cell, users, how, level, is_size_open=is_size_open) for users in counts]
    return found[0][0], tuple(need for _, need in found)


def _bought(layout: Layout, users: int, how: RunContext, level: Level, *, is_size_open: bool) -> tuple[Layout, Need]:
    """The cheapest fleet that serves so many users, as a plan finds it."""
    looked = layout.looked
    if looked is None or looked.table is None or layout.row is None or looked.plan is None:
        return layout, need(layout, users) if layout.row else Need(users=users)
    args = looked.table.question.args if is_size_open else looked.plan.given
    question = _fleet_question(looked.table.question, args, users)
    tables = Tables(question, how)
    if args == looked.table.question.args:
        tables.add(question.offers[0], args, looked.table)
    *_, race = search_fleets(question, tables=tables, most=level)
    best = race.best
    if best is None:
        longer = under_longer_limits(question, how)
        return layout, Need(
            users=users, reason=_why_none(race, longer), under_longer_limits=_longer_text(longer, question.slo)
        )
    asked = replace(looked.question, gpus=(best.row.gpus,), router=best.layout.router, args=best.layout.plan.given)
    seen = replace(looked, question=asked, gpus=best.row.gpus, plan=best.layout.plan)
    fleet = replace(layout, gpus=best.row.gpus, row=best.row, looked=seen)
    return fleet, Need(
        users=users,
        gpus=best.gpus,
        usd_per_month=usd_per_month(best.gpus, looked.question.gpu.usd_per_hour),
        layout=fleet.layout_of(best.servers),
        users_low=best.users(),
        users_mean=best.users("users"),
        users_high=best.users("users_high"),
        router=router_name(best.layout.router) if best.servers > 1 else None,
    )


def _longer_text(longer: Nearest | None, slo: SLO) -> str | None:
    """Such as `16 GPUs with TTFT ≤ 2 s`."""
    return None if longer is None else f"{counted(longer.sized.gpus, 'GPU')} with {longer.slo.changed_from(slo)}"


def _why_none(race: FleetSearch, longer: Nearest | None) -> str | None:
    """Why the server that comes closest serves nobody, simulated or, where none was, estimated; and what would."""
    why = _closest_text(race)
    if why is None or longer is None:
        return why
    best, price = longer.sized, race.question.offers[0].usd_per_hour
    layout = f"{best.servers:,} × TP{best.layout.plan.tensor_parallel_size}"
    cost = usd_per_month(best.gpus, price if race.question.offers[0].gpu.usd_per_hour else None)
    priced = f", ${whole_dollars(cost)} a month" if cost is not None else ""
    return f"{why}; under {longer.change} {counted(best.gpus, 'GPU')} ({layout}{priced}) would do"


def _closest_text(race: FleetSearch) -> str | None:
    failed = [each for each in race.sized if not each.servers]
    if failed:
        largest = max(failed, key=lambda each: each.layout.plan.gpus)
        why = largest.row.reason or no_number(largest)
        return f"not even on servers of {counted(largest.layout.plan.gpus, 'GPU')}: {why}"
    closest = max(race.dropped, key=lambda each: (each.attainment, each.tp or 0), default=None)
    if closest is None:
        return None
    return f"no size of server is enough; TP{closest.tp or 1} comes closest: {closest.reason}"


def _fleet_question(asked: CapacityQuestion, args: AnyArgs, users: int) -> FleetQuestion:
    return FleetQuestion(
        architecture=asked.architecture,
        offers=(Offer(gpu=asked.gpu, usd_per_hour=asked.gpu.usd_per_hour or 1.0),),  # of one kind: a price says nothing
        variants=(args,),
        workload=asked.workload,
        think_time_s=asked.think_time_s,
        users=users,
        slo=asked.slo,
        router=asked.router,
        precision=asked.precision,
        replications=asked.replications,
        seed=asked.seed,
        step_time_factor=asked.step_time_factor,
    )


def is_size_open(given: Choice, choice: Choice) -> bool:
    """Whether nobody said how many GPUs a server has."""
    is_given = any(given.get(name) is not None for name in _FIXED)
    is_parallel = any((given.get(name) or 1) > 1 for name in _PARALLEL)
    return not is_given and not is_parallel and not any(name in choice for name in (*_FIXED, *_PARALLEL))


def other_size(cell: Layout, counts: Sequence[int], larger: Sequence[Layouts]) -> Layout | None:
    """The cell on one of several larger servers, where that should need clearly fewer GPUs for `counts` users.

    Where the cell serves nobody it is the one that should serve somebody, or the largest that runs.
    """
    found = [each.screened(cell.choice) for each in larger]
    runs = [each for each in found if each.looked and each.looked.plan]
    estimated = cell.looked.users if cell.looked else 0
    safe = cell.users / estimated if cell.users and estimated else USUALLY_SAFE
    needed = {each.gpus: _gpus(each, counts, safe) for each in runs}
    fewest = min(runs, key=lambda each: (needed[each.gpus], -each.gpus), default=None)
    if fewest is None or (cell.users and needed[fewest.gpus] * FEWER > _gpus(cell, counts)):
        return None
    return fewest


def with_fewest_gpus(cells: Sequence[Layout], others: Sequence[Layout | None], counts: Sequence[int]) -> list[Layout]:
    """Of each cell and its other, both simulated, the one that needs fewer GPUs."""
    pairs = zip(cells, others or [None] * len(cells), strict=True)
    return [
        other if other is not None and other.row and _gpus(other, counts) < _gpus(cell, counts) else cell
        for cell, other in pairs
    ]


def _gpus(layout: Layout, counts: Sequence[int], safe: float = 1.0) -> float:
    """Of all numbers of users together."""
    return sum(need(layout, users, safe).gpus or math.inf for users in counts or (1,))


def unserved_text(cell: Layout, other: Layout | None) -> str:
    """Why a cell serves nobody, and what the larger server that was tried makes of it."""
    if other is None:
        return f"{cell.layout}: {cell.reason}"
    if not other.users:
        return f"{cell.layout} to {other.layout}: {other.reason}"
    return f"{cell.layout}: {cell.reason}; with {other.layout}: {counted(other.users, 'user')} {AT_CONFIDENCE}"
