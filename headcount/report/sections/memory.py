"""Where each GPU's memory goes."""

from headcount.answers.capacity import CapacityAnswer
from headcount.answers.memory import copies_of_kv, kv_bytes_held, waterfall
from headcount.report.html import figure, figures, join, table
from headcount.report.waterfall import waterfall_chart
from headcount.text.units import GIB
from headcount.text.words import kv_cache_text, pool_owner, weights_text
from kvcache.memory.budget import MemoryBudget
from simulator.deployment import Deployment

TITLE = "Memory of each GPU"
ORDER = 50


def render(answer: CapacityAnswer) -> str:
    plans = answer.plans
    if not plans:
        return ""
    shown = answer.largest.plan if answer.largest else plans[-1]
    return join(figures(_figure(shown)), _table([plan.budget for plan in plans]))


def _figure(plan: Deployment) -> str:
    budget = plan.budget
    title = (
        f"{budget.available_kv_bytes / GIB:.1f} of {budget.total_bytes / GIB:.1f} GiB hold the KV cache: "
        f"{budget.kv_cache_tokens:,} tokens per {pool_owner(budget)}"
    )
    note = (
        f"Each {budget.gpu} at TP {budget.tp}, weights in {weights_text(plan)}, KV cache in {kv_cache_text(plan)}. "
        f"{budget.num_gpu_blocks:,} blocks of {budget.block_size} tokens; a token takes "
        f"{kv_bytes_held(budget) / 1024:,.1f} KiB over all GPUs of one {pool_owner(budget)}{copies_of_kv(budget)}. "
        f"At once: {budget.max_concurrency:,.1f} requests of the full "
        f"{budget.max_model_len:,} tokens; shorter ones fit in proportion. "
        f"'left to others' is what gpu_memory_utilization {budget.gpu_memory_utilization:g} keeps from vLLM."
    )
    return figure(title, waterfall_chart(budget), note)


def _table(budgets: list[MemoryBudget]) -> str:
    owner = pool_owner(budgets[0])
    columns = ("TP", *(f"{name} (GiB)" for name, _ in waterfall(budgets[0])), "KV blocks", f"KV tokens per {owner}",
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
    return table(columns, rows, caption=f"Memory per GPU and KV cache per {owner}, by tensor-parallel size")
