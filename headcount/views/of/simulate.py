"""How fast one load is served, in words."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from files.documents import ReadJson
from headcount.queries.money import usd_per_month
from headcount.queries.report_data.disaggregation import disaggregated_parts, disaggregated_text
from headcount.queries.report_data.percentiles import P99_COLUMN, P99_MEANING, PERCENTILES, percentiles_json, runs_text
from headcount.queries.serving import TAILS
from headcount.queries.simulate import SimulateResult
from headcount.text.blocks import Block, Line, Table, table_of
from headcount.text.pools import disaggregated_blocks
from headcount.text.simulated import STAGES, TENANTS, rates
from headcount.text.units import latency_text, percent, seconds
from headcount.text.words import (
    host_text,
    layout_text,
    model_title,
    precision_text,
    reached_text,
    sentence,
    settings_text,
    step_time_error,
)
from simulator.engines.engines import words_of
from simulator.study.statistics import fewest_for_error

STATISTICS = ("mean", "p50", "p90", "p95", "p99")
QUEUED = ("ttft_s", "e2e_s")  # what a queue makes longer

if TYPE_CHECKING:
    from headcount.views.summary.summary import Summary


def summary(answer: SimulateResult) -> "Summary":
    from headcount.views.summary.summary import (  # noqa: PLC0415  what reports alone show
        LATENCY_WORDS,
        Summary,
        money_figures,
        parts_text,
        price_figures,
        rent_words,
        risk_of,
        servers_text,
    )

    plan = answer.plan
    gpus = f"{answer.gpus:,} × {plan.gpu.title}"
    price = plan.gpu.usd_per_hour
    servers = (
        parts_text(disaggregated_parts(answer.disaggregated))
        if answer.disaggregated
        else servers_text(answer.replicas, answer.gpus)
    )
    low, high = answer.p99_interval("ttft_s") or (None, None)
    runs = f"{len(answer.runs)} runs" if answer.runs else "this run"
    p95 = {row["latency"]: row["p95"] for row in answer.rows()}
    tail = "" if low is None else f" TTFT p99 from {runs}: {seconds(low)} to {seconds(high)}."
    return Summary(
        question=f"How fast does {model_title(plan.architecture.name)} on {gpus} answer this load: "
        f"{answer.served.description}?",
        answer=_answer(answer, reached_text(p95["ttft_s"], p95["tpot_s"])),
        figures=(
            ("model", precision_text(plan)),
            ("servers", servers),
            ("throughput", f"{answer.result.requests_per_s:,.2f} requests/s, "
             f"{answer.result.output_tokens_per_s:,.0f} output tokens/s"),
            *money_figures(usd_per_month(answer.gpus, price), None),
            *price_figures([(plan.gpu, price)]),
        ),
        sure=sentence(f"{step_time_error(plan.latency, answer.served.step.sequences)}.{tail}"),
        risk=risk_of(answer.diagnostics, "This is one run of one load: with other arrivals, the slowest answers are "
                     "slower or faster. It does not say how many users can be served."),
        words=(*LATENCY_WORDS, *rent_words([(plan.gpu, price)])),
    )  # fmt: skip


def head(answer: SimulateResult) -> list[Block]:
    plan = answer.plan
    split = layout_text(
        answer.replicas, plan.tensor_parallel_size, plan.data_parallel_size, plan.pipeline_parallel_size
    )
    split = disaggregated_text(answer.disaggregated) if answer.disaggregated else split
    return [Line(bold=f"{plan.architecture.name} on {plan.gpu.name}, {split}: {answer.served.description}")]


def body(answer: SimulateResult) -> list[Block]:
    rows = [cells for row in answer.rows() for cells in _latency_cells(answer, row)]
    preempted = words_of(answer.plan.args).preempted
    figures = [Line(f"  {name:<18}{value}") for name, value in rates(answer.result, preempted)]
    tenants: list[Block] = [Line(), table_of(TENANTS, answer.served.tenants)] if answer.served.tenants else []
    stages: list[Block] = [Line(), table_of(STAGES, answer.served.stages)] if answer.served.stages else []
    router = f"router: {answer.served.router}" if answer.plan.data_parallel_size > 1 else ""
    held = f"flow control: {answer.served.flow_control}" if answer.served.flow_control else ""
    if answer.served.attainment is not None:
        figures.append(Line(f"  {'attainment':<18}{percent(answer.served.attainment)}; asked: {answer.served.slo}"))
    tails = runs_text(len(answer.runs)) or (P99_MEANING if any(answer.p99_interval(name) for name in TAILS) else "")
    said = (settings_text(answer.plan), host_text(answer.plan.budget), router, held, answer.served.counted, tails)
    trust = [Line(text) for name in ("ttft_s", "tpot_s") if (text := answer.trust(name))]
    dim = [Line(text, dim=True) for text in said if text]
    latencies = Table(columns=("", *STATISTICS, P99_COLUMN), rows=rows)
    pools = disaggregated_blocks(answer.served.disaggregated)
    return [latencies, *trust, Line(), *figures, *pools, *tenants, *stages, Line(), *dim]


def _answer(answer: SimulateResult, reached: str) -> str:
    """What most requests get; both where the load may or may not queue."""
    other = answer.other_end
    if other is None:
        return reached
    ends = other.to_json()
    return (
        f"This load may or may not queue. As simulated: {reached}. With steps {other.factor:.2f} × as long, which is "
        f"within their error: {reached_text(ends['ttft_s']['p95'], ends['tpot_s']['p95'])}"
    )


def _latency(answer: SimulateResult, name: str, row: ReadJson, statistic: str) -> str:
    """One figure, or from where to where it is if the load may or may not queue."""
    value, other = row[statistic], answer.other_end
    if other is None or name not in QUEUED or value is None:
        return latency_text(name, value)
    ends = sorted((value, other.to_json()[name][statistic]))
    return " to ".join(latency_text(name, end) for end in ends)


def _latency_cells(answer: SimulateResult, row: ReadJson) -> Iterator[tuple[str, ...]]:
    """One latency; below it, of several runs, the least and the most of each figure."""
    name = row["latency"]
    shown = (_latency(answer, name, row, statistic) for statistic in STATISTICS)
    yield name.removesuffix("_s").upper(), *shown, _p99_range(answer, name)
    if answer.runs:
        spreads = (answer.spread(name, statistic) for statistic in STATISTICS)
        texts = ("–" if each is None else " to ".join(latency_text(name, end) for end in each) for each in spreads)
        yield "  runs", *texts, ""


def _p99_range(answer: SimulateResult, name: str) -> str:
    if name not in TAILS:
        return ""
    if (found := answer.p99_interval(name)) is None:
        return f"needs {fewest_for_error(99):,} requests"
    return " to ".join(latency_text(name, end) for end in found)


def details(answer: SimulateResult) -> dict[str, object]:
    """Of this load alone."""
    from headcount.views.report_data.assumptions import gpu_rows, of_terms  # noqa: PLC0415  what reports alone show
    from headcount.views.report_data.deployment import deployment_json  # noqa: PLC0415
    from headcount.views.report_data.memory import memory_json  # noqa: PLC0415

    plan, result = answer.plan, answer.result
    names = ("requests_per_s", "output_tokens_per_s", "prefix_hit_rate")
    means = {"in_flight": "in_flight_mean", "running": "running_mean", "waiting": "waiting_mean"}
    load = {
        "share": None,
        "users": result.users_mean,
        "attainment": answer.served.attainment,
        "ttft_s": percentiles_json(result.times.ttft_s),
        "tpot_s": percentiles_json(result.times.tpot_s),
        **{name: getattr(result, name) for name in names},
        **{name: getattr(result, of) for name, of in means.items()},
        "kv_usage": result.kv_usage_mean,
        "preemptions_per_request": result.num_preemptions / max(result.num_requests, 1),
        "host_hit_rate": result.host_hit_rate,
    }
    return {
        "deployment": deployment_json(plan, answer.replicas),
        "memory": memory_json(plan.budget),
        "fleet": f"{answer.gpus} × {plan.gpu.name}",
        "percentiles": list(PERCENTILES),
        "loads": [load],
        "timeline": answer.served.timeline,
        "slo": {},
        "assumptions": [
            *of_terms("GPU", gpu_rows(plan.gpu)),
            *of_terms("memory and step times", (answer.disaggregated or plan).assumptions),
        ],
    }
