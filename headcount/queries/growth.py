"""What fleets cost over months in which the number of users grows, and GPUs may be reserved."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from files.documents import Json
from headcount.inputs.growth import Period
from headcount.queries.money import HOURS_PER_MONTH
from headcount.queries.plan_rows import FleetRow, rows_of
from headcount.queries.result import Progress, Watch
from simulator.study.fleets.search import FleetSearch, Tables, search_fleets

MOST_FOLLOWED: Final = 4  # kinds of GPU over the months


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One period, with the leading fleet of each kind of GPU for its users."""

    period: Period
    users: float
    fleets: tuple[FleetRow, ...]

    def fleet(self, kind: str) -> FleetRow | None:
        """Of a kind of GPU; None where none serves these users."""
        return next((row for row in self.fleets if row.kind == kind and row.runs and row.gpus), None)


@dataclass(frozen=True, kw_only=True)
class OfferCost:
    """GPUs of one kind in each period, and their dollars in all; None where they do not serve the users."""

    kind: str
    reserved: int
    needed: tuple[int | None, ...]
    usd_per_gpu_hour: float | None
    months: tuple[int, ...]

    @property
    def paid(self) -> tuple[int | None, ...]:
        """At least those that are reserved."""
        return tuple(None if count is None else max(count, self.reserved) for count in self.needed)

    @property
    def usd(self) -> float | None:
        """Over all months; None without a price."""
        if self.usd_per_gpu_hour is None:
            return None
        hours = [months * HOURS_PER_MONTH for months in self.months]
        counts = [count for count in self.paid if count is not None]
        if len(counts) < len(hours):
            return None
        return self.usd_per_gpu_hour * sum(count * each for count, each in zip(counts, hours, strict=True))

    def to_json(self) -> Json:
        found = {name: value for name, value in asdict(self).items() if name not in ("months", "kind")}
        return {"gpu": self.kind, **found, "paid": list(self.paid), "usd": self.usd}


def followed_stages(
    periods: Sequence[Period], first: FleetSearch, reserved: Collection[str], tables: Tables, progress: Watch
) -> Iterator[Stage]:
    """The fleets of each period: of the GPUs that are cheapest at first, and of those that are reserved.

    Each GPU is searched alone, so that all are confirmed; what was simulated for one period is known to the next.
    """
    asked, cheapest = tables.question, dict.fromkeys(row.gpu for row in rows_of(first) if row.runs and row.gpus)
    followed = {*list(cheapest)[:MOST_FOLLOWED], *reserved}
    offers = [offer for offer in asked.offers if offer.gpu.name in followed]
    total = len(periods) * len(offers)
    for number, period in enumerate(periods):
        users, fleets = asked.users * period.factor, list[FleetRow]()
        for place, offer in enumerate(offers):
            progress(Progress(done=number * len(offers) + place, total=total, what="fleets over the months"))
            own = tables.about(replace(asked, users=users, offers=(offer,)))
            *_, race = search_fleets(own.question, tables=own)
            fleets += rows_of(race)
        yield Stage(period=period, users=users, fleets=tuple(fleets))


def offer_costs(stages: Sequence[Stage], reserved: Mapping[str, int]) -> tuple[OfferCost, ...]:
    """Of each kind of GPU, the cheapest over all months first."""
    kinds = {row.kind: row for stage in stages for row in stage.fleets if row.runs and row.gpus}
    found = []
    for kind, row in kinds.items():
        rows = [stage.fleet(kind) for stage in stages]
        found.append(
            OfferCost(
                kind=kind,
                reserved=reserved.get(row.gpu, 0),
                needed=tuple(None if each is None else each.gpus for each in rows),
                usd_per_gpu_hour=row.usd_per_gpu_hour,
                months=tuple(stage.period.months for stage in stages),
            )
        )
    return tuple(sorted(found, key=lambda each: (each.usd is None, each.usd)))
