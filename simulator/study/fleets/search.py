"""The cheapest layout of each kind of GPU: a race in which what cannot win is not simulated."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from simulator.study.candidate import RunContext
from simulator.study.fleets.layouts import Dropped, FleetQuestion, every_layout
from simulator.study.fleets.ratio import RatioSizing, disaggregated_layouts, screened_disaggregated
from simulator.study.fleets.screening import Screened, screened
from simulator.study.fleets.sizing import COARSE_REPLICATIONS, COARSE_USERS, MOST_USERS, Sized, Sizing
from simulator.study.points import Watcher
from simulator.study.running.simulations import Simulations

MAX_COST_RATIO: Final = 2.0  # times the best cost
OPTIMISM: Final = 1.3  # by what a layout may serve more than estimated: the largest of the screening page is 1.27
CLOSE: Final = 1.3  # times the best cost: a GPU beyond it shows its first layout alone
NEAR: Final = 1.15  # a layout whose screened cost is so near the best of its GPU is simulated too
MOST_OF_A_GPU: Final = 3  # layouts that are simulated


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

    def is_sized(self, screened: Screened) -> bool:
        return any(each.screened is screened for each in self.sized)

    def only(self, sized: Sized) -> "FleetSearch":
        """The same for one layout alone."""
        return replace(self, sized=(sized,), screened=(sized.screened,), dropped=())

    def with_sized(self, found: Sized) -> "FleetSearch":
        others = (each for each in self.sized if each.screened is not found.screened)
        return replace(self, sized=(*others, found))


def cheapest(sized: Sequence[Sized]) -> Sized | None:
    """The least cost per hour, then the most users; None where none serves the users."""
    serving = [each for each in sized if each.servers]
    return min(serving, key=lambda each: (each.usd_per_hour, -each.users()), default=None)


def search_fleets(
    question: FleetQuestion, watcher: Watcher | None = None, simulations: Simulations | None = None
) -> Iterator[FleetSearch]:
    """What is known after the screening, then after each layout that is simulated; the last is the answer.

    Raises HeadcountError where an argument is refused on every GPU.
    """
    race, how = screen_all(question), RunContext(watcher=watcher, simulations=simulations or Simulations())
    yield race
    while (following := _next(race)) is not None:
        few = min(COARSE_REPLICATIONS, question.replications)
        race = race.with_sized(sized(question, following, few, COARSE_USERS, how))
        yield race
    while (best := race.best) is not None and not best.is_confirmed:
        race = race.with_sized(sized(question, best.screened, question.replications, MOST_USERS, how, first=best))
        yield race
    yield replace(race, is_over=True)


def sized(
    question: FleetQuestion,
    screened: Screened,
    replications: int,
    most_users: int,
    how: RunContext,
    *,
    first: Sized | None = None,
) -> Sized:
    """The fewest servers of a layout that serve the users; the search begins with the `first`, or as screened."""
    start = first or screened
    if screened.layout.disaggregated is not None:
        pair = start.prefill_servers, start.servers - start.prefill_servers
        return RatioSizing(question, screened, replications, most_users, how).run(pair)
    return Sizing(question, screened, replications, most_users, how.watcher, how.simulations).run(start.servers)


def screen_all(question: FleetQuestion) -> FleetSearch:
    """Every layout with the servers it should need, without a simulation."""
    layouts, dropped = every_layout(question)
    disaggregated, refused = disaggregated_layouts(question, layouts)
    found: list[Screened] = []
    dropped += refused
    for layout in (*layouts, *disaggregated):
        each = screened(layout, question) if layout.disaggregated is None else screened_disaggregated(layout, question)
        if isinstance(each, Screened):
            found.append(each)
        else:
            dropped.append(each)
    found.sort(key=lambda each: (each.usd_per_hour, -each.users_per_server * each.servers))
    return FleetSearch(question=question, dropped=tuple(dropped), screened=tuple(found))


def _next(race: FleetSearch) -> Screened | None:
    """The cheapest layout by its estimate that is not simulated and could still be an answer."""
    return next((each for each in race.screened if not race.is_sized(each) and _is_in_the_race(race, each)), None)


def _is_in_the_race(race: FleetSearch, each: Screened) -> bool:
    kind = each.layout.kind
    best, rival, simulated = race.best, race.best_of(kind), race.sized_of(kind)
    least = each.usd_per_hour_if(OPTIMISM)
    if best is not None and least > MAX_COST_RATIO * best.usd_per_hour:
        return False
    if rival is None or len(simulated) == MOST_OF_A_GPU:
        return len(simulated) < MOST_OF_A_GPU
    if each.usd_per_hour == rival.usd_per_hour:  # as much money may buy more
        return each.users_per_server * each.servers > OPTIMISM * rival.users()
    if best is not None and rival.usd_per_hour > CLOSE * best.usd_per_hour:
        return False
    first = race.screened_of(kind)[0].usd_per_hour
    return each.usd_per_hour <= NEAR * first and least < rival.usd_per_hour
