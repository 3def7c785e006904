"""Prefill and decode pools, in words."""

from collections.abc import Mapping, Sequence

from files.documents import ReadJson
from headcount.text.blocks import Block, Line, Table
from headcount.text.units import milliseconds, percent

COLUMNS = ("pool", "engines", "GPUs", "KV blocks", "busy", "running", "waiting", "KV used", "max KV used")


def pool_cells(rows: Sequence[ReadJson]) -> list[tuple[str, ...]]:
    """What each pool does, under COLUMNS."""
    return [
        (
            row["role"], f"{row['engines']} × TP{row['tp']}", f"{row['gpus']:,}", f"{row['num_gpu_blocks']:,}",
            percent(row["busy"]), f"{row['running_mean'] / row['engines']:,.1f}",
            f"{row['waiting_mean'] / row['engines']:,.1f}", percent(row["kv_usage_mean"]), percent(row["kv_usage_max"]),
        )
        for row in rows
    ]  # fmt: skip


def handover_text(found: Mapping[str, float | None]) -> str:
    """Its median and its 95th percentile."""
    return f"{milliseconds(found['p50'])} at the median, {milliseconds(found['p95'])} at the 95th percentile"


def disaggregated_blocks(found: ReadJson) -> list[Block]:
    """The same as text; nothing where prompts and answers are computed together."""
    if not found:
        return []
    table = Table(columns=COLUMNS, rows=pool_cells(found["pools"]), text_columns=(0,))
    lines = [Line(f"  {'KV transfer':<18}{handover_text(found['handover_s'])}")]
    if "decider" in found:
        share = percent(round(found["local_prefill_share"], 3))
        lines.append(Line(f"  {'local prefill':<18}{share} of prompts, by {found['decider']}"))
    if found.get("lost_requests"):
        lost = f"{found['lost_requests']:,} requests hold blocks in decode engines, but their KV never arrives"
        lines.append(Line(f"  {'never written':<18}{lost}"))
    return [*lines, Line(), table]


Part = tuple[int, int]
"""So many servers, and the GPUs of each."""
