"""The cheapest fleet for these people, for the person who decides, and what its report shows beyond that."""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from files.documents import Json
from headcount.queries.energy import energy_asked
from headcount.queries.money import usd_per_user_month
from headcount.queries.plan import PlanResult
from headcount.queries.plan_rows import SCREENED, FleetRow, about, nearest_text, sized_row
from headcount.text.blocks import Column, table_of
from headcount.text.pools import Part
from headcount.text.units import change, counted, percent, whole_dollars
from headcount.text.words import AT_CONFIDENCE, PRECISION_REMARK, SAFE, joined, model_title, sentence
from headcount.views.of import plan_text
from headcount.views.of.plan_text import body, head
from headcount.views.report_data.assumptions import of_terms
from headcount.views.report_data.study import layouts_json, study_json
from headcount.views.summary.confidence import Headroom
from headcount.views.summary.summary import Bought, Options, Summary, alone_risk, options_of, risk_of, served_summary
from kvcache.gpus.gpu import find_gpu
from workloads.demand import LINKS, Link

__all__ = ["body", "details", "head", "summary"]

MOST_FLEETS: Final = 4  # in the summary
OF_TODAY: Final = (0.0, 0.5, 1.0, 1.5, 2.0)  # times the users, where both bills are drawn
LEAST_LIFT: Final = 1.05  # of the users: less may be chance
_OWN_FORMATS: Final = {"--quantization": "weights", "--kv-cache-dtype": "KV cache"}
_NEUTRAL: Final = ("time_zones",)  # nothing is known to be otherwise


def summary(answer: PlanResult) -> Summary:
    """The fleet to buy; where there is none, why."""
    asked, best = answer.race.question, answer.best
    named = _named(answer)
    question = f"Which GPUs serve {model_title(asked.architecture.name)} to {named}, and what do they cost?"
    sized = answer.race.best
    if sized is None or best is None or best.users_low is None or best.users is None or best.users_high is None:
        return Summary(
            question=question, answer=plan_text.headline(answer), risk=risk_of(answer.diagnostics, ""), is_good=False
        )
    start, low = answer.demand.links[0], best.users_low
    layout, is_people = sized.layout, start.name == "employees"
    spare = best.spare_servers or 0
    heads = start.value if is_people else answer.demand.users
    bought = Bought(
        gpu=layout.offer.gpu, gpus=best.gpus or 0, servers=best.servers or 0, usd_per_gpu_hour=best.usd_per_gpu_hour,
        users_low=low, spare_servers=spare,
        heads=(heads, f"{'person' if is_people else 'user'} at {heads:,.0f} {'people' if is_people else 'users'}"
               f", ${usd_per_user_month(best.usd_per_month, low) or 0:,.2f} per user at {counted(low, 'user')}"),
        parts=_parts(best),
        beside=tuple((find_gpu(row.gpu), row.usd_per_gpu_hour) for row in _shown(answer)[0][1:]),
    )  # fmt: skip
    needed = answer.users_to_serve
    links = [link for link in answer.demand.links if link.assumed and link.name not in _NEUTRAL]
    api = [("API instead", plan_text.api_text(answer))] if answer.break_even else []
    return served_summary(
        answer,
        question,
        f"Use {bought} for {named}{_api_said(answer)}",
        figures=(*bought.figures, *_spare_figures(answer), *_fp8_figures(answer), *api, *energy_asked(answer.energy)),
        priced=bought.priced,
        serves=("for", _at_the_peak(answer)),
        load=asked.workload,
        slo=asked.slo,
        plan=layout.plan,
        headroom=Headroom(needed=needed, low=low, users=best.users, high=best.users_high),
        found=sized.row,
        about=f"Even with any {'one' if spare == 1 else f'{spare:,}'} of the {bought.servers:,} servers down, "
        * bool(spare),
        links=[_link_text(link, low / needed) for link in links],
        risk=_failure_text(answer, bought, low, needed),
        options=_options(answer),
        words=[("disaggregated prefill/decode", "some servers compute prompts (prefill), others answers (decode).")],
    )


def _api_said(answer: PlanResult) -> str:
    """Whether own GPUs or the API cost less at this load."""
    found = answer.break_even
    if found is None:
        return ""
    own, api, other = whole_dollars(found.own_usd_per_month), plan_text.api_bill(answer), answer.break_even_of_mean_day
    if other is not None and other.own_is_cheaper != found.own_is_cheaper:
        return f"; {plan_text.api_verdict(answer)}: {api} instead of ${own} a month"
    if found.own_is_cheaper:
        return f"; they cost less than the API: ${own} instead of {api} a month"
    return f", or the API, which costs less at this load: {api} instead of ${own} a month"


def _parts(best: FleetRow) -> tuple[Part, ...]:
    """Servers for prompts and for answers, where they are disaggregated."""
    if best.prefill_tp is None or best.prefill_servers is None:
        return ()
    return (best.prefill_servers, best.prefill_tp), ((best.servers or 0) - best.prefill_servers, best.tp or 1)


def _shown(answer: PlanResult) -> tuple[list[FleetRow], list[FleetRow]]:
    """The fleets that the table has room for, and the others."""
    found = [row for row in answer.fleets if row.runs and row.users_low is not None]
    return found[:MOST_FLEETS], found[MOST_FLEETS:]


def _failure_text(answer: PlanResult, bought: Bought, low: int, needed: float) -> str:
    if not bought.spare_servers:  # what a spare costs is among the figures, where it may be of another GPU
        return bought.failure if bought.parts else alone_risk(bought.servers, low, needed)
    tried = answer.spare_tried
    if answer.best is not None and answer.best.prefill_tp is not None:
        spare = counted(answer.race.question.spare, "engine")
        return (
            f"While {spare} of each kind {'is' if spare.startswith('1 ') else 'are'} down, the others serve all users."
        )
    return "" if tried is None else sentence(f"{tried}.")


def _spare_figures(answer: PlanResult) -> Iterator[tuple[str, str]]:
    """The fleet that is cheapest with one server more, which may fail, and what the best costs so."""
    best = answer.best
    if best is None or best.spare_servers or best.prefill_tp is not None:
        return
    found = [row for row in answer.fleets if row.runs and row.users_low is not None and row.usd_per_month]
    if found:
        cheapest = min(found, key=_month_with_spare)
        beside = f", or {_with_spare(best)}" if _month_with_spare(cheapest) < _month_with_spare(best) else ""
        yield "with a spare server", _with_spare(cheapest if beside else best) + beside


def _fp8_figures(answer: PlanResult) -> Iterator[tuple[str, str]]:
    """What smaller weights would cost, where that is less."""
    for each in answer.nearest if answer.best else ():
        row = sized_row(each.sized)
        cost = f"{row.gpus:,} × {find_gpu(row.gpu).title}, ${whole_dollars(row.usd_per_month)} a month"
        yield "with FP8 weights", f"{cost}, if their quality is acceptable"


def _with_spare(row: FleetRow) -> str:
    """Such as `2 × NVIDIA H200 SXM, $6,701 a month`."""
    servers = row.servers or 1
    gpus = (row.gpus or 0) * (servers + 1) // servers
    return f"{gpus:,} × {find_gpu(row.gpu).title}, {about(row)}${whole_dollars(_month_with_spare(row))} a month"


def _month_with_spare(row: FleetRow) -> float:
    servers = max(row.servers or 0, 1)
    return (row.usd_per_month or math.inf) * (servers + 1) / servers


def _options(answer: PlanResult) -> Options | None:
    """The cheapest fleet of each kind of GPU."""
    rows, others = _shown(answer)
    if len(rows) < 2:
        return None
    cheapest, spare = rows[0].usd_per_month or math.inf, rows[0].spare_servers or 0
    columns = (
        Column("GPUs", _gpus_title),
        Column[FleetRow]("servers", lambda row: f"{row.servers or 0:,}"),
        Column[FleetRow](SAFE, lambda row: f"{about(row)}{row.users_low:,}"),
        Column[FleetRow]("$ a month", lambda row: f"{about(row)}{whole_dollars(row.usd_per_month)}"),
        Column[FleetRow](
            "extra cost",
            lambda row: "–" if row is rows[0] or not row.usd_per_month else change(row.usd_per_month / cheapest - 1),
        ),
    )
    note = [
        f"{plan_text.RANKED}.",
        f"Each fleet includes {counted(spare, 'spare server')}." if spare else "",
        _dearer_text(others),
        _refused_text(answer),
        _formats_text(answer),
    ]
    return options_of("The cheapest fleet of each kind of GPU", columns, rows, rows[0], " ".join(filter(None, note)))


def _formats_text(answer: PlanResult) -> str:
    """That formats of fewer bits were not tried, and what they do to the best fleet by their estimates."""
    if len(answer.race.question.variants) > 1:
        return ""
    suggestions = [each for each in answer.evidence.get("estimated_suggestions", ()) if each["ratio"] > LEAST_LIFT]
    found = {each["change"].split()[0]: each for each in suggestions if each["change"].startswith(tuple(_OWN_FORMATS))}
    if not found:
        return ""
    gains = joined(
        [
            f"{each['ratio'] - 1:.0%} more users with {each['change'].split()[1]} {_OWN_FORMATS[flag]}"
            for flag, each in found.items()
        ]
    )
    return f"Estimated gains of smaller number formats: {gains}. {sentence(PRECISION_REMARK)}."


def _gpus_title(row: FleetRow) -> str:
    return row.gpus_text.replace(row.gpu, find_gpu(row.gpu).title)


def _dearer_text(rows: Sequence[FleetRow]) -> str:
    """What the table has no room for."""
    named = [f"{_gpus_title(row)} ({about(row)}${whole_dollars(row.usd_per_month)})" for row in rows[:MOST_FLEETS]]
    more = [f"{len(rows) - MOST_FLEETS} more"] if len(rows) > MOST_FLEETS else []
    return f"These cost more: {joined([*named, *more])}." if named else ""


def _refused_text(answer: PlanResult) -> str:
    """Kinds of GPU that serve nobody: the model does not run there, or one user is too many."""
    kinds = dict.fromkeys(row.gpu for row in answer.fleets if not row.runs)
    runs = {drop.gpu for drop in answer.race.dropped if drop.attainment >= 0} | {
        each.layout.offer.gpu.name for each in answer.race.sized
    }
    groups = {
        "Do not meet the service level": [name for name in kinds if name in runs],
        "Cannot run the model on the GPUs of one server": [name for name in kinds if name not in runs],
    }
    return " ".join(
        f"{what}: {joined([find_gpu(name).title for name in names])}." for what, names in groups.items() if names
    )


def _named(answer: PlanResult) -> str:
    """How many people, as they were asked for."""
    start = answer.demand.links[0]
    return f"{counted(round(start.value), 'user')} at once" if start.name == "users" else start.shown


def _at_the_peak(answer: PlanResult) -> str:
    people, needed = f"{counted(round(answer.demand.users), 'user')} at once", answer.users_to_serve
    planned = "" if needed == answer.demand.users else f" ({needed:,.0f} with growth and headroom)"
    before = "" if _named(answer) == people else f"{_named(answer)}: "
    return f"{before}{people}{'' if before == '' else ' at the peak'}{planned}"


def details(answer: PlanResult) -> Json:
    """The fleet that is bought, simulated under the users; the chain; what else was compared; the money."""
    best = answer.race.best
    assumed: Json = {}
    if best is not None and (pools := best.layout.disaggregated) is not None:
        assumed = {"assumptions": of_terms("memory, step times and KV transfer", pools.assumptions)}
    return study_json(answer, answer.study) | assumed | dict(answer.evidence) | {
        "demand": {
            "links": [
                {"meaning": sentence(LINKS[link.name].meaning), "shown": link.shown, "kind": link.kind,
                 "source": link.source}
                for link in answer.demand.links
            ],
            "chain": [str(line) for line in plan_text.chain(answer)][len(answer.demand.links) :],
        },
        "layouts": _layouts(answer),
        "cost": _cost(answer),
    }  # fmt: skip


def _link_text(link: Link, room: float) -> str:
    """A share is a factor of the users, so that it may grow as they may."""
    how = "measured elsewhere" if link.kind == "measured" else "assumed"
    said = f"{sentence(LINKS[link.name].meaning)}: {link.shown} ({how})."
    if link.unit != "share":
        return f"{said} Use your own figure."
    most = link.value * room
    enough = f"up to {percent(round(most, 2))}" if most < 1 else "even at 100 %"
    return f"{said} If only this is higher, these GPUs are enough {enough}."


def _layouts(answer: PlanResult) -> Json:
    rows = [row for row in answer.fleets if row.runs and row.usd_per_month is not None]
    is_compared = len({row.gpu for row in rows}) > 1
    return layouts_json(
        "The same users cost more on other GPUs" if is_compared else "Only one kind of GPU was compared",
        "US dollars a month",
        [
            (row.gpus_text, row.usd_per_month, f"${row.usd_per_month:,.0f}",
             "pale" if row.state == SCREENED else "marked" if row is answer.best else "plain")
            for row in rows
        ],
        [f"{row.kind}: {row.reason}" for row in answer.fleets if row.reason and not row.runs]
        + [sentence(nearest_text(each)) for each in answer.nearest],
        text="dollars",
        table=table_of(plan_text.LAYOUTS, answer.layouts, keys=2),
    )  # fmt: skip


def _cost(answer: PlanResult) -> Json | None:
    best = answer.best
    if best is None or best.usd_per_hour is None:
        return None
    costs = (answer.figures()["costs"] or {}) | {"usd_per_user_month": best.usd_per_user_month}
    names = {
        "usd_per_hour": "per hour", "usd_per_month": "per month of 730 hours",
        "usd_per_asked_user_month": "per user asked for and month",
        "usd_per_user_month": f"per user {AT_CONFIDENCE} and month",
        "usd_per_million_output_tokens": "per million output tokens", "usd_per_million_tokens": "per million tokens",
    }  # fmt: skip
    utilization = percent(round(answer.money.utilization, 2))
    even, users = answer.break_even, answer.demand.users
    bills = {"API": even} if even is not None else {}
    if answer.break_even_of_mean_day is not None and even is not None:  # the mean load is assumed
        day = percent(round(answer.money.utilization_of_mean_day or 0, 2))
        bills = {f"API, mean load {utilization}": even, f"API, mean load {day}": answer.break_even_of_mean_day}
    return {
        "title": "" if even is None else "Own GPUs compared with an API",
        "rows": [(said, f"{costs[name]:,.2f}") for name, said in names.items() if costs.get(name) is not None],
        "said": [
            f"Tokens are counted for a month at {utilization} of the peak load on average.",
            *(
                [f"{sentence(plan_text.api_text(answer))}."]
                if even
                else ["No API was compared; give its prices for input and output tokens."]
            ),
        ],
        "break_even": None
        if even is None
        else {
            "today": users,
            "users": [share * users for share in OF_TODAY],
            "usd": {name: [share * each.api_usd_per_month for share in OF_TODAY] for name, each in bills.items()}
            | {"own GPUs": [best.usd_per_month] * len(OF_TODAY)},
        },
    }
