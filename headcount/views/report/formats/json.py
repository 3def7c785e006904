"""The answer itself: `headcount report` makes every other format of it."""

import json

from headcount.views.report.document import Report


def missing() -> str:
    """Nothing is needed."""
    return ""


def made(report: Report) -> str:
    return json.dumps(report.answer, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
