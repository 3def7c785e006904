"""A plan in sentences and tables."""

import math
from collections.abc import Sequence
from typing import Final

from files.names import readable
from headcount.queries.adapters import adapter_lines
from headcount.queries.energy import energy_asked
from headcount.queries.money import BreakEven, price_lines, usd_per_month, vendors_of
from headcount.queries.plan import PlanResult
from headcount.queries.plan_rows import SCALED, SCREENED, FleetRow, about, gpus_text, nearest_text
from headcount.text.blocks import Block, Column, Line, table_of
from headcount.text.capacity import trace_text
from headcount.text.units import counted, milliseconds, percent, seconds, whole_dollars
from headcount.text.words import (
    AT_CONFIDENCE,
    COVERED,
    PER_SAFE_MEANING,
    PER_SAFE_USER,
    SAFE,
    about_meaning,
    joined,
    router_line,
    safe_meaning,
    sentence,
)
from headcount.views.of.plan_over_time import over_time_table, over_time_text
from kvcache.gpus.gpu import find_gpu
from simulator.fleet.pool_sizes import DECODE, PREFILL
from simulator.latency.gpu_constants import measured_text

MOST_PRICES: Final = 2
RANKED: Final = (
    "Ranked by the monthly cost of the whole fleet for these users; at full load another GPU may cost less per user"
)


def _evidence(row: FleetRow) -> str:
    if row.state == SCALED:
        return f"scaled from {row.simulated_servers}"
    return "estimated" if row.state == SCREENED else row.evidence or row.state


FLEETS = (
    Column[FleetRow]("GPU", lambda row: row.gpu, is_text=True),
    Column[FleetRow]("GPUs", lambda row: f"{row.gpus:,}"),
    Column[FleetRow]("servers", lambda row: row.layout, is_text=True),
    Column[FleetRow](SAFE, lambda row: f"{about(row)}{row.users_low:,}", is_bold=True),
    Column[FleetRow]("$/month", lambda row: f"{about(row)}{row.usd_per_month:,.0f}"),
    Column[FleetRow](PER_SAFE_USER, lambda row: f"{about(row)}{row.usd_per_user_month:,.2f}"),
    Column[FleetRow]("TTFT p95", lambda row: seconds(row.ttft_s["p95"] if row.ttft_s else None)),
    Column[FleetRow]("TPOT p95", lambda row: milliseconds(row.tpot_s["p95"] if row.tpot_s else None)),
    Column[FleetRow]("step times", lambda row: measured_text(find_gpu(row.gpu)), is_text=True),
    Column[FleetRow]("result", _evidence, is_text=True),
    Column[FleetRow]("bottleneck", lambda row: row.binding or "", is_text=True),
)
SHORT = tuple(FLEETS[place] for place in (0, 1, 2, 3, 4, 5, 8, 9))
MOST_SHOWN: Final = 6  # fleets, without --explain
MOST_TIMES: Final = 3.0  # the cost of the best
LAYOUTS = (
    Column[FleetRow]("GPU", lambda row: row.gpu, is_text=True),
    Column[FleetRow]("layout", lambda row: row.layout, is_text=True),
    Column[FleetRow]("router", lambda row: row.router or "", is_text=True),
    Column[FleetRow]("GPUs", lambda row: f"{row.gpus:,}" if row.gpus else ""),
    Column[FleetRow]("users", lambda row: "" if row.users_low is None else f"{row.users_low:,}"),
    Column[FleetRow]("$/month", lambda row: "" if row.usd_per_month is None else f"{row.usd_per_month:,.0f}"),
    Column[FleetRow]("state", lambda row: row.state, is_text=True),
    Column[FleetRow]("why", lambda row: row.reason or row.binding or "", is_text=True),
)


def head(answer: PlanResult) -> list[Block]:
    """What was asked, the cheapest fleet, the next one."""
    asked = answer.race.question
    lines: list[Block] = [
        Line(f", workload {answer.workload}: {asked.slo}", bold=asked.architecture.name),
        Line(f": {money_text}" if (money_text := cost(answer)) else "", bold=headline(answer)),
    ]
    others = [row for row in answer.fleets[1:] if row.runs and answer.best and row.gpu != answer.best.gpu]
    if answer.best and others:
        assert answer.best.usd_per_month and others[0].usd_per_month, "fleets that run have a cost"
        more = percent(round(others[0].usd_per_month / answer.best.usd_per_month - 1, 2))
        estimated = ", as estimated" if others[0].state == SCREENED else ""
        lines.append(Line(f"next best: {gpus_text(others[0])}, {others[0].layout}, costs {more} more{estimated}"))
    if answer.best:
        sized = answer.race.best
        row = None if sized is None or sized.layout.disaggregated is not None else sized.row
        about_trace = trace_text(asked.workload, asked.think_time_s, row, answer.users_to_serve)
        lines += [Line(about_trace)] * bool(about_trace)
        lines += [*map(Line, bottleneck_lines(answer)), *(Line(nearest_text(each)) for each in answer.nearest)]
    if answer.adapters is not None and answer.best is not None:
        lines += map(Line, adapter_lines(answer.adapters, answer.best.usd_per_month))
    lines += [Line(said)] if (said := over_time_text(answer)) else []
    lines += [Line(f"{name} at the peak: {text}") for name, text in energy_asked(answer.energy)]
    lines += [Line(api_text(answer))] if answer.break_even else []
    rows = {row.kind: row for row in answer.fleets if row.runs and row.usd_per_month}
    pairs = [(rows[row.gpu], row) for row in rows.values() if row.prefill_tp is not None and row.gpu in rows]
    return [*lines, *(Line(disaggregated_text(both, disaggregated)) for both, disaggregated in pairs)]


def bottleneck_lines(answer: PlanResult) -> list[str]:
    """What the best fleet gives these users, what limits it, and what it would be if answers might begin later."""
    best = answer.best
    if best is None or best.ttft_s is None or best.tpot_s is None:
        return []
    reached = f"TTFT p95 {seconds(best.ttft_s['p95'])}, TPOT p95 {milliseconds(best.tpot_s['p95'])}"
    later = [
        f"with TTFT ≤ {each.slo.ttft_text} about {gpus_of(each.gpus, best)}, "
        f"${whole_dollars(usd_per_month(1, each.usd_per_hour))} a month"
        for each in answer.longer_ttft
    ]
    return [f"latency for these users: {reached}", "; ".join([f"bottleneck: {best.binding}", *later])]


def gpus_of(count: int, row: FleetRow) -> str:
    """So many of a row's GPUs."""
    return f"{count:,} × {row.gpu}"


def disaggregated_text(both: FleetRow, disaggregated: FleetRow) -> str:
    """What disaggregated prefill/decode costs on a GPU, compared with servers that do both."""
    assert both.usd_per_month and disaggregated.usd_per_month, "fleets that run have a cost"
    more = disaggregated.usd_per_month / both.usd_per_month - 1
    cost = "for the same cost" if not more else f"{percent(round(abs(more), 2))} {'more' if more > 0 else 'less'}"
    about = ", as estimated" if SCREENED in (both.state, disaggregated.state) else ""
    count = counted(disaggregated.gpus or 0, "GPU")
    gpus = f"{count}{', as many' if disaggregated.gpus == both.gpus else f' instead of {both.gpus:,}'}, {cost}"
    users = f"{disaggregated.users_low:,} users {AT_CONFIDENCE} instead of {both.users_low:,}"
    return f"{disaggregated.kind}: {gpus}; {users}{about}"


def headline(answer: PlanResult) -> str:
    """The fleet to buy, or that there is none."""
    best, users = answer.best, counted(round(answer.demand.users), "user")
    if best is None:
        if not answer.race.is_over:
            return f"{users}: stopped before a fleet was found that serves them"
        return f"None of the fleets tried serves {users} within the SLO"
    spare = f", {best.spare_servers} of them spare" if best.spare_servers else ""
    return f"{users}: {gpus_text(best)}, {best.layout}{spare}"


def cost(answer: PlanResult) -> str:
    """What the cheapest fleet costs, and how many users it serves."""
    best = answer.best
    if best is None or best.usd_per_month is None or best.usd_per_user_month is None:
        return ""
    each = best.usd_per_month / answer.demand.users
    api = f"; {verdict} (API: {api_bill(answer)} a month)" if (verdict := api_verdict(answer)) else ""
    paid = answer.reserved.get(best.gpu, 0)
    if best.gpus and paid > best.gpus and best.usd_per_gpu_hour:
        all_paid = f"${usd_per_month(paid, best.usd_per_gpu_hour):,.0f} a month for the {paid:,} reserved, of which"
        api = f"; {all_paid} {paid - best.gpus:,} are not needed{api}"
    return (
        f"${best.usd_per_month:,.0f} a month, ${each:,.2f} per user; at full load "
        f"{counted(best.users_low or 0, 'user')} {AT_CONFIDENCE}, ${best.usd_per_user_month:,.2f} per user{api}"
    )


def body(answer: PlanResult) -> list[Block]:
    """The fleets compared, the chain, how to start the best."""
    rows = [row for row in answer.fleets if row.runs]
    hidden: list[FleetRow] = []
    if not answer.explain:
        most = MOST_TIMES * (rows[0].usd_per_month or math.inf) if rows else 0.0
        shown = [row for row in rows if (row.usd_per_month or 0.0) <= most][:MOST_SHOWN]
        hidden = [row for row in rows if row not in shown]
        rows = shown
    found: list[Block] = [table_of(FLEETS if answer.explain else SHORT, rows)] if rows else []
    found += [Line(_hidden_text(hidden))] if hidden else []
    missing = [row for row in answer.fleets if not row.runs and row.reason]
    found += [Line(f"{row.kind}: {row.reason}", dim=bool(rows)) for row in missing]
    found += [] if answer.race.best else [Line(nearest_text(each)) for each in answer.nearest]
    found += [Line(), *chain(answer), *_start(answer)]
    found += [Line(str(answer.spare_tried))] if answer.spare_tried else []
    if answer.explain:
        found += [Line(), Line(bold="every layout"), table_of(LAYOUTS, answer.layouts, keys=2)]
    coarse = [row.step_time_error for row in rows if row.evidence == "coarse"]
    found += [Line(f"routers: {_routers(rows)}")] * (not answer.explain and _differ(rows))
    found += _vendors(rows)
    found += [Line(about_meaning(coarse))] if coarse else []
    return [*over_time_table(answer), *found, Line(), *_legend(answer)]


def _hidden_text(rows: Sequence[FleetRow]) -> str:
    """The fleets that the short table leaves out, dearer than those in it."""
    named = [f"{gpus_text(row)} ({about(row)}${whole_dollars(row.usd_per_month)} a month)" for row in rows]
    return f"dearer, see --explain: {', '.join(named)}"


def _vendors(rows: Sequence[FleetRow]) -> list[Line]:
    """That list prices of several vendors are compared, which compares the vendors, too."""
    gpus = [(find_gpu(row.gpu), row.usd_per_gpu_hour) for row in rows]
    found = vendors_of(gpu for gpu, usd in gpus if usd == gpu.usd_per_hour)
    if found is None:
        return []
    most, said = found
    return [Line(f"{said}; --prices {most} keeps to one vendor, --price takes your own")]


def chain(answer: PlanResult) -> list[Line]:
    """Users → requests/s → in flight → GPUs."""
    lines = [Line(text) for text in answer.demand.lines()]
    people, best = answer.people, answer.best
    if people.peak_text:
        lines.append(Line(f"peak: {people.peak_text}"))
    if people.factor != 1:
        extra = (("growth", people.growth_at_once), ("headroom", people.headroom))
        named = " and ".join(f"{percent(share)} {name}" for name, share in extra if share)
        lines.append(Line(f"with {named}: {readable(answer.users_to_serve)} users to serve"))
    lines.append(Line(request_text(answer)))
    if best is not None and best.requests_per_s is not None and best.in_flight is not None and best.servers:
        spare = best.spare_servers or 0
        servers = counted(best.servers - spare, "server") + (f" + {spare} spare" if spare else "")
        rates = f"{_figure(best.requests_per_s)} requests/s → {_figure(best.in_flight)} in flight"
        lines.append(Line(f"→ {rates} → {servers} → {counted(best.gpus or 0, 'GPU')}"))
    if (peak := answer.peak) is not None:  # of the users to serve
        both = (_figure(people.factor * each) for each in (peak.input_tokens_per_s, peak.output_tokens_per_s))
        lines.append(Line("token throughput, as simulated: {} prompt tokens/s and {} output tokens/s".format(*both)))
    return lines


def request_text(answer: PlanResult) -> str:
    """How long a request is on average, and how long it may be where that was said."""
    found, asked = answer.traffic, answer.race.question.variants[0].max_model_len
    prompt = found.prompt_tokens if found else answer.request.input_tokens
    output = found.output_tokens if found else answer.request.output_tokens
    most = "" if asked is None else f"; at most {asked:,} together"
    return f"mean request, as expected: {prompt:,.0f} prompt tokens and {output:,.0f} output tokens{most}"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _start(answer: PlanResult) -> list[Line]:
    best = answer.best
    if best is None or not best.servers:
        return []
    if best.prefill_servers is not None:
        both = (best.prefill_servers, best.servers - best.prefill_servers), (best.prefill_serve_line, best.serve_line)
        pools = zip(*both, (PREFILL, DECODE), strict=True)
        return [Line(f"start {counted(count, f'{role} engine')} with: {line}") for count, line, role in pools]
    each = "start the server" if best.servers == 1 else f"start each of the {best.servers:,} servers"
    router = [Line(router_line(best.router))] if best.servers > 1 and best.router else []
    return [Line(f"{each} with: {best.serve_line}"), *router, *_no_spare(best)]


def _no_spare(best: FleetRow) -> list[Line]:
    """What is left while a server is down, where none is spare."""
    if best.spare_servers or not best.servers or not best.users_low:
        return []
    if best.servers == 1:
        return [Line("one server: while it is down, nobody is served; --spare 1 adds one")]
    left = counted(best.users_low * (best.servers - 1) // best.servers, "user")
    return [
        Line(f"no spare server: while one of the {best.servers:,} is down, about {left} {AT_CONFIDENCE}; see --spare")
    ]


def api_text(answer: PlanResult) -> str:
    """The cheapest fleet compared with an API, and from which load own GPUs cost less; "" without the API's prices."""
    found, even, other = answer.break_even, answer.break_even_utilization, answer.break_even_of_mean_day
    if found is None:
        return ""
    mean = answer.money.utilization
    input_tokens, output_tokens = found.input_tokens_per_month / 1e6, found.output_tokens_per_month / 1e6
    tokens = f"{_figure(input_tokens)} M input and {_figure(output_tokens)} M output tokens"
    each = f"${found.api_usd_per_month / answer.demand.users:,.2f} per user asked for"
    bill = (
        f"the API costs ${found.api_usd_per_month:,.0f} a month, {each}, for {tokens}, at a mean load of {_share(mean)}"
    )
    if other is None:
        said = [f"{bill} of the peak", f"{_above(even)}: at this load, {_cheaper(found)}"]
    else:
        flat = _share(answer.money.utilization_of_mean_day or 0)
        at_other = f"${other.api_usd_per_month:,.0f} at {flat}, as in its mean day"
        said = [
            _above(even),
            "the mean load is assumed; give --utilization or --daily-profile",
            f"{bill}, as in RAGPulse's week, and {at_other}",
        ]
    more = _break_even_text(answer, found)
    said += [f"{'' if other is None else f'at {_share(mean)}, '}{more}"] if more else []
    return ". ".join(sentence(each) for each in [*said, "discounts for cached input are not counted"])


def api_verdict(answer: PlanResult) -> str:
    """Which costs less; where the mean load is assumed and decides it, from which mean load on. "" without prices."""
    found, other = answer.break_even, answer.break_even_of_mean_day
    if found is None:
        return ""
    if other is None or other.own_is_cheaper == found.own_is_cheaper:
        return _cheaper(found)
    return f"the API costs less below a mean load of {_share(answer.break_even_utilization or 0)} of the peak"


def api_bill(answer: PlanResult) -> str:
    """What the API costs in a month, at both mean loads where it is assumed."""
    bills = [found.api_usd_per_month for found in (answer.break_even, answer.break_even_of_mean_day) if found]
    return " to ".join(f"${whole_dollars(usd)}" for usd in dict.fromkeys(sorted(bills)))


def _above(even: float | None) -> str:
    """From which mean load own GPUs cost less."""
    if even is None or even > 1:
        return "for these users the API is cheaper at any mean load"
    return f"the API is cheaper below a mean load of {_share(even)} of the peak, own GPUs above it"


def _share(value: float) -> str:
    return percent(round(value, 2))


def _cheaper(found: BreakEven) -> str:
    return "own GPUs cost less" if found.own_is_cheaper else "the API costs less"


def _break_even_text(answer: PlanResult, found: BreakEven) -> str:
    """The users from which own GPUs cost less; "" of a free API."""
    if found.load_share is None or found.users is None:
        return ""
    text = f"break-even is at {counted(math.ceil(found.users), 'user')}"
    fleets = [(row, row.usd_per_month, row.users_low / answer.people.factor) for row in answer.fleets
              if row.usd_per_month and row.users_low]  # fmt: skip
    if not fleets or found.users <= fleets[0][2]:
        return text
    api_each = fleets[0][1] / found.users  # of one at the peak
    full = [(row, usd / api_each) for row, usd, safe in fleets if usd <= api_each * safe]
    if not full:
        each, row = min((usd / safe, row) for row, usd, safe in fleets)
        own = f"{row.gpus_text}, the cheapest, {about(row)}${each:,.2f} per user, the API ${api_each:,.2f}"
        return f"{text}, more than this fleet serves; fully used fleets here cost about as much, or more: {own}"
    row, users = full[0]
    from_on = f"{row.gpus_text} breaks even from {counted(math.ceil(users), 'user')}"
    return f"{text}, but this fleet serves {fleets[0][2]:,.0f}. {from_on}"


def _legend(answer: PlanResult) -> list[Line]:
    if not any(row.runs for row in answer.fleets):
        return []
    asked = answer.race.question
    spare = " with the spare servers down" if asked.spare else ""
    leading = [row for row in answer.fleets if row.runs][:MOST_PRICES]  # eight kinds of GPU would fill a screen
    prices = [(find_gpu(row.gpu), row.usd_per_gpu_hour) for row in leading]
    return [
        Line(
            f"{safe_meaning(COVERED + spare)} {PER_SAFE_MEANING} {RANKED}: see headcount compare. "
            f"Latencies are simulated with the users to serve{spare}.",
            dim=True,
        ),
        Line(f"{servers_meaning(answer)}{_estimated(answer)}", dim=True),
        *(Line(f"{text}; see headcount gpus for all prices", dim=True) for text in price_lines(prices)),
        Line(f"think time: {asked.think_time_s:.0f} s on average; router: {_routers(answer.fleets)}", dim=True),
    ]


def _differ(rows: Sequence[FleetRow]) -> bool:
    """Whether the leading fleet's router does not say it of all that have one."""
    return any(row.router and row.router != rows[0].router for row in rows)


def _routers(rows: Sequence[FleetRow]) -> str:
    """The router of the leading fleet, then others with their GPUs."""
    gpus: dict[str, list[str]] = {}
    for row in rows:
        if row.runs and row.router:
            gpus.setdefault(row.router, []).append(row.gpu)
    if not gpus:
        return "none before one server"
    first, *others = gpus
    named = first if rows[0].router == first else f"{first} for {joined(gpus[first])}"
    return "; ".join([named, *(f"{router} for {joined(gpus[router])}" for router in others)])


def servers_meaning(answer: PlanResult) -> str:
    """The first layout in words."""
    row = next(row for row in answer.fleets if row.runs)
    assert row.servers and row.gpus, "a fleet that runs has servers"
    if row.prefill_tp is not None:
        return f"{row.layout}: prefill engines compute prompts, decode engines compute answers; TP is GPUs per engine."
    each = " each" if row.servers > 1 else ""
    return f"{row.layout}: {counted(row.servers, 'server')} of {counted(row.gpus // row.servers, 'GPU')}{each}."


def _estimated(answer: PlanResult) -> str:
    if all(row.state != SCREENED for row in answer.fleets if row.runs):
        return ""
    return f" estimated: not simulated{', because it costs more' if answer.race.is_over else ' yet'}."
