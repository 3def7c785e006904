"""Where each GPU's memory goes."""

from typing import TYPE_CHECKING

from headcount.report.charts import FIRST, INK, MUTED, chart
from headcount.report.findings import Findings, kv_cache_text, weights_text
from headcount.report.html import figure, figures, join, table
from headcount.text import GIB, waterfall
from kvcache.memory import MemoryBudget
from simulator.deployment import ReplicaPlan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Memory of each GPU"
ORDER = 50
KV_CACHE = "KV cache"


def render(findings: Findings) -> str:
    plans = findings.plans
    if not plans:
        return ""
    shown = findings.largest.plan if findings.largest else plans[-1]
    return join(figures(_figure(shown)), _table([plan.budget for plan in plans]))


def parts(budget: MemoryBudget) -> list[tuple[str, int]]:
    """What adds up to the GPU's memory; `unused` only where the number of blocks was given."""
    found = waterfall(budget)[1:]
    rest = budget.total_bytes - sum(size for _, size in found)
    return [*found, ("unused", rest)] if rest else found


def _figure(plan: ReplicaPlan) -> str:
    budget = plan.budget
    said = ", ".join(f"{name} {size / GIB:.1f} GiB" for name, size in parts(budget))
    title = (
        f"{budget.available_kv_bytes / GIB:.1f} of {budget.total_bytes / GIB:.1f} GiB hold the KV cache: "
        f"{budget.kv_cache_tokens:,} tokens per replica"
    )
    svg = chart(lambda drawn: _draw(drawn, budget), name="memory", alt=f"Memory of one GPU: {said}.", height=230)
    note = (
        f"Each {budget.gpu} at TP {budget.tp}, weights in {weights_text(plan)}, KV cache in {kv_cache_text(plan)}. "
        f"{budget.num_gpu_blocks:,} blocks of {budget.block_size} tokens; a token takes "
        f"{budget.kv_bytes_per_token / 1024:,.1f} KiB over all GPUs of a replica. "
        f"At once: {budget.max_concurrency:,.1f} requests of the full "
        f"{budget.max_model_len:,} tokens; shorter ones fit in proportion. "
        f"'left to others' is what gpu_memory_utilization {budget.gpu_memory_utilization:g} keeps from vLLM."
    )
    return figure(title, svg, note)


def _draw(drawn: "Figure", budget: MemoryBudget) -> None:
    axes = drawn.subplots()
    begins = 0.0
    names = []
    for place, (name, size) in enumerate(parts(budget)):
        width = size / GIB
        axes.barh(place, width, left=begins, height=0.66, color=FIRST if name == KV_CACHE else MUTED)
        inside = begins + width > 0.8 * budget.total_bytes / GIB
        axes.annotate(
            f"{width:,.1f} GiB", (begins if inside else begins + width, place), xytext=(-4 if inside else 4, 0),
            textcoords="offset points", ha="right" if inside else "left", va="center", color=INK,
        )  # fmt: skip
        names.append(name)
        begins += width
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, budget.total_bytes / GIB)
    axes.set_xlabel("GiB of one GPU")


def _table(budgets: list[MemoryBudget]) -> str:
    columns = ("TP", *(f"{name} (GiB)" for name, _ in waterfall(budgets[0])), "KV blocks", "KV tokens per replica",
               "full-length requests at once")  # fmt: skip
    rows = [
        (
            budget.tp,
            *(f"{size / GIB:,.2f}" for _, size in waterfall(budget)),
            f"{budget.num_gpu_blocks:,}",
            f"{budget.kv_cache_tokens:,}",
            f"{budget.max_concurrency:,.2f}",
        )
        for budget in budgets
    ]
    return table(columns, rows, caption="Per GPU and per replica, by tensor-parallel size")
