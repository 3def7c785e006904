"""The cheapest fleet: a search in which what cannot be it is not simulated."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from simulator.engines.engines import AnyArgs
from simulator.study.candidate import Level, RunContext, is_large, routers_for
from simulator.study.capacity_row import CapacityRow
from simulator.study.capacity_table import CapacityTable
from simulator.study.fleets.disaggregation import PairTable
from simulator.study.fleets.layouts import Dropped, FleetQuestion, Layout, Offer, every_layout
from simulator.study.fleets.ratio import RatioSizing, disaggregated_layouts, screened_disaggregated
from simulator.study.fleets.screening import Screened, screened
from simulator.study.fleets.sizing import (
    MOST_SERVERS,
    Sized,
    Sizing,
)
from simulator.study.slo import SLO

MAX_COST_RATIO: Final = 2.0  # times the best cost
OPTIMISM: Final = 1.3  # by what a layout may serve more than estimated: the largest of the screening page is 1.27
MOST_OF_A_GPU: Final = 3  # layouts that are simulated of a GPU that does not lead


@dataclass(frozen=True, kw_only=True, eq=False)
class FleetSearch:
    """What is known of every layout so far."""

    question: FleetQuestion
    dropped: tuple[Dropped, ...]
    screened: tuple[Screened, ...]  # cheapest first
    sized: tuple[Sized, ...] = ()  # the latest last
    is_over: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of layouts, cheapest first as screened: one of each GPU, another where disaggregated."""
        return tuple(dict.fromkeys(each.layout.kind for each in self.screened))

    @property
    def best(self) -> Sized | None:
        """The cheapest fleet that serves the users."""
        return cheapest(self.sized)

    def best_of(self, kind: str) -> Sized | None:
        return cheapest(self.sized_of(kind))

    def sized_of(self, kind: str) -> list[Sized]:
        return [each for each in self.sized if each.layout.kind == kind]

    def screened_of(self, kind: str) -> list[Screened]:
        return [each for each in self.screened if each.layout.kind == kind]

    def found_of(self, screened: Screened) -> Sized | None:
        """What was simulated of it; None where nothing was."""
        return next((each for each in self.sized if each.screened is screened), None)

    def is_open(self, screened: Screened) -> bool:
        """Whether more can be found out of it."""
        found = self.found_of(screened)
        return found is None or (found.servers > 0 and not found.is_confirmed)

    def at_least(self, screened: Screened) -> tuple[float, float, float]:
        """What it may cost at the least, then how badly it is known, and how few users it serves for that."""
        found = self.found_of(screened)
        if found is None:
            return screened.usd_per_hour_if(OPTIMISM), 2, -screened.users_per_server * screened.servers
        if not found.servers:
            return math.inf, 0, 0
        return found.usd_per_hour, 0 if found.is_confirmed else 1, -found.users()

    def is_sized(self, screened: Screened) -> bool:
        return any(each.screened is screened for each in self.sized)

    def only(self, sized: Sized) -> "FleetSearch":
        """The same for one layout alone."""
        return replace(self, sized=(sized,), screened=(sized.screened,), dropped=())

    def without(self, sized: Sized) -> "FleetSearch":
        """As if it had not been simulated."""
        return replace(self, sized=tuple(each for each in self.sized if each is not sized))

    def with_sized(self, found: Sized) -> "FleetSearch":
        others = (each for each in self.sized if each.screened is not found.screened)
        return replace(self, sized=(*others, found))


def cheapest(sized: Sequence[Sized]) -> Sized | None:
    """The least cost per hour, then what is confirmed, then the most users; None where none serves the users."""
    serving = [each for each in sized if each.servers]
    return min(serving, key=lambda each: (each.usd_per_hour, not each.is_confirmed, -each.users()), default=None)


def search_fleets(
    question: FleetQuestion,
    how: RunContext | None = None,
    tables: "Tables | None" = None,
    most: Level = Level.CONFIRMED,
) -> Iterator[FleetSearch]:
    """What is known after the screening, then after each layout that is simulated; the last is the answer.

    The layout that may cost the least is found out more of, until that one is confirmed, or known as well as `most`
    says. Raises HeadcountError where an argument is refused on every GPU.
    """
    race, tables = screen_all(question), tables or Tables(question, how or RunContext())
    yield race
    while (following := _next(race)) is not None and (most > Level.COARSE or not race.is_sized(following)):
        level = Level.COARSE if (found := race.found_of(following)) is None else Level.CONFIRMED
        race = race.with_sized(sized(tables, following, level, found))
        yield race
    if most is Level.CONFIRMED:
        race = as_capacity_has_it(race, tables)
    yield replace(race, is_over=True)


def as_capacity_has_it(race: FleetSearch, tables: "Tables") -> FleetSearch:
    """With the fewest GPUs of each kind that `capacity` says serve the users, in the layout that it says.

    As it is where the best is nothing that it knows: disaggregated, or more servers than are simulated. With spare
    servers, which `capacity` does not buy, larger ones may cost more: then a layout stays as it was found.
    """
    best, question = race.best, race.question
    if best is None or best.layout.disaggregated is not None or not best.is_whole:
        return race
    found, together = [], [each for each in race.screened if each.layout.disaggregated is None]
    for kind in {(each.layout.offer.gpu.name, each.layout.args): each.layout for each in together}.values():
        alike = [each for each in together if (each.layout.offer, each.layout.args) == (kind.offer, kind.args)]
        spare = question.spare * min(each.layout.plan.gpus for each in alike)
        table, most = tables.of(kind), math.floor(best.usd_per_hour / kind.offer.usd_per_hour + 1e-9) - spare
        gpus = fewest_gpus(table, question.users, most)
        if not gpus and best.screened in alike and not best.is_confirmed:  # they all but serve the users
            gpus = next((count for count in range(most + 1, 2 * most + 1) if table.serves(count, question.users)), 0)
        if gpus:
            row = table.row(gpus)
            same = [each for each in alike if each.layout.plan.tensor_parallel_size == row.tp]
            like_it = min(same, key=lambda each: each.layout.router != row.router, default=None)
            if like_it is not None and row.users_low >= question.users:
                if row.router is not None and row.router_name and row.router != like_it.layout.router:  # not screened
                    like_it = replace(like_it, layout=replace(like_it.layout, router=row.router))
                    race = replace(race, screened=(*race.screened, like_it))
                one = sized_with(tables, like_it, row)
                known = cheapest([each for each in race.sized if each.screened in alike])
                if known and (question.spare or known.is_confirmed) and _cost(known) < _cost(one):
                    continue  # a coarse look at many servers may have missed that fewer do
                found.append(one)
                if best.screened in alike:
                    race = race.without(best)
    for each in found:
        race = race.with_sized(each)
    return race


def _cost(found: Sized) -> tuple[float, int]:
    """The less, the better."""
    return found.usd_per_hour, -found.users()


@dataclass(frozen=True, kw_only=True)
class LongerTTFTFleet:
    """About what the best fleet's GPUs would be under a longer limit on TTFT."""

    slo: SLO
    gpus: int
    usd_per_hour: float


def longer_ttft(race: FleetSearch, tables: "Tables") -> tuple[LongerTTFTFleet, ...]:
    """Fewer GPUs of the best fleet's kind, if answers might begin later; nothing where TTFT does not hold it back.

    As many servers as its simulations tell, or another layout by its estimate where that costs less.
    """
    best, users = race.best, race.question.users
    if best is None or best.layout.disaggregated is not None or not best.is_whole:
        return ()
    found: list[LongerTTFTFleet] = []
    layout = best.layout
    for each in tables.of(layout).longer_ttft(best.row):
        servers = math.ceil(users * best.servers / each.users_low - 1e-9) + best.spare
        gpus, cost = layout.gpus(servers), layout.usd_per_hour(servers)
        asked = replace(race.question, slo=each.slo, offers=(layout.offer,), variants=(layout.args,))
        other = _cheapest_screened(asked)
        if other is not None and other.usd_per_hour < cost:
            gpus, cost = other.layout.gpus(*other.bought), other.usd_per_hour
        if cost < (found[-1] if found else best).usd_per_hour:
            found.append(LongerTTFTFleet(slo=each.slo, gpus=gpus, usd_per_hour=cost))
    return tuple(found)


def _cheapest_screened(question: FleetQuestion) -> Screened | None:
    return next(iter(screen_all(replace(question, disaggregated=None)).screened), None)


def fewest_gpus(table: CapacityTable, users: float, most: int) -> int:
    """The fewest that serve the users, at the most so many; 0 where those do not. More never serve fewer."""
    if most < 1 or not table.serves(most, users):
        return 0
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if table.serves(middle, users) else (middle, high)
    return high


class Tables:
    """What was simulated of each GPU under each variant of the arguments."""

    def __init__(self, question: FleetQuestion, how: RunContext) -> None:
        self.question, self.how = question, how
        self._known: dict[tuple[str, AnyArgs], CapacityTable] = {}
        self._pairs: dict[tuple[str, AnyArgs, AnyArgs], PairTable] = {}

    def about(self, question: FleetQuestion) -> "Tables":
        """The same for other users, or fewer offers: whatever is found of either is known to both."""
        found = Tables(question, self.how)
        found._known, found._pairs = self._known, self._pairs
        return found

    def add(self, offer: Offer, args: AnyArgs, table: CapacityTable) -> None:
        """Take one that is known already."""
        self._known[offer.gpu.name, args] = table

    def of(self, layout: Layout) -> CapacityTable:
        """The one that a layout belongs to."""
        key = layout.offer.gpu.name, layout.args
        if key not in self._known:
            asked = self.question.capacity_on(layout.offer, layout.args)
            self._known[key] = CapacityTable(question=asked, how=self.how)
        return self._known[key]

    def of_pairs(self, layout: Layout) -> PairTable:
        """The one of a disaggregated layout."""
        assert layout.disaggregated is not None, "a layout of two pools"
        prefill, decode = (plan.given for plan in layout.disaggregated.plans)
        key = layout.offer.gpu.name, prefill, decode
        if key not in self._pairs:
            asked = self.question.capacity_on(layout.offer, decode)
            self._pairs[key] = PairTable(question=asked, disaggregated=layout.disaggregated, how=self.how)
        return self._pairs[key]


def sized(tables: Tables, screened: Screened, level: Level, first: Sized | None = None) -> Sized:
    """The fewest servers of a layout that serve the users; the search begins with the `first`, or as screened."""
    question, start = tables.question, first or screened
    if screened.layout.disaggregated is not None:
        pair = start.prefill_servers, start.servers - start.prefill_servers
        return RatioSizing(question, screened, level, tables.of_pairs(screened.layout)).run(pair)
    table = tables.of(screened.layout)
    return Sizing(question=question, screened=screened, level=level, table=table).run(start.servers)


def sized_with(tables: Tables, screened: Screened, row: CapacityRow) -> Sized:
    """A layout with as many servers as a row has."""
    table = tables.of(screened.layout)
    return Sizing(question=tables.question, screened=screened, level=Level.CONFIRMED, table=table).with_row(row)


def screen_all(question: FleetQuestion) -> FleetSearch:
    """Every layout with the servers it should need, without a simulation."""
    layouts, dropped = every_layout(question)
    disaggregated, refused = disaggregated_layouts(question, layouts)
    found: list[Screened] = []
    dropped += refused
    looked_at = [each for layout in layouts for each in _with_routers(layout, question)]
    for each in [*looked_at, *(screened_disaggregated(layout, question) for layout in disaggregated)]:
        if isinstance(each, Screened):
            found.append(each)
        else:
            dropped.append(each)
    if any(not each.promises_nobody for each in found):  # a server for each user is the last resort
        dropped += [each.as_dropped for each in found if each.promises_nobody]
        found = [each for each in found if not each.promises_nobody]
    found.sort(key=lambda each: (each.usd_per_hour, -each.users_per_server * each.servers))
    return FleetSearch(question=question, dropped=tuple(dropped), screened=tuple(found))


def _with_routers(layout: Layout, question: FleetQuestion) -> list[Screened | Dropped]:
    """With every router that may be the best before several servers; before one, or very many, with the last alone.

    The last is that of copies of one server. Where none serves the users, its reason is that of the last.
    """
    asked = replace(question.capacity_of(layout, 1), router=question.router)
    routers = routers_for(asked, layout.plan, MOST_SERVERS)
    looked_at = [screened(replace(layout, router=router), question) for router in routers]
    found = [each for each in looked_at if isinstance(each, Screened)]
    of_copies = found[-1:]
    if any(each.servers == 1 or is_large(each.servers, each.servers * each.users_per_server) for each in of_copies):
        return [*of_copies]
    return [*([each for each in found if not each.is_doubtful] or found[-1:] or looked_at[-1:])]


def _next(race: FleetSearch) -> Screened | None:
    """What should be found out more of; None where the answer is known.

    First the layout that may cost the least of all, until it is confirmed; then the best of each other kind of GPU
    that is not far dearer, coarsely; then of these the disaggregated ones, since the headline has what they cost, and
    those that may do with a server fewer.
    """
    leader = min(race.screened, key=race.at_least, default=None)
    if leader is None:
        return None
    if race.is_open(leader):
        return leader
    most = MAX_COST_RATIO * race.at_least(leader)[0]
    for kind in race.kinds:
        following = _following_of(race, kind, most)
        if following is not None:
            return following
    leaders = [each for each in map(race.best_of, race.kinds) if each and not each.is_confirmed]
    return next((each.screened for each in leaders if each.layout.disaggregated or each.may_do_with_fewer), None)


def _following_of(race: FleetSearch, kind: str, most: float) -> Screened | None:
    """Of a GPU that does not lead: what costs the least by its estimate, then what may cost less than was found."""
    known, layouts = race.sized_of(kind), race.screened_of(kind)
    if not known:
        first = min(layouts, key=lambda each: (each.usd_per_hour, -each.users_per_server * each.servers))
        return first if first.usd_per_hour <= most else None
    first = min(layouts, key=race.at_least)
    is_open = race.at_least(first)[0] <= most and not race.is_sized(first) and len(known) < MOST_OF_A_GPU
    return first if is_open else None
