"""What one worked example says, beside what our code gives for the same inputs."""

import csv
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

VERDICTS = ("wrong", "near", "lost", "right")
_RIGHT, _NEAR = 0.02, 0.25  # relative errors up to which a claim is right, its last digit's rounding apart, or near


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number of ours; `claimed` and `recomputed` say which number of the file's cells it answers.

    `claim` stands in for a claim that is a formula, `expected` for a recomputed formula, at the same inputs. `ours` is
    None where our code has no such number.
    """

    ours: Callable[[], float] | None
    unit: str
    claimed: int | None = 0
    claim: float | None = None
    recomputed: int | None = 0
    expected: float | None = None


@dataclass(frozen=True, kw_only=True)
class Example:
    """One row. Where our code has no number for it, `why` explains it.

    `differs`: our number is not the file's recomputed one, on the grounds that `why` gives; `otherwise`: nor is our
    verdict the file's, which this is. `verdict` is given where it does not follow from the claimed figures; `cause`
    groups what is wrong.
    """

    name: str
    topic: str
    about: str
    figures: tuple[Figure, ...] = ()
    why: str = ""
    differs: bool = False
    verdict: str = ""
    otherwise: str = ""
    cause: str = ""

    @property
    def is_expressed(self) -> bool:
        """Whether our code has a number for it."""
        return any(figure.ours is not None for figure in self.figures)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Where a claim stands, with the digits that its figures have in print; None: no digits there."""

    line: str
    digits: tuple[str | None, ...]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """An example with its claim."""

    example: Example
    claim: Claim

    @property
    def factor(self) -> float | None:
        """Claimed over ours, of the figure that is furthest off; None where nothing was claimed in figures."""
        found = [value / ours for value, _, ours in self._pairs() if value > 0 and ours > 0]
        return max(found, key=lambda factor: max(factor, 1 / factor), default=None)

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        if self.example.verdict:
            return self.example.verdict
        pairs = self._pairs()
        if not pairs:
            return "lost"
        if all(abs(value - ours) <= half_digit + _RIGHT * ours for value, half_digit, ours in pairs):
            return "right"
        return "near" if all(abs(value - ours) <= _NEAR * ours for value, _, ours in pairs) else "wrong"

    def _pairs(self) -> list[tuple[float, float, float]]:
        """(claimed, half a unit of its last digit, ours) of each figure that was claimed."""
        found = []
        for figure, digits in zip(self.example.figures, self.claim.digits, strict=True):
            if figure.ours is None:
                continue
            if figure.claim is not None:
                found.append((figure.claim, 0.0, figure.ours()))
            elif digits is not None:
                found.append((*number(digits), figure.ours()))
        return found


def number(digits: str) -> tuple[float, float]:
    """Its value with half a unit of its last printed digit."""
    plain = digits.replace(",", "")
    return float(plain), 0.5 / 10 ** len(plain.partition(".")[2])


def numbers(text: str) -> list[str]:
    """The numbers of a cell, as printed."""
    return re.findall(r"\d[\d,]*(?:\.\d+)?", text)


def read_examples(path: Path) -> dict[str, dict[str, str]]:
    """The file's rows by name. Raises `ValueError` where it is no such file."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is no text in UTF-8; give the worked examples") from error
    if short := next((number for number, row in enumerate(rows, start=2) if None in row.values()), None):
        raise ValueError(f"{path}, line {short}: has fewer cells than the header; give the worked examples")
    if not rows or not {"id", "line", "claimed", "recomputed", "verdict"} <= set(rows[0]):
        raise ValueError(f"{path} has no columns id, line, claimed, recomputed, verdict; give the worked examples")
    return {row["id"]: row for row in rows}


def claims_of(rows: Mapping[str, Mapping[str, str]], examples: Iterable[Example]) -> dict[str, Claim]:
    """Lines with claimed figures of every example. Raises `ValueError` where a row or a figure is not in the file."""
    found = {}
    for example in examples:
        if example.name not in rows:
            raise ValueError(f"the file has no row {example.name}; give the worked examples that this release knows")
        row = rows[example.name]
        printed = numbers(row["claimed"])
        wanted = [figure.claimed if figure.claim is None else None for figure in example.figures]
        if any(index is not None and index >= len(printed) for index in wanted):
            raise ValueError(f"row {example.name} claims {len(printed)} figures, fewer than this release knows")
        digits = tuple(None if index is None else printed[index] for index in wanted)
        found[example.name] = Claim(line=row["line"], digits=digits)
    return found


def row(
    name: str,
    topic: str,
    about: str,
    *figures: Figure,
    why: str = "",
    differs: bool = False,
    verdict: str = "",
    otherwise: str = "",
    cause: str = "",
) -> Example:
    """An `Example`, so that tables of them read as tables."""
    return Example(
        name=name,
        topic=topic,
        about=about,
        figures=figures,
        why=why,
        differs=differs,
        verdict=verdict,
        otherwise=otherwise,
        cause=cause,
    )


def fig(
    unit: str,
    ours: Callable[[], float] | None,
    recomputed: int | None = 0,
    claimed: int | None = 0,
    *,
    claim: float | None = None,
    expected: float | None = None,
) -> Figure:
    """A `Figure`; a `claim` or an `expected` value takes the place of the file's."""
    return Figure(
        ours=ours,
        unit=unit,
        claimed=None if claim is not None else claimed,
        claim=claim,
        recomputed=None if expected is not None or ours is None else recomputed,
        expected=expected,
    )
