"""What gains most where the deployment's limit lies."""

from headcount.answers.capacity import CapacityAnswer
from headcount.answers.varied.attribution import ratio_text
from headcount.report.html import table
from headcount.text.units import counted

TITLE = "What lifts it"
ORDER = 15


def render(answer: CapacityAnswer) -> str:
    if not answer.lifts:
        return ""
    best = answer.best
    rows = [
        (lift.change, f"{best.users_low:,}", f"{lift.layout.users:,}", ratio_text(lift.ratio), lift.remark or "–")
        for lift in answer.lifts
    ]
    caption = f"One setting changed at a time on {counted(best.gpus, 'GPU')}, simulated with the same users"
    columns = ("change", "users to sign", "with it", "users, with the 95 % interval", "mind")
    return table(columns, rows, caption=caption, layout="numbers last-is-text bold-3")
