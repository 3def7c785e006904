"""Kernel times of attention: decode, latent, prefill."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from conformance.models import with_attention
from kvcache.models.catalog import load_model
from simulator.latency.attention import attention
from simulator.latency.attention_cost import AttentionCost
from simulator.latency.gpu_constants import WIDE, Constants
from simulator.latency.step_time import FloatArray
from simulator.latency.terms import Rank
from validation.constants.kernel_tables.rows import Free, Rows, floats, lone_rank, powers
from validation.constants.kernel_tables.tables import read_table

FROM_MEMORY_BYTES = 2.56e8  # twice the largest L2 cache (B200, 126 MB): what a repeated kernel can't find there
SERVED_WIDE = 256  # wider than WIDE
FEW_HEADS = 16  # of latent attention, on a rank
SHORT_CONTEXT, FEW_SEQUENCES = 64, 8  # a decode kernel of this size is its start
SHORTEST_PREFILL, SHORTEST_PREFILL_S = 256, 50e-6  # below, a kernel's start is what is measured


def decode_rows(data: Path, gpu: str) -> Iterator[Rows]:
    """Decode attention without a window: contexts that no cache holds, with few short ones, which are all start."""
    table = read_table(data, gpu, "attention", "generation_attention")
    if table is None:
        return
    if "window_size" in table:
        table = table[table["window_size"] == 0]
    table = table[table["num_heads"] >= table["num_key_value_heads"]]
    context = table["batch_size"] * (table["step"] + 1)
    width = table["head_dim"] * table["num_key_value_heads"] * np.where(table["kv_cache_dtype"] == "fp8", 1, 2)
    is_large, is_wide = 2 * width * context > FROM_MEMORY_BYTES, table["head_dim"] > WIDE
    is_small = (table["step"] < SHORT_CONTEXT) & (table["batch_size"] <= FEW_SEQUENCES)
    is_16_bits = table["kv_cache_dtype"] == "bfloat16"
    # Start and time of a sequence are fitted to 16 bits, used for 8 too. Wide heads are as wide as served models' are.
    starts: tuple[Free, ...] = (("decode_attention_start_s", ""), ("decode_attention_sequence_s", ""))
    for key, cache, chosen, others in (
        ("16", "bfloat16", is_16_bits & (is_large | is_small), starts),
        ("8", "fp8", ~is_16_bits & is_large & ~is_wide, ()),
        ("8-wide", "fp8", ~is_16_bits & is_large & (table["head_dim"] == SERVED_WIDE), ()),
    ):
        if chosen.any():
            free = (*others, ("decode_attention_bandwidth_share", key))
            yield _attention_rows(f"decode attention, {key}-bit cache", table[chosen], gpu, cache, free)


def _attention_rows(name: str, table: pd.DataFrame, gpu: str, kv_dtype: str, free: tuple[Free, ...]) -> Rows:
    ranks = _attention_ranks(table, gpu, kv_dtype)
    places = _places(table, ranks)
    context = floats(table, "batch_size") * (floats(table, "step") + 1)

    def term_s(constants: Constants) -> FloatArray:
        costs = [_attention(rank, constants) for rank in ranks.values()]
        each = np.array([(cost.start_s, cost.sequence_s, cost.context_s) for cost in costs])[places]
        return np.asarray(each[:, 0] + each[:, 1] * floats(table, "batch_size") + each[:, 2] * context)

    shapes = pd.DataFrame(
        {
            "head dim": table["head_dim"],
            "kv heads": table["num_key_value_heads"],
            "query heads per kv head": table["num_heads"] // table["num_key_value_heads"],
            "sequences": powers(table["batch_size"], 4),
            "context": powers(table["step"] + 1, 4),
        }
    )
    return Rows(name, floats(table, "measured_s"), shapes, term_s, free)


def latent_rows(data: Path, gpu: str) -> Iterator[Rows]:
    """What latent attention takes per token of context: differences, as the module's projections drop out."""
    table = read_table(data, gpu, "mla", "mla_generation_module")
    if table is None:
        return
    table = table[table["gemm_type"] == "bfloat16"].sort_values(["kv_cache_dtype", "num_heads", "batch_size", "step"])
    before = table.groupby(["kv_cache_dtype", "num_heads", "batch_size"])[["measured_s", "step"]].shift()
    table = table.assign(
        measured_s=table["measured_s"] - before["measured_s"],
        context=table["batch_size"] * (table["step"] - before["step"]),
    )
    arch = load_model("deepseek-v3")
    table = table[(table["context"] * 576 * 2 > FROM_MEMORY_BYTES / 2) & (table["measured_s"] > 0)]
    few, many = table["num_heads"] <= FEW_HEADS, table["num_heads"] == arch.num_attention_heads
    is_short = table["kv_cache_dtype"] == "bfloat16"
    # Few heads are bound by the bandwidth; many, over 16 bits, by compute.
    for name, chosen, cache, constant in (
        ("16-bit cache", few & is_short, "bfloat16", ("decode_attention_bandwidth_share", "16-latent")),
        ("8-bit cache", few & ~is_short, "fp8", ("decode_attention_bandwidth_share", "8-latent")),
        ("many heads", many & is_short, "bfloat16", ("decode_attention_compute_share", "")),
    ):
        part = table[chosen]
        ranks = {
            count: lone_rank(gpu, with_attention(arch, num_heads=count, num_kv_heads=count), kv_dtype=cache)
            for count in part["num_heads"].unique()
        }
        if len(part):
            yield _per_context(f"latent attention, {name}", part, ranks, (constant,))


def _per_context(name: str, table: pd.DataFrame, ranks: Mapping[int, Rank], free: tuple[Free, ...]) -> Rows:
    def term_s(constants: Constants) -> FloatArray:
        costs = {heads: _attention(rank, constants).context_s for heads, rank in ranks.items()}
        return table["num_heads"].map(costs).to_numpy(dtype=np.float64) * floats(table, "context")

    shapes = pd.DataFrame({"heads": table["num_heads"], "sequences": table["batch_size"]})
    return Rows(name, floats(table, "measured_s"), shapes, term_s, free)


def prefill_rows(data: Path, gpu: str) -> Iterator[Rows]:
    """Prefill attention of whole prompts without a window, per head dim."""
    table = read_table(data, gpu, "attention", "context_attention")
    if table is None:
        return
    if "window_size" in table:
        table = table[table["window_size"] == 0]
    table = table[(table["kv_cache_dtype"] == "bfloat16") & (table["isl"] >= SHORTEST_PREFILL)]
    table = table[table["measured_s"] >= SHORTEST_PREFILL_S]
    table = table[(table["num_heads"] >= 4) & (table["num_heads"] > table["num_key_value_heads"])]
    for head_dim in (128, 64, 256):  # the first's extra positions stand for all
        part = table[table["head_dim"] == head_dim]
        free: tuple[Free, ...] = (("prefill_attention_compute_share", str(head_dim)),)
        if head_dim == 128:
            free += (("prefill_attention_extra_positions", ""),)
        if len(part):
            yield _prefill_rows(part, gpu, free)


def _prefill_rows(table: pd.DataFrame, gpu: str, free: tuple[Free, ...]) -> Rows:
    ranks = _attention_ranks(table, gpu, "bfloat16")
    places = _places(table, ranks)
    tokens = floats(table, "batch_size") * floats(table, "isl")
    work = tokens * (floats(table, "isl") + 1) / 2

    def term_s(constants: Constants) -> FloatArray:
        costs = [_attention(rank, constants) for rank in ranks.values()]
        each = np.array([(cost.prefill_s, cost.prefill_token_s) for cost in costs])[places]
        return np.asarray(each[:, 0] * work + each[:, 1] * tokens)

    shapes = pd.DataFrame(
        {"tokens per prompt": table["isl"], "query heads": table["num_heads"], "prompts": table["batch_size"]}
    )
    return Rows(f"prefill attention, head dim {free[0][1]}", floats(table, "measured_s"), shapes, term_s, free)


def _attention(rank: Rank, constants: Constants) -> AttentionCost:
    shape = rank.arch.attention
    assert shape is not None, "the tables are of models with attention"
    return attention(replace(rank, constants=constants), shape)


def _attention_ranks(table: pd.DataFrame, gpu: str, kv_dtype: str) -> dict[tuple[int, int, int], Rank]:
    """One rank for every head layout in the table."""
    base = load_model("llama-3.1-8b")
    return {
        (heads, kv_heads, head_dim): lone_rank(
            gpu,
            with_attention(base, num_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim),
            kv_dtype=kv_dtype,
        )
        for heads, kv_heads, head_dim in set(_shapes(table))
    }


def _places(table: pd.DataFrame, ranks: Mapping[tuple[int, int, int], Rank]) -> NDArray[np.intp]:
    """Which of the ranks each row is of."""
    order = {shape: place for place, shape in enumerate(ranks)}
    return np.array([order[shape] for shape in _shapes(table)])


def _shapes(table: pd.DataFrame) -> list[tuple[int, int, int]]:
    columns = (table["num_heads"], table["num_key_value_heads"], table["head_dim"])
    return list(zip(*(map(int, column) for column in columns), strict=True))
