"""Compares the step-time terms of sparse attention with measured times of whole attention modules.

    python -m validation.constants.sparse_attention --data DATA

For each GPU, KV-cache format and number of heads on a rank: the median of the ratio, of its distance from 1, and that
of nine in ten rows. Rows of prompts are those of 5 ms and more: shorter ones are the launches of kernels.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from kvcache.models.catalog import find_gpu, load_model
from kvcache.shape.parameters import layer_tensors
from simulator.latency.attention import attention_over
from simulator.latency.forms.physical import rank_of
from simulator.latency.gpu_constants import constants_for
from simulator.latency.model import served_model
from simulator.latency.step_time import BatchSums
from simulator.latency.terms import Rank, gemm, is_multiply
from validation.constants.kernel_tables.tables import GPUS, read_table

TABLES = {"dsa_generation_module": False, "dsa_context_module": True}  # whether of prompts
MOST_TOKENS, FEWEST_HEADS, SHORTEST_PROMPTS_S = 32768, 8, 5e-3


@cache
def _rank(gpu: str, model: str, heads: int, kv_cache_dtype: str) -> Rank:
    """A rank that holds one layer's attention alone, with so many heads."""
    arch = load_model(model)
    attention = arch.layers[-1].attention
    assert attention is not None
    layer = replace(
        arch.layers[-1], attention=replace(attention, num_heads=heads, num_kv_heads=heads), experts=None, formats=()
    )
    alone = replace(arch, layers=(layer,), native_quantization="fp8-block", unquantized=())
    served = served_model(
        alone, find_gpu(gpu), kv_cache_dtype=kv_cache_dtype, max_num_batched_tokens=MOST_TOKENS, max_model_len=2**17
    )
    return rank_of(served, constants_for(served.gpu))


def module_s(rank: Rank, sequences: int, tokens: int, context: int, *, is_prompt: bool) -> float:
    """One layer's attention over so many sequences that compute `tokens` each after `context` others."""
    (layer,) = rank.arch.layers
    topk = layer.attention.topk if layer.attention and layer.attention.topk else 1
    scored, chosen = (attention_over(rank, windowed=part) for part in (False, True))
    computed = np.array([float(sequences * tokens)])
    multiplies = [each for each in layer_tensors(rank.arch, rank.parallelism, layer) if is_multiply(each)]
    spent_s = sum(each.count * float(sum(gemm(rank, computed, each).values())[0]) for each in multiplies)
    widths = sum(each.count * (each.rows + each.cols) for each in multiplies) + 2 * rank.arch.hidden_size
    moved = computed[0] * widths * rank.constants.activation_bytes_per_element
    spent_s += 0.5 * rank.constants.glue_s + moved / rank.gemm_bandwidth("bf16")
    sums = BatchSums()
    sums.add(start=context, end=context + tokens, is_sampled=True, is_decode=not is_prompt, window=topk)
    if is_prompt:
        attended_s = scored.prefill_s * sums.prefill_work + chosen.prefill_s * sums.window_prefill_work
        return spent_s + sequences * (attended_s + tokens * chosen.prefill_token_s)
    read_s = scored.context_s * sums.decode_context + chosen.context_s * sums.window_context + chosen.sequence_s
    return spent_s + sequences * read_s + scored.start_s + chosen.start_s


def compared(data: Path) -> pd.DataFrame:
    """A row for each measured time, with ours beside it."""
    return pd.DataFrame(_rows(data), columns=["gpu", "is_prompt", "kv_cache", "heads", "measured_s", "ours_s"])


def _rows(data: Path) -> Iterator[tuple[object, ...]]:
    for folder, gpu in GPUS.items():
        for name, is_prompt in TABLES.items():
            table = read_table(data, folder, "sparse_attention", name)
            if table is None:
                continue
            chosen = table[(table["gemm_type"] == "fp8_block") & (table["num_heads"] >= FEWEST_HEADS)]
            if is_prompt:
                is_served = chosen["batch_size"] * chosen["isl"] <= MOST_TOKENS
                chosen = chosen[is_served & (chosen["measured_s"] >= SHORTEST_PROMPTS_S)]
            for row in chosen.itertuples():
                cache_dtype = "fp8" if row.kv_cache_dtype == "fp8" else "auto"
                if cache_dtype == "auto" and row.architecture == "GlmMoeDsaForCausalLM":
                    cache_dtype = load_model(row.model).dtype  # as wide as the 16 bits that were measured
                rank = _rank(gpu, row.model, row.num_heads, cache_dtype)
                tokens = row.isl if is_prompt else 1
                ours_s = module_s(rank, row.batch_size, tokens, row.step, is_prompt=is_prompt)
                yield gpu, is_prompt, row.kv_cache_dtype, row.num_heads, row.measured_s, ours_s


def print_errors(of: Callable[[Path], pd.DataFrame], described: str | None, kind: str) -> None:
    """For the command line: errors of `of(DATA)` by GPU, `kind` and number of heads."""
    parser = argparse.ArgumentParser(description=described, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of public measurements")
    data = parser.parse_args().data
    table = of(data)
    if table.empty:
        parser.error(f"{data} has no kernel tables of attention modules; give the folder that holds measured/")
    table["off"] = np.log(table["ours_s"] / table["measured_s"])
    kinds = table.groupby(["gpu", "is_prompt", kind, "heads"])["off"]
    print(
        kinds.agg(median="median", half=lambda x: x.abs().median(), most=lambda x: x.abs().quantile(0.9), rows="size")
    )
    print(f"all {len(table):,} rows: half within {table['off'].abs().median():.1%}")


if __name__ == "__main__":
    print_errors(compared, __doc__, "kv_cache")
