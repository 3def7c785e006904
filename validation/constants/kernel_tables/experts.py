"""Kernel times of routed experts."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pandas as pd

from kvcache.models.catalog import load_model
from kvcache.shape.layer import Experts
from kvcache.shape.tensors import Tensor
from simulator.latency.expert_routing import ExpertLoad, tile_rows, tiles_at_least
from simulator.latency.gpu_constants import Constants
from simulator.latency.step_time import FloatArray
from simulator.latency.terms import experts
from validation.constants.kernel_tables.rows import MOST_TOKENS, Free, Rows, floats, lone_rank, powers, summed
from validation.constants.kernel_tables.tables import read_table

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
DRAWS = 20
FEWEST_EXPERTS, NARROWEST_EXPERT, MOST_RANKS = 16, 192, 8  # as served today, on one node
OF_KERNELS = (
    "expert_bandwidth_share", "expert_read_s", "expert_overlap_power", "expert_tile_reads", "expert_compute_share",
    "expert_activation_bytes_per_element", "expert_start_s",
)  # fmt: skip


def expert_rows(data: Path, gpu: str, *, before: str | None = None) -> Iterator[Rows]:
    """Routed experts split by tensor parallelism, their tokens dealt evenly and by the tables' power law.

    Few tokens that are dealt by a power law, as routers deal, show how many experts are reached.
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
    for form, word in known.items():
        key = CONSTANT_KEYS.get(form, form)
        part = table[(table["moe_dtype"] == word) & table["distribution"].isin([EVENLY, DEALT])]
        if len(part):
            yield _expert_rows(f"experts, {form}", part, gpu, form, tuple((name, key) for name in OF_KERNELS))
        if word in STARTS_IN:
            other, kernel = STARTS_IN[word]
            own_kernel = (table["moe_dtype"] == other) & table["kernel_source"].str.contains(kernel)
            part = table[own_kernel & (table["num_tokens"] == 1)]
            if len(part):
                yield _expert_rows(f"experts, {form}, start", part, gpu, form, (("expert_start_s", key),))
    few = table[(table["distribution"] == DEALT) & (table["moe_dtype"] == known["bf16"])]
    few = few[(few["num_tokens"] > 1) & (few["num_tokens"] * few["topk"] < 4 * few["num_experts"])]
    if len(few):
        yield _expert_rows("experts, chosen", few, gpu, "bf16", (("distinct_expert_exponent", ""),))


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
    name_of, key = free[0]
    rows = tile_rows(mixture, tokens, tiles_at_least(rank.gpu, key or "bf16"))
    known = None if name_of == "distinct_expert_exponent" else _as_measured(table, rows)

    def term_s(constants: Constants) -> FloatArray:
        return summed(experts(replace(rank, constants=constants), tokens, mixture, tensors, dealt=known))

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


def _as_measured(table: pd.DataFrame, rows: FloatArray) -> ExpertLoad:
    """How the tables' maker dealt the tokens; `rows`: of a tile."""
    names = ["num_tokens", "topk", "num_experts", "distribution"]
    keys = list(zip(*(table[name] for name in names), rows, strict=True))
    found = {key: dealt(*key) for key in set(keys)}
    distinct, tiles = np.array([found[key] for key in keys]).T
    return ExpertLoad(distinct, tiles, rows)


def dealt(tokens: int, topk: int, num_experts: int, distribution: str, rows: float) -> tuple[float, float]:
    """Experts that are chosen, and tiles, in the mean of draws (aiconfigurator, collector/helper.py)."""
    total = tokens * topk
    if distribution == EVENLY:
        counts = np.array([[total // num_experts + (place < total % num_experts) for place in range(num_experts)]])
    else:  # the logarithms of loads are uniform
        widest = max(0.8 * tokens, 1.0) if total > num_experts else 200.0
        loads = np.exp(np.random.default_rng(0).uniform(0, np.log(widest), (DRAWS, num_experts)))
        loads = -np.sort(-loads, axis=1)
        counts = np.round(total * loads / loads.sum(axis=1, keepdims=True))
        for draw in counts:  # the busiest get what rounding took, the others lose what it gave
            left = int(total - draw.sum())
            changed = slice(0, left) if left >= 0 else np.flatnonzero(draw)[left:]
            draw[changed] += np.sign(left)
        counts = np.minimum(counts, tokens)
    return float(np.mean(np.sum(counts > 0, axis=1))), float(np.mean(np.sum(np.ceil(counts / rows), axis=1)))
