"""What the words mean."""

from headcount.answers.capacity import CapacityAnswer
from headcount.report.html import render_template

TITLE = "What the words mean"
ORDER = 80


def render(answer: CapacityAnswer) -> str:
    return render_template("definitions.html")
