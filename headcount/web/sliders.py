"""Sliders: the same scenario with other users, context or GPUs, answered from what is finished."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from files.documents import Json
from files.errors import HeadcountError
from headcount.web.history import History
from headcount.web.saved_jobs import FIGURES, SavedJob, figure_text
from headcount.web.scenario import Scenario, read_scenario

_USERS: Final = (
    10, 20, 50, 100, 150, 200, 300, 400, 500, 600, 800, 1000, 1500, 2000, 3000, 4000, 5000, 7500, 10000, 15000, 20000,
)  # fmt: skip
_CONTEXT: Final = ("x1", "x1.5", "x2", "x3", "x4")
_GPUS: Final = (1, 2, 4, 8, 16, 32)
_SLIDERS: Final = {
    "capacity": ("users", "context", "gpus"),
    "plan": ("users", "context"),
    "simulate": ("users", "context", "replicas"),
}
_ASKED_FOR: Final = {"capacity": ("users",)}  # beside an answer: no part of its scenario


@dataclass(frozen=True)
class Slider:
    """What is moved, where it may be, where it is."""

    name: str
    values: tuple[str, ...]
    at: int


@dataclass(frozen=True, kw_only=True)
class Slid:
    """An answer at the sliders' places; `kept` is None where it has to be computed."""

    scenario: Scenario
    kept: SavedJob | None = None
    row: Json | None = None
    users: int = 0  # that are asked for, where the answer is how many can be served
    serving: tuple[tuple[int, bool], ...] = ()  # GPU counts that are known, and whether they serve the users

    @property
    def headroom(self) -> float | None:
        """Users at 95 % confidence over those asked for, less one."""
        if self.row is None or not self.users:
            return None
        return float(self.row.get("users_low", 0)) / self.users - 1

    @property
    def figures(self) -> list[tuple[str, str]]:
        """Names and figures of the row."""
        return [(FIGURES[name], figure_text(name, value)) for name, value in (self.row or {}).items()]


def sliders_of(scenario: Scenario, kept: SavedJob) -> list[Slider]:
    """Those that this scenario has: what it does not say, or says otherwise, has no slider."""
    found = [_slider(name, scenario, kept) for name in _SLIDERS.get(scenario.question, ())]
    return [slider for slider in found if slider is not None]


def _slider(name: str, scenario: Scenario, kept: SavedJob) -> Slider | None:
    leading = kept.rows[0] if kept.rows else {}
    if name == "context":
        now = _context_of(scenario)
        return None if now is None else _among(name, _CONTEXT, now)
    if name == "users" and scenario.question == "capacity":
        served = int(leading.get("users_low", 0)) or 100
        nearest = min(_USERS, key=lambda users: abs(users - served))
        return _among(name, tuple(map(str, _USERS)), str(nearest))
    if name == "gpus":
        counts = {*_GPUS, *(int(row["gpus"]) for row in kept.rows if "gpus" in row)}
        return _among(name, tuple(map(str, sorted(counts))), str(leading.get("gpus", 1)))
    now = scenario.one(name) or ("1" if name == "replicas" else "")
    if not now.isdecimal():
        return None
    counts = {*(_USERS if name == "users" else _GPUS), int(now)}
    return _among(name, tuple(map(str, sorted(counts))), now)


def _among(name: str, values: tuple[str, ...], now: str) -> Slider:
    all_of = values if now in values else (*values, now)
    return Slider(name, all_of, all_of.index(now))


def _context_of(scenario: Scenario) -> str | None:
    """The factor on the context; None where the scenario gives it in tokens."""
    given = [part for part in _traffic(scenario) if part.startswith("context=")]
    now = given[0].removeprefix("context=") if given else "x1"
    return now if now.startswith("x") else None


def _traffic(scenario: Scenario) -> list[str]:
    return [part.strip() for part in scenario.one("traffic").split(",") if part.strip()]


def moved(scenario: Scenario, places: Mapping[str, str]) -> Scenario:
    """The scenario with the sliders there. Raises HeadcountError for a slider, or a place, that it does not have."""
    changed = {name: value for name, value in places.items() if name not in _ASKED_FOR.get(scenario.question, ())}
    unknown = next((name for name in changed if name not in _SLIDERS.get(scenario.question, ())), None)
    if unknown is not None:
        raise HeadcountError(f"{scenario.question} has no slider {unknown}")
    if not scenario.get("replicas") and changed.get("replicas") == "1":  # as it is
        del changed["replicas"]
    if "context" in changed:
        factor = changed.pop("context")
        others = [part for part in _traffic(scenario) if not part.startswith("context=")]
        changed["traffic"] = ",".join([*others, *([f"context={factor}"] if factor != "x1" else [])])
    there = scenario.having(**changed)
    return read_scenario(there.question, there.pairs)


def slid(history: History, scenario: Scenario, places: Mapping[str, str]) -> Slid:
    """What is known there; nothing is computed."""
    there = moved(scenario, places)
    if scenario.question != "capacity":
        kept = history.find(there.key)
        return Slid(scenario=there, kept=kept, row=kept.rows[0] if kept and kept.rows else None)
    users, at = _whole(places, "users"), _whole(places, "gpus")
    counts = sorted({*_GPUS, *(int(each) for each in scenario.one("gpus").split(",") if each.strip().isdecimal())})
    asked = there.having(gpus=scenario.one("gpus"))  # the same with all the GPU counts of the first answer
    known: dict[int, tuple[SavedJob, Json]] = {}
    for gpus in counts:
        for each in (asked, there.having(gpus=str(gpus))):
            kept = history.find(each.key)
            row = next((row for row in kept.rows if row.get("gpus") == gpus), None) if kept else None
            if kept is not None and row is not None:
                known[gpus] = kept, row
    serving = tuple((gpus, bool(users) and row.get("users_low", 0) >= users) for gpus, (_, row) in known.items())
    kept, row = known.get(at, (None, None))
    return Slid(scenario=there, kept=kept, row=row, users=users, serving=serving)


def _whole(places: Mapping[str, str], name: str) -> int:
    """Where the slider stands; 0 where it stands nowhere."""
    return int(places[name]) if places.get(name, "").isdecimal() else 0
