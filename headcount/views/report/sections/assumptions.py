"""What the answer rests on: each figure with its source, and whether it was measured, specified or assumed."""

from collections import Counter
from collections.abc import Iterator

from files.documents import ReadJson
from headcount.views.report.parts import Folded, Part, Table, Text

TITLE = "Assumptions and sources"
ORDER = 85
SHOWN_BY = "any command that simulates"
COLUMNS = ("what", "value", "kind", "source")
LONG = 12  # rows: more are folded


def parts(answer: ReadJson) -> Iterator[Part]:
    found = answer["report"].get("assumptions")
    if not found:
        return
    kinds = Counter(row["kind"] for row in found)
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    yield Text(text=f"{len(found)} figures: {told}.")
    for part in dict.fromkeys(row["part"] for row in found):
        rows = [[row[name] for name in ("name", "value", "kind", "source")] for row in found if row["part"] == part]
        table = Table(title=part[0].upper() + part[1:], columns=COLUMNS, rows=rows, text_columns=(0, 1, 2, 3))
        yield (
            Folded(title=f"{part[0].upper()}{part[1:]}: {len(rows)} figures", parts=[table])
            if len(rows) > LONG
            else table
        )
