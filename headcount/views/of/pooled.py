"""What every fleet of several pools says."""

from collections.abc import Sequence
from dataclasses import replace

from headcount.queries.autoscaling.pooled import NOBODY, PooledResult
from headcount.text.blocks import Block, Line
from headcount.text.units import counted
from headcount.text.words import AT_CONFIDENCE, interval_text
from headcount.views.report_data.workload import assumptions_of, workload_text
from headcount.views.summary.confidence import Headroom
from headcount.views.summary.summary import Options, Priced, Summary, served_summary, serves_nobody


def headline(answer: PooledResult, gpus: str, behind: str) -> list[Block]:
    asked = answer.question
    title = f" on {gpus}, workload {answer.workload}: {asked.slo}"
    said = f"{counted(answer.users_low, 'user')} {AT_CONFIDENCE} {behind}"
    mean = f" {interval_text(answer.users_low, answer.users, answer.users_high)}"
    return [Line(title, bold=asked.architecture.name), Line(mean, bold=said)]


def page(
    answer: PooledResult,
    question: str,
    said: str,
    *,
    bought: Sequence[tuple[str, str]],
    priced: Sequence[Priced],
    risk: str,
    options: Options | None = None,
    words: Sequence[tuple[str, str]] = (),
) -> Summary:
    """For the person who decides; `said` are the users' GPUs in the answer, `bought` the servers and their cost."""
    asked = answer.question
    if not answer.users_low:
        return serves_nobody(question, NOBODY if not answer.users else "the interval is too wide")
    return served_summary(
        answer,
        question,
        f"{counted(answer.users_low, 'user')} at once {said}",
        figures=bought,
        priced=priced,
        load=asked.workload,
        slo=asked.slo,
        plan=answer.plans[0],
        headroom=Headroom(needed=None, low=answer.users_low, users=answer.users, high=answer.users_high),
        risk=risk,
        options=options,
        words=words,
    )


def pooled_details(answer: PooledResult, fleet: str, terms: Sequence[dict[str, str]]) -> dict[str, object]:
    """Where the figures come from, and which assumptions move them."""
    asked = answer.question
    load = assumptions_of(replace(asked, router=answer.router), None)
    return {
        "fleet": fleet,
        "loads": [],
        "slo": vars(asked.slo),
        "seed": asked.seed,
        "workload": workload_text(asked),
        "assumptions": [row for row in load if row["part"] == "load"] + list(terms),
        **answer.evidence,
    }
