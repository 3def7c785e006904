"""A plan for the person who signs, and what its report shows beyond the figures."""

from typing import TYPE_CHECKING, Any, Final

from headcount.answers import plan_text
from headcount.answers.details.assumptions import ASSUMED, MEASURED, kind_of
from headcount.answers.details.first_page import FirstPage, Headroom, risk_of, served_page
from headcount.answers.details.study import Study, study_json
from headcount.answers.plan_rows import SCREENED, FleetRow
from headcount.text.units import counted, percent
from headcount.text.words import sentence
from simulator.study.fleets.search import Race
from workloads.demand import LINKS, Link

if TYPE_CHECKING:
    from headcount.answers.plan import PlanAnswer


_NEUTRAL: Final = ("time_zones",)  # nothing is known to be otherwise


def plan_page(answer: "PlanAnswer") -> FirstPage:
    """The fleet to buy; where there is none, why."""
    asked, best = answer.race.question, answer.best
    named = _named(answer)
    question = f"Which GPUs serve {asked.architecture.name} to {named}, and what do they cost?"
    if best is None or best.users_low is None or best.users is None or best.users_high is None:
        return FirstPage(
            question=question, answer=plan_text.headline(answer), risk=risk_of(answer.notes, ""), is_good=False
        )
    spare = f", {best.spare_servers} of them spare" if best.spare_servers else ""
    return served_page(
        answer,
        question,
        f"Buy {plan_text.gpus_text(best)} for {named}",
        buy=f"{plan_text.gpus_text(best)} in {counted(best.servers or 0, 'server')}{spare}",
        whom=_at_the_peak(answer),
        workload=answer.workload,
        money=(best.usd_per_month, best.usd_per_user_month),
        slo=asked.slo,
        headroom=Headroom(needed=answer.users_to_serve, low=best.users_low, users=best.users, high=best.users_high),
        links=[_link_text(link) for link in answer.demand.links if link.assumed and link.name not in _NEUTRAL],
    )


def _named(answer: "PlanAnswer") -> str:
    """How many people, as they were asked for."""
    start = answer.demand.links[0]
    return counted(round(start.value), "user") if start.name == "users" else start.shown


def _at_the_peak(answer: "PlanAnswer") -> str:
    people, needed = counted(round(answer.demand.users), "user"), answer.users_to_serve
    planned = "" if needed == answer.demand.users else f" ({needed:,.0f} with growth and headroom)"
    before = "" if _named(answer) == people else f"{_named(answer)}: "
    return f"{before}{people} at the peak{planned}"


def plan_details(answer: "PlanAnswer") -> dict[str, Any]:
    """The fleet that is bought, simulated under the users; the chain; what else was compared; the money."""
    return study_json(answer, _study(answer.race)) | {
        "demand": {
            "links": [
                {"meaning": sentence(LINKS[link.name].meaning), "shown": link.shown, "kind": _kind(link),
                 "source": link.source}
                for link in answer.demand.links
            ],
            "chain": [str(line) for line in plan_text.chain(answer)][len(answer.demand.links) :],
        },
        "layouts": _layouts(answer),
        "cost": _cost(answer),
    }  # fmt: skip


def _study(race: Race) -> Study | None:
    best = race.best
    if best is None:
        return None
    return Study(
        question=race.question.capacity_of(best.layout, best.row.replicas, replications=race.question.replications),
        row=best.row,
        servers=best.servers + best.spare,
        spare=best.spare,
        users_needed=race.question.users,
        scale=best.scale * best.each,
        usd_per_gpu_hour=best.layout.offer.usd_per_hour,
    )


def _kind(link: Link) -> str:
    if not link.assumed:
        return "given"
    return MEASURED if kind_of(link.source) == MEASURED else ASSUMED


def _link_text(link: Link) -> str:
    return f"{sentence(LINKS[link.name].meaning)}: {link.shown}, which is assumed; give your own."


def _layouts(answer: "PlanAnswer") -> dict[str, Any]:
    found = plan_text.layouts_table(answer)
    rows = [row for row in answer.fleets if row.runs and row.usd_per_month is not None]
    return {
        "title": "The same users cost more on other GPUs" if len(rows) > 1 else "Only one kind of GPU was compared",
        "axis": "US dollars a month",
        "text": "dollars",
        "bars": [
            {"name": plan_text.gpus_text(row), "value": row.usd_per_month, "label": f"${row.usd_per_month:,.0f}",
             "kind": _bar_kind(row, answer)}
            for row in rows
        ],
        "columns": found.columns,
        "rows": found.rows,
        "text_columns": list(found.text_columns),
        "said": [f"{row.gpu}: {row.reason}" for row in answer.fleets if row.reason and not row.runs]
        + [sentence(plan_text.nearest_text(each)) for each in answer.nearest],
    }  # fmt: skip


def _bar_kind(row: FleetRow, answer: "PlanAnswer") -> str:
    return "pale" if row.state == SCREENED else "marked" if row is answer.best else "plain"


def _cost(answer: "PlanAnswer") -> dict[str, Any] | None:
    best = answer.best
    if best is None or best.usd_per_hour is None:
        return None
    costs = answer.figures()["costs"] or {}
    names = {
        "usd_per_hour": "per hour", "usd_per_month": "per month of 730 hours",
        "usd_per_user_month": "per user and month",
        "usd_per_million_output_tokens": "per million output tokens", "usd_per_million_tokens": "per million tokens",
    }  # fmt: skip
    utilization = percent(round(answer.money.utilization, 3))
    even = answer.break_even
    return {
        "title": "" if even is None else "Own GPUs beside an API",
        "rows": [(said, f"{costs[name]:,.2f}") for name, said in names.items() if costs.get(name) is not None],
        "said": [
            f"Tokens are those of a month at {utilization} of the peak load on average.",
            *(f"{sentence(str(line))}." for line in plan_text.money(answer)),
            *([] if even else ["No API was compared; give its prices of input and output tokens."]),
        ],
        "break_even": None if even is None else _break_even(answer.demand.users, even.api_usd_per_month, best),
    }


def _break_even(users: float, api_usd: float, best: FleetRow) -> dict[str, Any]:
    """Both bills from no user to twice those of today."""
    shares = (0.0, 0.5, 1.0, 1.5, 2.0)
    return {
        "today": users,
        "users": [share * users for share in shares],
        "api_usd": [share * api_usd for share in shares],
        "own_usd": [best.usd_per_month] * len(shares),
    }
