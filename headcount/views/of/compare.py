"""Deployments compared, in words."""

from collections.abc import Callable
from operator import itemgetter

from headcount.queries.compare import DECIDE_HITS, HITS_LEGEND, SHOWN_CUT, CompareResult, remarks_on
from headcount.queries.money import price_lines, vendors_of
from headcount.queries.sweeps.layout import Layout
from headcount.queries.sweeps.ranking import FAR_BEHIND, UNSURE, ties
from headcount.text.blocks import Block, Line, Table
from headcount.text.units import counted, dollars, milliseconds, percent, seconds
from headcount.text.words import (
    AT_CONFIDENCE,
    BEST,
    COVERED,
    GPUS_REMARK,
    PER_SAFE_MEANING,
    PER_SAFE_USER,
    SAFE,
    about_meaning,
    joined,
    model_title,
    ratio_text,
    safe_meaning,
)
from headcount.views.of.layouts_summary import compared_options, layout_bars, layout_page, spoken, trace_lines
from headcount.views.report_data.study import study_json
from headcount.views.summary.summary import Summary
from kvcache.gpus.gpu import GPU

WORDS = {
    "tensor_parallel_size": ("TP", "tensor parallelism: the number of GPUs that share each layer of the model."),
    "kv_cache_dtype": ("KV", "KV cache: what GPUs store of conversations. With fewer bits it takes less memory, but "
                       "answers may change."),
}  # fmt: skip

MORE = (BEST, "$/month", "bottleneck")  # columns that --explain shows
ORDERS = {
    "cost": "the lowest cost per user",
    "users": "the most users",
    "ttft": "the lowest TTFT",
    "tpot": "the lowest TPOT",
    "month": "the lowest cost per month",
}
UNSURE_MEANING = "intervals of the last column leave out what step times may be off by"
WITHIN = "of requests within the SLO"
_MOST_NAMED = 3  # rows, in a sentence


def summary(answer: CompareResult) -> Summary:
    ways, model = counted(len(answer.layouts), "way"), model_title(answer.model)
    question = f"Which of {ways} to serve {model} has {ORDERS[answer.sort]}?"
    options = compared_options(answer.layouts, answer.best)
    return layout_page(
        answer, question, answer.best, slo=answer.slo, options=options, others=answer.layouts,
        also=_ties(answer, spoken),
        about=f"With {spoken(answer.best)}: " if answer.best else "", leads="step times",
        words=[WORDS[axis.name] for axis in answer.axes if axis.name in WORDS],
    )  # fmt: skip


def _ties(answer: CompareResult, named: Callable[[Layout], str]) -> list[tuple[str, str]]:
    return list(ties(answer.layouts, answer.best, named)) if answer.sort == "cost" else []


def head(answer: CompareResult) -> list[Block]:
    title = Line(f", workload {answer.workload}: {answer.slo}", bold=answer.model)
    best = answer.best
    if best is None:
        is_known = not any(layout.is_screened_only for layout in answer.layouts)
        return [
            title,
            *[Line("; the reasons follow the table", bold=f"no layout serves a user {AT_CONFIDENCE}")] * is_known,
        ]
    cost = best.usd_per_user_month
    said = f": {counted(best.users, 'user')} {AT_CONFIDENCE} on {counted(best.gpus, 'GPU')}" + (
        f", ${cost:,.2f} per user and month" if cost else ""
    )
    of = f"{ORDERS[answer.sort]} of {counted(len(answer.layouts), 'layout')}"
    near = [Line(f"{label}: {told}") for label, told in _ties(answer, lambda each: each.name)]
    return [
        title,
        Line(f"{said}; {of}", bold=best.name),
        *trace_lines(best),
        *_drafts(answer),
        *_asked(answer),
        *near,
        *remarks_on(answer.axes),
    ]


def _drafts(answer: CompareResult) -> list[Block]:
    return [Line(f"speculative decoding: {answer.drafts}")] if answer.drafts else []


def _asked(answer: CompareResult) -> list[Block]:
    """Which layouts serve the users that were asked for."""
    if answer.users is None:
        return []
    simulated = [layout for layout in answer.layouts if layout.under is not None]
    serving = [layout.name for layout in simulated if layout.users >= answer.users]
    shown = f"with {counted(answer.users, 'user')} each: latencies and the share {WITHIN} in the table"
    if not serving:
        return [Line(f"{shown}; none of {counted(len(simulated), 'layout')} serves them {AT_CONFIDENCE}")]
    named = "; ".join(serving) if len(serving) <= _MOST_NAMED else f"{len(serving)} of {len(simulated)} layouts"
    return [Line(f"{shown}; serving them {AT_CONFIDENCE}: {named if len(serving) < len(simulated) else 'all'}")]


def body(answer: CompareResult) -> list[Block]:
    return layouts_blocks(answer, "; --precision confirms every row")


def layouts_blocks(answer: CompareResult, to_confirm: str = "") -> list[Block]:
    """The layouts in a table, and what is to say of them."""
    reasons = [Line(f"{layout.name}: {layout.reason}") for layout in answer.layouts if layout.reason]
    columns = _columns(answer)
    shown = [place for place, column in enumerate(columns) if answer.explain or column not in MORE]
    rows = [_cells(answer, layout) for layout in answer.layouts]
    table = Table(
        columns=tuple(columns[place] for place in shown),
        rows=[[row[place] for place in shown] for row in rows],
        text_columns=tuple(at for at, place in enumerate(shown) if place in (0, 1, len(columns) - 1)),
        bold_column=2,
    )
    legend = [Line(text, dim=True) for text in _legend(answer)]
    reasons += [Line(_screened_text(answer))] * any(layout.is_screened_only for layout in answer.layouts)
    same = [Line(f"{each.name}: the same as {joined(each.other_names)}") for each in answer.layouts if each.other_names]
    coarse = [layout.row.step_time_error for layout in answer.layouts if layout.is_coarse and layout.row]
    about = [Line(f"{about_meaning(coarse)}{to_confirm}")] if coarse else []
    about += _prices(answer)
    about += [Line(UNSURE_MEANING)] * any(label == UNSURE for label, _ in _ties(answer, spoken))
    return [table, *about, *_one_server(answer), *same, *reasons, *_gains(answer), Line(), *legend]


def _prices(answer: CompareResult) -> list[Line]:
    """Whose list prices they are, and at which price each other GPU would be as cheap per user as the best."""
    best = answer.best
    if best is None or not answer.by_cost:
        return []
    gpus = {layout.asked.gpu.name: layout.asked.gpu for layout in answer.layouts if layout.asked}
    found = vendors_of(gpu for gpu in gpus.values() if gpu.usd_per_hour)
    lines = [Line(found[1])] if found else []
    told = [_as_cheap(answer, best, gpu) for gpu in gpus.values() if gpu.name != best.gpu_name and gpu.usd_per_hour]
    same = [each for each in told if each]
    return [*lines, *[Line(f"as cheap per user as {best.gpu_name}: {'; '.join(same)}")] * bool(same)]


def _as_cheap(answer: CompareResult, best: Layout, gpu: GPU) -> str:
    """Such as `l40s at $0.71 an hour (AWS: $1.86)`; "" where nothing on it serves anybody."""
    costs = [(each.usd_per_user_month, each) for each in answer.layouts if each.gpu_name == gpu.name and each.users]
    cost, cheapest = min(((cost, each) for cost, each in costs if cost), key=itemgetter(0), default=(None, None))
    if cost is None or cheapest is None or not best.usd_per_user_month or not gpu.usd_per_hour:
        return ""
    most, own = "most " if cheapest.is_screened_only else "", gpu.usd_per_hour
    price = dollars(own * best.usd_per_user_month / cost)
    return f"{gpu.name} at {most}${price} an hour ({gpu.price_vendor or 'given'}: ${dollars(own)})"


def _one_server(answer: CompareResult) -> list[Block]:
    """That routers make no difference where there is nothing to choose."""
    served = [layout.row for layout in answer.layouts if layout.row and layout.row.users]
    is_one = bool(served) and all(row.replicas * row.dp == 1 for row in served)
    if not is_one or not any(axis.name == "router" for axis in answer.axes):
        return []
    several = "; -tp 1 makes a server of each GPU" if any(row.tp > 1 for row in served) else ""
    return [Line(f"each layout is one server, so routers make no difference{several}")]


def _screened_text(answer: CompareResult) -> str:
    """Why some rows have a dash for their users, and what `over` says of their cost."""
    names = [layout.name for layout in answer.layouts if layout.is_screened_only]
    named = joined(names) if len(names) <= _MOST_NAMED else f"{len(names)} rows"
    return (
        f"{named}: screened only. Estimated to be more than {FAR_BEHIND:g} times worse than the best, so not simulated "
        "(--all does); 'over' is the least that a user costs"
    )


def _gains(answer: CompareResult) -> list[Block]:
    found = answer.attribution
    if found is None:
        return []
    if found.whole is None:
        return [Line(), Line("the first layout serves no users, so gains cannot be computed")]
    if found.whole.low <= 1 <= found.whole.high:
        return []
    whole = f" {found.of} from the first layout to the best, one change after another: "
    chain, alone = ", ".join(map(str, found.chain)), ", ".join(map(str, found.alone))
    said: list[Block] = [Line(), Line(f"{whole}{chain}", bold=ratio_text(found.whole))]
    return [*said, Line(f"each change on its own: {alone}")] if len(found.alone) > 1 else said


def details(answer: CompareResult) -> dict[str, object]:
    bars = layout_bars(answer.layouts, answer.best, by_cost=answer.by_cost)
    return study_json(answer, answer.study) | {"layouts": bars}


def _is_cut(answer: CompareResult) -> bool:
    """Whether some layout's limit on the context touches at least 1 % of the traffic."""
    return any(layout.traffic and layout.traffic.worst >= SHOWN_CUT for layout in answer.layouts)


def _shows_hits(answer: CompareResult) -> bool:
    """Whether something is varied on which it depends how much of the prompts is found in a cache."""
    return not DECIDE_HITS.isdisjoint(axis.name for axis in answer.axes)


def _columns(answer: CompareResult) -> tuple[str, ...]:
    within = ("within SLO",) * (answer.users is not None)
    more = ["prefix hits"] * _shows_hits(answer) + ["traffic cut"] * _is_cut(answer)
    beside = f"{'$/user' if answer.by_cost else 'users'} vs best"
    served = ("layout", "servers", SAFE, BEST, "$/month", PER_SAFE_USER, *within, "TTFT p95", "TPOT p95")
    return (*served, beside, *more, "bottleneck")


def _cells(answer: CompareResult, layout: Layout) -> tuple[str, ...]:
    hits = [layout.hits] * _shows_hits(answer)
    cut = [percent(layout.traffic.worst) if layout.traffic else "–"] * _is_cut(answer)
    money = dollars(layout.usd_per_month), dollars(layout.usd_per_user_month)
    if layout.row is None or not layout.row.users:
        figures, why = ("0", "–", *money), "see below"
        if layout.is_screened_only:
            cost = f"over {money[1]}" if layout.users else "–"
            figures, why = ("–", f"about {layout.users:,}", money[0], cost), "screened only"
        return (
            layout.name,
            layout.layout,
            *figures,
            *["–"] * (3 + (answer.users is not None)),
            *["–" for _ in hits],
            *cut,
            why,
        )
    ratio = layout.cost_over(answer.best) if answer.by_cost and answer.best else None
    ratio = ratio or (layout.users_over(answer.best) if answer.best else None)
    return (
        layout.name,
        layout.layout,
        f"{layout.about}{layout.users:,}",
        f"{layout.about}{layout.row.users:,}",
        *money,
        *[percent(layout.under.attainment.mean) if layout.under else "–"] * (answer.users is not None),
        seconds(layout.p95_s("ttft_s")),
        milliseconds(layout.p95_s("tpot_s")),
        "best" if layout is answer.best else ratio_text(ratio),
        *hits,
        *cut,
        layout.row.binding or "",
    )


def _legend(answer: CompareResult) -> list[str]:
    """What the columns mean."""
    gpus = {layout.asked.gpu.name: layout.asked.gpu for layout in answer.layouts if layout.asked}
    of = PER_SAFE_USER if answer.by_cost else SAFE
    shared = "differ between GPUs" if len(gpus) > 1 else "all layouts of one GPU share"
    is_served = any(layout.row and layout.row.safe_point for layout in answer.layouts)
    at = f"with the users {AT_CONFIDENCE}" if is_served else f"with the {BEST}, where they are close to their limits"
    if answer.users is not None:
        at = f"with {counted(answer.users, 'user')}, as is the share {WITHIN}"
    return [
        f"{safe_meaning(COVERED)} {BEST}: the mean. Latencies are simulated {at}. {PER_SAFE_MEANING}",
        *price_lines((gpu, gpu.usd_per_hour) for gpu in gpus.values()),
        f"… vs best: {of} compared with the first row, simulated with the same requests, with the 95 % interval over "
        f"replications. It leaves out step-time errors, which {shared}.",
        *[GPUS_REMARK] * (len(gpus) > 1),
        *[HITS_LEGEND] * _shows_hits(answer),
    ]
