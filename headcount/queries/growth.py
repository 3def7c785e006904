"""What fleets cost over months in which the number of users grows, and GPUs may be reserved."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from files.documents import Json
from headcount.inputs.people import Period
from headcount.queries.money import HOURS_PER_MONTH
from headcount.queries.plan_rows import FleetRow


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
