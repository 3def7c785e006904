"""How many users these GPUs serve, in words and for the person who decides."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from headcount.queries.adapters import adapter_lines
from headcount.queries.capacity import CapacityResult
from headcount.queries.energy import energy_asked, energy_of
from headcount.queries.money import price_lines, usd_per_month, usd_per_user_month
from headcount.queries.suggestions import LIFTS_LEGEND, suggestion_lines
from headcount.text.blocks import Block, Column, Line, Table, cells, table_of
from headcount.text.capacity import no_capacity_reason, row_layout, trace_text
from headcount.text.simulated import TENANTS
from headcount.text.units import counted, dollars, latency_text, percent, whole_dollars
from headcount.text.words import (
    AT_CONFIDENCE,
    BEST,
    KV_CACHE_ERROR,
    PER_SAFE_MEANING,
    PER_SAFE_USER,
    SAFE,
    STEP_TIME_ERROR,
    TTFT_ERROR,
    UPPER,
    error_sign,
    hits_text,
    host_text,
    interval_text,
    joined,
    kv_pool,
    model_title,
    pool_owner,
    pool_text,
    ratio_text,
    router_line,
    safe_meaning,
)
from headcount.views.report_data.study import layouts_json, study_json
from headcount.views.summary.confidence import Headroom
from headcount.views.summary.summary import (
    LATENCY_WORDS,
    MOST_OPTIONS,
    P95_WORD,
    Bought,
    Options,
    Summary,
    options_of,
    served_summary,
    serves_nobody,
)
from simulator.deployment import Deployment
from simulator.study.candidate import Level
from simulator.study.capacity_row import CapacityRow
from simulator.study.points import Point
from simulator.study.served import latency_summary
from workloads.traces.trace import Trace


def _at_safe(shown: Callable[[Point], str]) -> Callable[[CapacityRow], str]:
    """A figure of the users at 95 % confidence; a dash where they were not simulated."""
    return lambda row: "–" if row.safe_point is None else shown(row.safe_point)


def _usd_per_month(row: CapacityRow) -> float | None:
    return None if row.usd_per_hour is None else usd_per_month(1, row.usd_per_hour)


def _latency(name: str, quantile: str) -> Callable[[CapacityRow], str]:
    return _at_safe(lambda point: latency_text(name, latency_summary(point, name)[quantile]))


def _joules(row: CapacityRow) -> str:
    """Joules per output token under the users at 95 % confidence; a dash where they are not known."""
    found = energy_of(row)
    return "–" if found is None else found.joules_text


_GPUS = Column[CapacityRow]("GPUs", lambda row: f"{row.gpus}", is_text=True)
_SERVED = (
    Column[CapacityRow](SAFE, lambda row: f"{row.users_low:,}", is_bold=True),
    Column[CapacityRow](BEST, lambda row: f"{row.users:,}"),
    Column[CapacityRow](UPPER, lambda row: f"{row.users_high:,}"),
)
_P95 = (Column("TTFT p95", _latency("ttft_s", "p95")), Column("TPOT p95", _latency("tpot_s", "p95")))
_PER_HOUR = Column[CapacityRow]("$/hour", lambda row: dollars(row.usd_per_hour))
_ROUTER = Column[CapacityRow]("router", lambda row: row.router_name or "–", is_text=True)
_MONTH = Column[CapacityRow]("$/month", lambda row: whole_dollars(_usd_per_month(row)))
_ALWAYS = (_GPUS, Column("layout", row_layout), _ROUTER, *_SERVED)
COLUMNS: tuple[Column[CapacityRow], ...] = (
    *_ALWAYS,
    Column("in flight", _at_safe(lambda point: f"{point.mean('in_flight'):,.1f}")),
    Column("req/s", _at_safe(lambda point: f"{point.mean('requests_per_s'):,.1f}")),
    Column("tokens/s", _at_safe(lambda point: f"{point.mean('output_tokens_per_s'):,.0f}")),
    Column("TTFT p50", _latency("ttft_s", "p50")),
    _P95[0],
    Column("TPOT p50", _latency("tpot_s", "p50")),
    _P95[1],
    _PER_HOUR,
    Column("J/token", _joules),
    Column("$/M tokens", lambda row: _at_safe(lambda point: dollars(row.usd_per_million_at(point)))(row)),
    Column("bottleneck", lambda row: row.binding or "", is_text=True),
)
SHORT: tuple[Column[CapacityRow], ...] = (*_ALWAYS[:-1], *_P95, _MONTH)
_REPORT_COLUMNS: tuple[Column[CapacityRow], ...] = (
    _GPUS,
    Column("layout", row_layout, is_text=True),
    _ROUTER,
    *_SERVED,
    *_P95,
    _PER_HOUR,
    Column("bottleneck", lambda row: row.binding or ("misses the SLO" if row.runs else "does not run"), is_text=True),
)

SHARED_CHANGES: Final = frozenset({"system-prompt", "retrieved", "retrieved-in-history", "turns"})
"""Changes of traffic that change what prompts share."""


def head(answer: CapacityResult) -> list[Block]:
    asked, best = answer.question, answer.best
    hours = "" if asked.hours_met is None else f", hourly SLO compliance {percent(asked.hours_met)}"
    title = f" on {asked.gpu.name}, workload {answer.workload}: {asked.slo}{hours}"
    lines: list[Block] = [Line(title, bold=asked.architecture.name)]
    if best.users:
        served = counted(best.users_low, "user") if best.users_low else "No users"
        why = "" if best.users_low else f": {no_capacity_reason(best)}"
        about = f" {interval_text(best.users_low, best.users, best.users_high)}{_rent(answer)}"
        lines.append(Line(about, bold=f"{served} {AT_CONFIDENCE} on {counted(best.gpus, 'GPU')}{why}"))
    if best.safe_point is not None:
        ttft, tpot = cells(_P95, best)
        lines.append(Line(f"latency at {counted(best.users_low, 'user')}: TTFT p95 {ttft}, TPOT p95 {tpot}"))
    taken = energy_asked(answer.energy(best))
    lines += [Line(f"{name} at {counted(best.users_low, 'user')}: {text}") for name, text in taken]
    if answer.adapters is not None:
        month = usd_per_month(best.gpus, asked.gpu.usd_per_hour)
        lines += [Line(text) for text in adapter_lines(answer.adapters, month, best.users)]
    about_trace = trace_text(asked.workload, asked.think_time_s, best)
    lines += [Line(text) for text in _cached_text(answer)]
    return [*lines, *([Line(about_trace)] if about_trace else []), *map(Line, _bottleneck_lines(answer))]


def _cached_text(answer: CapacityResult) -> Iterator[str]:
    """How much of the prompts is found in a cache, where what they share was changed."""
    best = answer.best
    point = best.safe_point or best.point
    if point is not None and not SHARED_CHANGES.isdisjoint(answer.changed):
        hits = hits_text(point.mean("prefix_hit_rate"), point.host_hit_rate)
        yield f"{hits} of the prompt tokens are found in the prefix cache, and are not computed again"


def _bottleneck_lines(answer: CapacityResult) -> Iterator[str]:
    """What the users are limited by, and what they would be if answers might begin later."""
    best = answer.best
    if best.users and best.binding:
        later = [f"with TTFT ≤ {each.slo.ttft_text} about {each.users_low:,} users" for each in answer.longer_ttft]
        yield ": ".join(["bottleneck", "; ".join([best.binding, *later])])


def _rent(answer: CapacityResult) -> str:
    """What the leading row costs; nothing without a price, or without users at 95 % confidence."""
    money = answer._month(answer.best)
    each = money["usd_per_user_month"]
    return f": ${money['usd_per_month']:,.0f} a month, ${each:,.2f} per user" if each else ""


def _error_lines(row: CapacityRow) -> Iterator[str]:
    """What the errors of step times and TTFT, and the uncertain KV cache, make of the users, a sentence each."""
    if row.plan is None or not row.users:
        return
    latency = row.plan.latency
    if row.hours_over_long_run is not None:
        gained = ratio_text(row.hours_over_long_run)
        yield f"SLO judged over the whole run: {row.users_long_run:,} users; judged by the hour instead: {gained}"
    if row.step_time_error is not None:
        yield (
            f"90 % interval from step-time error alone ({error_sign(latency.tpot_log_error)}{row.step_time_error:.0%}"
            f"{_covered_servers(row.plan)}): "
            f"{row.users_at_step_time_error_high:,} to {row.users_at_step_time_error_low:,} users"
        )
    if row.ttft_error is not None:
        yield (
            f"90 % interval from TTFT error alone ({error_sign(latency.ttft_log_error_of(in_step=False))}"
            f"{row.ttft_error:.0%}: front ends, short queues): "
            f"{row.users_at_ttft_error_high:,} to {row.users_at_ttft_error_low:,} users"
        )
    if row.users_at_kv_cache_low is not None:
        unit, _, fewest, most = kv_pool(row.plan.budget)
        sizes = f"{fewest:,} to {most:,} {unit} per {pool_owner(row.plan.budget)}"
        yield (
            f"90 % interval from KV-cache size alone ({sizes}): "
            f"{row.users_at_kv_cache_low:,} to {row.users_at_kv_cache_high:,} users"
        )


def _covered_servers(plan: Deployment) -> str:
    """Whom the step-time error covers, behind the error."""
    if plan.latency.calibrated:
        return " for your server, with 90 % probability"
    return " for 90 % of measured servers" if plan.latency.is_measured else ", estimated"


def body(answer: CapacityResult) -> list[Block]:
    reasons = [Line(f"{counted(row.gpus, 'GPU')}: {row.reason}") for row in answer.capacity if row.reason]
    if not any(row.runs for row in answer.capacity):
        return [*reasons] if len(reasons) > 1 else []  # the only one is the error itself
    suggestions = [] if answer.suggestions is None else [Line(), *suggestion_lines(answer.suggestions, answer.best)]
    legend = [Line(text, dim=True) for text in _legend(answer)]
    reasons += [Line(text) for text in _shorter_lines(answer)]
    errors = [Line(text, dim=True) for text in _error_lines(answer.best)]
    table = _rows_table(answer.capacity, COLUMNS if answer.explain else SHORT)
    more = [*_tenants(answer), *suggestions, *map(Line, _start_lines(answer.best))]
    return [table, *reasons, *more, Line(), *errors, *legend]


def _shorter_lines(answer: CapacityResult) -> Iterator[str]:
    """What a shorter longest context makes of rows that serve nobody."""
    for each in answer.shorter_context:
        users = f"{counted(each.row.users_low, 'user')} {AT_CONFIDENCE}"
        interval = interval_text(each.row.users_low, each.row.users, each.row.users_high)
        cut = f"it cuts {100 * each.cut:.2g} % of conversations" if each.cut else "it cuts nothing"
        yield f"{counted(each.row.gpus, 'GPU')} with {each.flag}: {users} {interval}; {cut}"


def _start_lines(row: CapacityRow) -> Iterator[str]:
    """How to start the servers of a row, and the router before them."""
    if row.plan is not None and row.users_low:
        each = "the server" if row.replicas == 1 else f"each of the {row.replicas:,} servers"
        yield f"start {each} with: {row.plan.serve_line}"
        if row.replicas > 1 and row.router_name:
            yield router_line(row.router_name)


def _rows_table(rows: Sequence[CapacityRow], columns: Sequence[Column[CapacityRow]]) -> Table:
    """One line per GPU count; the users at 95 % confidence are bold. What was never simulated ends with its users."""
    table = table_of(columns, rows)
    known = [
        each if row.safe_point or row.point else each[: len(_ALWAYS)]
        for row, each in zip(rows, table.rows, strict=True)
    ]
    return Table(columns=table.columns, rows=known, text_columns=table.text_columns, bold_column=table.bold_column)


def _tenants(answer: CapacityResult) -> list[Block]:
    """How each tenant is served on the GPUs that lead."""
    best = answer.best
    if best.point is None or not best.point.tenants:
        return []
    of = f"tenants at {best.users:,} users on {counted(best.gpus, 'GPU')}:"
    return [Line(), Line(of), table_of(TENANTS, best.point.tenants)]


def _legend(answer: CapacityResult) -> Iterator[str]:
    asked = answer.question
    yield (
        f"{safe_meaning(_covered(answer.capacity))} {BEST}: the mean. {UPPER}: the upper end of the 90 % interval; 5 % "
        "of such fleets can serve more. A user is an active session, thinking or waiting. Load (in flight, req/s, "
        f"tokens/s), latencies, J/token (output) and $/M tokens are simulated with the number of users "
        f"{AT_CONFIDENCE} and the expected step times. On a slower server, or with more users, latencies are closer to "
        "the limits."
    )
    of_trace = "; a trace without sessions has λ (Z + R) users" if isinstance(asked.workload, Trace) else ""
    yield f"think time: {asked.think_time_s:.0f} s on average{of_trace}"
    yield from dict.fromkeys(pool_text(plan.budget) for plan in answer.plans)
    yield from dict.fromkeys(text for plan in answer.plans if (text := host_text(plan.budget)))
    hits = [
        f"{counted(row.gpus, 'GPU')}: {hits_text(row.point.mean('prefix_hit_rate'), row.point.host_hit_rate)}"
        for row in answer.capacity
        if row.point is not None and row.point.host_hit_rate is not None
    ]
    yield from [f"prompt tokens found in a cache: {', '.join(hits)}"] * bool(hits)
    yield from price_lines([(asked.gpu, asked.gpu.usd_per_hour)])
    yield from [f"flow control: {asked.flow_control}"] * bool(asked.flow_control)
    yield from (text for row in answer.capacity if (text := _screened_text(row)))
    yield from [LIFTS_LEGEND] * bool(answer.suggestions)


def _screened_text(row: CapacityRow) -> str:
    """Every layout and router that was looked at, with its users at 95 % confidence; nothing where there is but one."""
    if len(row.screened) < 2:
        return ""
    told = []
    for each in row.screened:
        behind = f" behind {each.router}" if each.router else ""
        about = "" if each.evidence == Level.CONFIRMED.word else "about "
        told.append(f"TP {each.tp}{behind} {'does not run' if each.reason else f'{about}{each.users_low:,}'}")
    return f"candidates for {counted(row.gpus, 'GPU')}, {SAFE}: {', '.join(told)}"


def _covered(rows: Sequence[CapacityRow]) -> str:
    """Which errors the interval of users covers."""
    are_given = any(row.plan.latency.is_given for row in rows if row.plan is not None)
    counts = sorted({row.replications for row in rows if row.replications})
    ran = " to ".join(map(str, dict.fromkeys([counts[0], counts[-1]]))) if counts else "no"
    errors = [
        (STEP_TIME_ERROR, not are_given),
        (TTFT_ERROR, any(row.ttft_error is not None for row in rows)),
        (KV_CACHE_ERROR, any(row.users_at_kv_cache_low is not None for row in rows)),
    ]
    known = [row.users_low_precision for row in rows if row.users_low_precision]
    left = f", which leave the lower end itself uncertain by ±{max(known):.0%}" if known else ""
    return joined(
        [f"simulation noise ({ran} replications{left})", *(name for name, is_covered in errors if is_covered)]
    )


def summary(answer: CapacityResult) -> Summary:
    """The row that leads; where nobody is served, why."""
    asked, best = answer.question, answer.best
    question = f"How many users can {model_title(asked.architecture.name)} serve on {asked.gpu.title} GPUs?"
    if not best.users_low or best.plan is None:
        return serves_nobody(question, no_capacity_reason(best) if best.users else best.reason or "nothing runs")
    price, low = asked.gpu.usd_per_hour, best.users_low
    bought = Bought(gpu=asked.gpu, gpus=best.gpus, servers=best.replicas, usd_per_gpu_hour=price, users_low=low)
    several = len(answer.capacity) > 1
    return served_summary(
        answer,
        question,
        _said(answer),
        figures=(*bought.figures, *_reached(answer), *energy_asked(answer.energy(best))),
        priced=bought.priced,
        load=asked.workload,
        slo=asked.slo,
        plan=best.plan,
        headroom=Headroom(needed=None, low=best.users_low, users=best.users, high=best.users_high),
        found=best,
        about=f"On {counted(best.gpus, 'GPU')}: " if several else "",
        risk=bought.failure,
        options=_options(answer) if several else None,
        words=LATENCY_WORDS[:2] + P95_WORD,
    )


def _reached(answer: CapacityResult) -> Iterator[tuple[str, str]]:
    """Latencies of the users at 95 % confidence beside their limits; nothing where they were not simulated."""
    best, slo = answer.best, answer.question.slo
    if best.safe_point is not None:
        tpot = "" if slo.tpot_s is None else latency_text("tpot_s", slo.tpot_s)
        told = [f" (limit {limit})" if limit else "" for limit in (slo.ttft_text, tpot)]
        reached = [f"{column.title} {column.cell(best)}{limit}" for column, limit in zip(_P95, told, strict=True)]
        yield f"latency at {counted(best.users_low, 'user')}", ", ".join(reached)


def _said(answer: CapacityResult) -> str:
    """The fewest GPUs that serve somebody, and those that lead."""
    best, first = answer.best, answer.served[0].row
    gpus = f"{counted(best.users_low, 'user')} on {best.gpus:,} × {answer.question.gpu.title}"
    if isinstance(answer.question.workload, Trace):
        gpus += f" at a {trace_text(answer.question.workload, answer.question.think_time_s, None)}"
    if first is best or not first.users_low:
        return gpus
    return f"{gpus}, {first.users_low:,} on {counted(first.gpus, 'GPU')}"


def _options(answer: CapacityResult) -> Options:
    def month(row: CapacityRow) -> float | None:
        return usd_per_month(row.gpus, answer.question.gpu.usd_per_hour)

    columns = (
        Column[CapacityRow]("GPUs", lambda row: f"{row.gpus:,}"),
        *_SERVED[:2],
        *_P95,
        Column[CapacityRow]("$ a month", lambda row: whole_dollars(month(row))),
        Column[CapacityRow](PER_SAFE_USER, lambda row: dollars(usd_per_user_month(month(row), row.users_low))),
    )
    return options_of(
        "By number of GPUs", columns, answer.capacity[:MOST_OPTIONS], answer.best,
        note=f"TTFT and TPOT are simulated with the users at 95 % confidence. {PER_SAFE_MEANING}",
    )  # fmt: skip


def details(answer: CapacityResult) -> dict[str, object]:
    """The leading row's deployment, every row, and what was tried on top."""
    best, rows = answer.best, answer.capacity
    lead = max(rows, key=lambda row: row.users_low, default=None)
    return study_json(answer, answer.study) | {
        "layouts": layouts_json(
            "Users at 95 % confidence by number of GPUs",
            "users at 95 % confidence",
            [
                (f"{counted(row.gpus, 'GPU')}, {row_layout(row)}", row.users_low, f"{row.users_low:,}",
                 "marked" if row is lead else "plain")
                for row in rows
                if row.users
            ],
            [f"{counted(row.gpus, 'GPU')}: {row.reason}" for row in rows if row.reason],
            table=table_of(_REPORT_COLUMNS, rows),
        ),
        "suggestions": [
            {
                "change": lift.change,
                "before": f"{best.users_low:,}",
                "after": f"{lift.layout.users:,}",
                "ratio": ratio_text(lift.ratio),
                "remark": lift.remark,
            }
            for lift in answer.suggestions or ()
        ],
    }  # fmt: skip
