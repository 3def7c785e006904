"""Every figure of the answer as the command line's JSON has it."""

import json
import math
from typing import Any

from headcount.answers.capacity import CapacityAnswer
from headcount.report.html import join, render_template, table
from headcount.text.units import counted

TITLE = "Every figure"
ORDER = 90


def render(answer: CapacityAnswer) -> str:
    answers = [_flat(row) for row in answer.rows()]
    names = list(dict.fromkeys(name for answer in answers for name in answer))
    columns = ("", *(counted(row.gpus, "GPU") for row in answer.capacity))
    rows = [(name, *(_cell(answer.get(name)) for answer in answers)) for name in names]
    return join(
        table(columns, rows, caption="Under the names of headcount capacity --json", layout="numbers wrapped"),
        render_template("json.html", text=json.dumps(answer.to_json(), indent=1, ensure_ascii=False)),
    )


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, item in value.items():
        found |= _flat(item, f"{prefix}{key}.") if isinstance(item, dict) else {f"{prefix}{key}": item}
    return found


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    return (
        f"{value:,.4g}"
        if isinstance(value, float) and abs(value) < 1000
        else (f"{value:,.0f}" if isinstance(value, int | float) else str(value))
    )
