"""What the best layout gains over the base, one change at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from files.documents import Json
from headcount.inputs.reading.variations import Choice, value_text
from headcount.queries.sweeps.layout import Layout
from headcount.text.words import ratio_text
from simulator.study.statistics import Interval
from simulator.study.variations.ratios import chain_ratios, common_replications, times


@dataclass(frozen=True, kw_only=True)
class Change:
    """One value changed, and what it multiplies; None where the layout before or after it serves nobody."""

    what: str
    ratio: Interval | None

    def __str__(self) -> str:
        return f"{self.what}: {ratio_text(self.ratio)}"

    def to_json(self) -> Json:
        return {"change": self.what, "ratio": vars(self.ratio) if self.ratio else None}


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """From the base to the best: each change on top of those before it, and each alone."""

    of: str  # users, or users per dollar
    whole: Interval | None
    chain: tuple[Change, ...]
    alone: tuple[Change, ...]

    def to_json(self) -> Json:
        return {
            "of": self.of.replace(" ", "_"),
            "whole": vars(self.whole) if self.whole else None,
            "chain": [change.to_json() for change in self.chain],
            "alone": [change.to_json() for change in self.alone],
        }


def _changed(base: Choice, best: Choice) -> list[str]:
    return [name for name in best if name not in base or base[name] != best[name]]


def _users(layout: Layout) -> int:
    return layout.row.users_low if layout.row else 0


def attribution(base: Layout, best: Layout, at: Callable[[Choice], Layout], *, by_cost: bool) -> Attribution | None:
    """`at` gives the simulated layout of a choice; None where the base is the best."""
    alone_with = {name: at({**base.choice, name: best.choice[name]}) for name in _changed(base.choice, best.choice)}
    if not alone_with:
        return None
    names = sorted(alone_with, key=lambda name: -_users(alone_with[name]))
    singles = [alone_with[name] for name in names]
    path, choice = [base], dict(base.choice)
    for name in names:
        choice[name] = best.choice[name]
        path.append(at(dict(choice)))
    has_prices = by_cost and all(layout.usd_per_month for layout in (*path, *singles))
    said = [value_text(name, best.choice[name]) for name in names]
    numbers = common_replications([row for each in path if (row := each.row)])

    def ratios(through: Sequence[Layout]) -> list[Interval | None]:
        return _ratios(through, has_prices=has_prices, numbers=numbers)

    chain, alone = ratios(path), [ratios([base, single])[0] for single in singles]
    return Attribution(
        of="users per dollar" if has_prices else "users",
        whole=ratios([base, path[-1]])[0],
        chain=tuple(Change(what=name, ratio=ratio) for name, ratio in zip(said, chain, strict=True)),
        alone=tuple(Change(what=name, ratio=ratio) for name, ratio in zip(said, alone, strict=True)),
    )


def _ratios(path: Sequence[Layout], *, has_prices: bool, numbers: int | None) -> list[Interval | None]:
    rows = [layout.row for layout in path]
    if any(row is None for row in rows):
        return [None] * (len(path) - 1)
    found = chain_ratios([row for row in rows if row is not None], numbers=numbers)
    if not has_prices:
        return found
    months = [layout.usd_per_month or 1.0 for layout in path]
    pairs = zip(found, months, months[1:], strict=False)
    return [None if ratio is None else times(ratio, before / after) for ratio, before, after in pairs]
