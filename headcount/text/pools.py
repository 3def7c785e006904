"""Prefill and decode pools, in words."""

from collections.abc import Mapping

from files.documents import ReadJson
from headcount.text.blocks import Block, Column, Line, table_of
from headcount.text.units import milliseconds, percent

POOLS = (
    Column[ReadJson]("pool", lambda row: str(row["role"]), is_text=True),
    Column[ReadJson]("engines", lambda row: f"{row['engines']} × TP{row['tp']}"),
    Column[ReadJson]("GPUs", lambda row: f"{row['gpus']:,}"),
    Column[ReadJson]("KV blocks", lambda row: f"{row['num_gpu_blocks']:,}"),
    Column[ReadJson]("busy", lambda row: percent(row["busy"])),
    Column[ReadJson]("running", lambda row: f"{row['running_mean'] / row['engines']:,.1f}"),
    Column[ReadJson]("waiting", lambda row: f"{row['waiting_mean'] / row['engines']:,.1f}"),
    Column[ReadJson]("KV used", lambda row: percent(row["kv_usage_mean"])),
    Column[ReadJson]("max KV used", lambda row: percent(row["kv_usage_max"])),
)
"""What each pool does."""


def handover_text(found: Mapping[str, float | None]) -> str:
    """Its median and its 95th percentile."""
    return f"{milliseconds(found['p50'])} at the median, {milliseconds(found['p95'])} at the 95th percentile"


def disaggregated_blocks(found: ReadJson) -> list[Block]:
    """The same as text; nothing where prompts and answers are computed together."""
    if not found:
        return []
    lines = [Line(f"  {'KV transfer':<18}{handover_text(found['handover_s'])}")]
    if "decider" in found:
        share = percent(round(found["local_prefill_share"], 3))
        lines.append(Line(f"  {'local prefill':<18}{share} of prompts, by {found['decider']}"))
    if found.get("lost_requests"):
        lost = f"{found['lost_requests']:,} requests hold blocks in decode engines, but their KV never arrives"
        lines.append(Line(f"  {'never written':<18}{lost}"))
    return [*lines, Line(), table_of(POOLS, found["pools"])]


Part = tuple[int, int]
"""So many servers, and the GPUs of each."""
