"""Kernel times of routed experts."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pandas as pd

from benchmarks.constants.kernel_tables.rows import MOST_TOKENS, Free, Rows, floats, lone_rank, powers, summed
from benchmarks.constants.kernel_tables.tables import read_table
from kvcache.models.catalog import load_model
from kvcache.shape.layer import Experts
from kvcache.shape.parameters import Tensor
from simulator.latency.gpu_constants import Constants
from simulator.latency.step_time import FloatArray
from simulator.latency.terms import distinct_experts, experts

# The tables' words beside ours. Their `fp8` experts are one kernel for one scale per tensor, on Hopper slower than
# 16 bits; published FP8 checkpoints have a scale per block.
EXPERT_FORMATS = {
    "bf16": ("bfloat16",),
    "fp8": ("fp8_block",),
    "nvfp4": ("nvfp4",),
    "mxfp4": ("w4a8_mxfp4_mxfp8", "w4a16_mxfp4"),  # the first is what Blackwell multiplies gpt-oss's in
    "int4-experts": ("int4_wo",),
}
# gpt-oss's experts start in one kernel, routing included; the tables have 8-bit activations for other models' alone.
STARTS_IN = {"w4a8_mxfp4_mxfp8": ("w4a16_mxfp4", "gptoss")}
EVENLY, DEALT = "balanced", "power_law_1.01"
OTHER_ACTIVATION = "situ"  # kernels of a model whose experts have an activation of their own
CONSTANT_KEYS = {"nvfp4": "fp4", "int4-experts": "int4"}  # weight formats under other names in the constants
FEWEST_EXPERTS, NARROWEST_EXPERT, MOST_RANKS = 16, 192, 8  # as served today, on one node
# Tokens per expert: so few rarely choose the same one, so many leave 0.2 % of them out if dealt at random.
APART_TOKENS, EVERY_EXPERT_TOKENS = 1 / 8, 6


def expert_rows(data: Path, gpu: str, *, before: str | None = None) -> Iterator[Rows]:
    """Routed experts split by tensor parallelism.

    Bandwidth and starts where tokens are dealt evenly: there it is known how many experts are read. Compute, and how
    many are read, where tokens are dealt by a power law, as routers do.
    """
    table = read_table(data, gpu, "moe", "moe", before=before)
    if table is None:
        return
    table = table[(table["moe_ep_size"] == 1) & (table["num_tokens"] <= MOST_TOKENS)]
    table = table[(table["num_experts"] >= FEWEST_EXPERTS) & (table["moe_tp_size"] <= MOST_RANKS)]
    width = table["inter_size"] / table["moe_tp_size"]
    table = table[(width >= NARROWEST_EXPERT) & (width % 1 == 0)]
    table = table[~table["kernel_source"].str.contains(OTHER_ACTIVATION)]
    known = {
        form: next((word for word in words if (table["moe_dtype"] == word).any()), None)
        for form, words in EXPERT_FORMATS.items()
    }
    each = table["num_tokens"] * table["topk"] / table["num_experts"]
    clear = table[(table["num_tokens"] == 1) | (each <= APART_TOKENS) | (each >= EVERY_EXPERT_TOKENS)]
    # Older releases' tables have no even deal; with many tokens a power law reaches every expert as well.
    is_known = (table["distribution"] == EVENLY).any()
    even = table[table["distribution"] == EVENLY] if is_known else clear[clear["distribution"] == DEALT]
    for form, word in known.items():
        part = even[even["moe_dtype"] == word]
        key = CONSTANT_KEYS.get(form, form)
        shares: tuple[Free, ...] = (("expert_compute_share", key), ("expert_activation_bytes_per_element", key))
        own: tuple[Free, ...] = (*shares, ("expert_start_s", key))
        if is_known:
            own += tuple((name, key) for name in ("expert_bandwidth_share", "expert_read_s", "expert_overlap_power"))
        if len(part):
            yield _expert_rows(f"experts, {form}", part, gpu, form, own)
        if word in STARTS_IN:
            other, kernel = STARTS_IN[word]
            own_kernel = (clear["moe_dtype"] == other) & clear["kernel_source"].str.contains(kernel)
            part = clear[own_kernel & (clear["num_tokens"] == 1)]
            if len(part):
                yield _expert_rows(f"experts, {form}, start", part, gpu, form, (("expert_start_s", key),))
        many = table[(table["distribution"] == DEALT) & (table["moe_dtype"] == word) & (each >= EVERY_EXPERT_TOKENS)]
        if len(many):
            yield _expert_rows(f"experts, {form}, dealt by a power law", many, gpu, form, shares)
    dealt = table[(table["distribution"] == DEALT) & (table["moe_dtype"] == known["bf16"])]
    dealt = dealt[(dealt["num_tokens"] > 1) & (dealt["num_tokens"] * dealt["topk"] < 4 * dealt["num_experts"])]
    if len(dealt):
        yield _expert_rows("experts, chosen", dealt, gpu, "bf16", (("distinct_expert_exponent", ""),))


def _expert_rows(name: str, table: pd.DataFrame, gpu: str, form: str, free: tuple[Free, ...]) -> Rows:
    rank = lone_rank(gpu, load_model("qwen3-30b-a3b"), quantization=form)
    hidden, inter, count, topk = (floats(table, name) for name in ("hidden_size", "inter_size", "num_experts", "topk"))
    width, tokens = inter / floats(table, "moe_tp_size"), floats(table, "num_tokens")
    # All shapes of the table in one: the terms are element-wise in them.
    mixture = cast(Experts, SimpleNamespace(num_experts=count, num_experts_per_tok=topk))
    matrices = [(2 * width, hidden), (hidden, width)]
    tensors = [
        Tensor("experts", cast(int, rows), cast(int, cols), count=cast(int, count), quantizable=True)
        for rows, cols in matrices
    ]
    is_even = (table["distribution"] == EVENLY).to_numpy()

    def term_s(constants: Constants) -> FloatArray:
        dealt = distinct_experts(mixture, tokens, constants.distinct_expert_exponent)
        distinct = np.where(is_even, np.minimum(count, topk * tokens), dealt)
        return summed(experts(replace(rank, constants=constants), tokens, mixture, tensors, distinct=distinct))

    shapes = pd.DataFrame(
        {
            "TP": table["moe_tp_size"],
            "width": powers(table["inter_size"] / table["moe_tp_size"], 2),
            "experts": table["num_experts"],
            "tokens": powers(table["num_tokens"], 4),
            "model": table["hidden_size"].astype(str) + "×" + table["inter_size"].astype(str),
            "kernel": table["kernel_source"].str.removeprefix("vllm_"),
        }
    )
    return Rows(name, floats(table, "measured_s"), shapes, term_s, free)
