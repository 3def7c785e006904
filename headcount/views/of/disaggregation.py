"""What disaggregated prefill/decode serves, in words."""

from headcount.queries.autoscaling.pooled import NOBODY
from headcount.queries.disaggregation import DisaggregationResult
from headcount.queries.report_data.disaggregation import disaggregated_parts, disaggregated_text
from headcount.text.blocks import Block, Line
from headcount.text.pools import disaggregated_blocks
from headcount.text.units import milliseconds, seconds
from headcount.text.words import AT_CONFIDENCE, model_title
from headcount.views.of.pooled import headline, page, pooled_details
from headcount.views.report_data.assumptions import gpu_rows, of_terms
from headcount.views.summary.summary import Bought, Summary
from simulator.study.served import latency_summary


def head(answer: DisaggregationResult) -> list[Block]:
    gpus = f"{answer.question.gpu.name}, {disaggregated_text(answer.disaggregated)}"
    return headline(answer, gpus, f"on {answer.disaggregated.gpus:,} GPUs")


def body(answer: DisaggregationResult) -> list[Block]:
    point = answer.safe_point or answer.found.point
    if point is None:
        return [Line(NOBODY)]
    load = (
        f"{answer.users_low:,} users {AT_CONFIDENCE}" if answer.safe_point else f"{answer.users:,} users, as expected"
    )
    ttft, tpot = latency_summary(point, "ttft_s"), latency_summary(point, "tpot_s")
    rates = f"{point.mean('requests_per_s'):,.2f} requests/s, {point.mean('output_tokens_per_s'):,.0f} output tokens/s"
    shown = (
        ("TTFT", f"{seconds(ttft['p50'])} at the median, {seconds(ttft['p95'])} at the 95th percentile"),
        ("TPOT", f"{milliseconds(tpot['p50'])} at the median, {milliseconds(tpot['p95'])} at the 95th percentile"),
        ("throughput", rates),
        ("prefix hits", f"{point.mean('prefix_hit_rate'):.1%} of prompt tokens"),
    )
    return [
        Line(f"with {load}:"),
        *(Line(f"  {name:<18}{text}") for name, text in shown),
        *disaggregated_blocks(answer.served),
        Line(),
        Line("pools and KV transfers: one run with the expected users, its start included", dim=True),
    ]


def summary(answer: DisaggregationResult) -> Summary:
    asked, bought = answer.question, _bought(answer)
    model = model_title(asked.architecture.name)
    return page(
        answer,
        f"How many users can {model} serve on {bought} with disaggregated prefill and decode?",
        f"on {bought}",
        bought=bought.figures,
        priced=bought.priced,
        risk=f"{bought.failure} Servers that do both may serve more.",
    )


def _bought(answer: DisaggregationResult) -> Bought:
    gpu, disaggregated = answer.question.gpu, answer.disaggregated
    return Bought(
        gpu=gpu, gpus=disaggregated.gpus, servers=sum(disaggregated.counts), usd_per_gpu_hour=gpu.usd_per_hour,
        users_low=answer.users_low, parts=disaggregated_parts(disaggregated),
    )  # fmt: skip


def details(answer: DisaggregationResult) -> dict[str, object]:
    """Where the figures come from."""
    gpu = answer.question.gpu
    terms = [
        *of_terms("GPU", gpu_rows(gpu)),
        *of_terms("memory, step times and KV transfer", answer.disaggregated.assumptions),
    ]
    return pooled_details(answer, f"{answer.disaggregated.gpus} × {gpu.name}", terms)
