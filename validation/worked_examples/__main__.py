"""Which worked examples of five widely read memory guides are wrong, by Headcount's own functions.

    python -m validation.worked_examples --data ../shared/data [--all] [--page docs/measurements/worked-examples.md]

reads `worked_examples.csv` there: 266 formulas and worked numbers with what each claims and what it should be,
recomputed by hand. Headcount has a figure for the rows of `claims.py`. Prints those that disagree (`--all`: every one),
then where Headcount differs from the recomputation. `--page` writes the tables into the page.
"""

import argparse
import csv
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

from validation.markdown import filled, table
from validation.worked_examples.claims import Claim, claims

FILE = "worked_examples.csv"
RIGHT = 0.02  # relative error up to which a claim is right, the rounding of its last digit apart


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A claim beside our figure; `half_digit`: half a unit of the last digit that the guide prints."""

    claim: Claim
    line: str  # document and line
    claimed: float
    half_digit: float
    recomputed: float | None
    recomputed_half_digit: float
    ours: float

    @property
    def verdict(self) -> str:
        if self.claim.cause:
            return "wrong"
        off = abs(self.claimed - self.ours)
        return "right" if off <= self.half_digit + RIGHT * self.ours else "near"

    @property
    def agrees(self) -> bool:
        """Whether ours is the figure recomputed by hand, to its last digit."""
        return self.recomputed is not None and abs(self.ours - self.recomputed) <= 1.001 * self.recomputed_half_digit


def read_rows(data: Path) -> dict[str, dict[str, str]]:
    """The file's rows by name."""
    with (data / FILE).open(encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def judge(claim: Claim, row: dict[str, str]) -> Judged:
    """Our figure beside the row's."""
    claimed, half_digit = _number(row["claimed"], claim.claimed)
    recomputed, other = (None, 0.0) if claim.recomputed is None else _number(row["recomputed"], claim.recomputed)
    return Judged(
        claim=claim, line=f"{row['document']}, line {row['line']}", claimed=claimed, half_digit=half_digit,
        recomputed=recomputed, recomputed_half_digit=other, ours=float(claim.ours()),
    )  # fmt: skip


def _number(cell: str, place: int) -> tuple[float, float]:
    """The number at this place of a cell, with half a unit of its last printed digit."""
    digits = re.findall(r"\d[\d,]*(?:\.\d+)?", cell)[place].replace(",", "")
    return float(digits), 0.5 / 10 ** len(digits.partition(".")[2])


def wrong_table(judged: Sequence[Judged]) -> str:
    """Wrong claims; rows of one cause about one thing as one line."""
    wrong = sorted((item for item in judged if item.verdict == "wrong"), key=_series)
    lines = []
    for _, group in groupby(wrong, key=_series):
        items = sorted(group, key=lambda item: item.claim.row)
        furthest = max(items, key=lambda item: max(item.claimed / item.ours, item.ours / item.claimed))
        first, last = items[0].claim.row, items[-1].claim.row
        lines.append(
            (
                first if first == last else f"{first}–{last}",
                furthest.claim.about,
                *_figures(furthest),
                furthest.claim.cause,
            )
        )
    return table(("row", "what", "claimed", "Headcount", "cause"), lines)


def _series(item: Judged) -> tuple[str, str]:
    """Tables of like rows are one line."""
    name = item.claim.about
    return item.claim.cause, re.sub(r"LLaMA-\d+B, [\d,]+ tokens", "LLaMA", name) if "LLaMA" in name else item.claim.row


def _figures(item: Judged) -> tuple[str, str]:
    unit = f" {item.claim.unit}" if item.claim.unit else ""
    return f"{_shown(item.claimed)}{unit}", f"{_shown(item.ours)}{unit}"


def _shown(value: float) -> str:
    """Whole numbers whole, others to four digits."""
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 10_000 else f"{value:,.4g}"


def differing_table(judged: Sequence[Judged]) -> str:
    """Claims that are not wrong though ours is another figure, with the reason."""
    rows = [
        (item.claim.row, item.claim.about, *_figures(item), item.claim.remark) for item in judged if item.claim.remark
    ]
    return table(("row", "what", "claimed", "Headcount", "why"), rows)


def counts(judged: Sequence[Judged], num_rows: int) -> str:
    """One sentence."""
    number = {verdict: sum(item.verdict == verdict for item in judged) for verdict in ("right", "near", "wrong")}
    rows = len({item.claim.row for item in judged})
    return (
        f"Headcount computes {len(judged)} figures of {rows} of the {num_rows} rows: {number['right']} claims are "
        f"right, {number['near']} differ for a reason given below, {number['wrong']} are wrong."
    )


def all_table(judged: Sequence[Judged]) -> str:
    """Every claim."""
    rows = [(item.claim.row, item.line, item.claim.about, *_figures(item), item.verdict) for item in judged]
    return table(("row", "where", "what", "claimed", "Headcount", "verdict"), rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help=f"folder that holds {FILE}")
    parser.add_argument("--all", action="store_true", help="every claim, not only the wrong ones")
    parser.add_argument("--page", type=Path, help="write the tables of this page")
    arguments = parser.parse_args()
    rows = read_rows(arguments.data)
    judged = [judge(claim, rows[claim.row]) for claim in claims()]
    tables = {
        "counts": partial(counts, judged, len(rows)),
        "wrong": partial(wrong_table, judged),
        "differing": partial(differing_table, judged),
    }
    if arguments.page is not None:
        arguments.page.write_text(filled(arguments.page.read_text(encoding="utf-8"), tables), encoding="utf-8")
    elif arguments.all:
        print(all_table(judged))
    else:
        print("\n\n".join(make() for make in tables.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
