"""Compares the step-time terms of compressed attention with measured times of whole attention modules.

    python -m validation.constants.compressed_attention --data DATA

For each GPU, ratio of compression and number of heads on a rank: the median of the ratio, of its distance from 1, and
that of nine in ten rows. Rows of prompts are those of 0.5 ms and more: shorter ones are the launches of kernels.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from kvcache.models.catalog import find_gpu, load_model
from kvcache.shape.parameters import layer_tensors
from simulator.latency.compressed_attention import compressed_over
from simulator.latency.forms.physical import rank_of, window_class
from simulator.latency.gpu_constants import constants_for
from simulator.latency.model import served_model
from simulator.latency.step_time import BatchSums
from simulator.latency.terms import Rank, gemm, is_multiply
from validation.constants.kernel_tables.tables import GPUS, read_table
from validation.constants.sparse_attention import print_errors

TABLES = {  # tokens in an entry, whether of prompts
    "dsv4_csa_generation_module": (4, False), "dsv4_csa_context_module": (4, True),
    "dsv4_hca_generation_module": (128, False), "dsv4_hca_context_module": (128, True),
}  # fmt: skip
MOST_TOKENS, SHORTEST_PROMPTS_S = 32768, 5e-4


@cache
def attention_rank(gpu: str, model: str, heads: int, ratio: int) -> Rank:
    """A rank that holds one layer's attention alone, with so many heads."""
    arch = load_model(model)
    layer = next(
        layer for layer in arch.layers if layer.attention and layer.attention.compressed and _ratio(layer) == ratio
    )
    attention = layer.attention
    assert attention is not None and attention.compressed is not None
    groups = max(attention.compressed.o_groups * heads // attention.num_heads, 1)
    own = replace(attention, num_heads=heads, compressed=replace(attention.compressed, o_groups=groups))
    alone = replace(
        arch,
        layers=(replace(layer, attention=own, experts=None, formats=()),),
        native_quantization="fp8-block",
        extra_tensors=(),
    )
    served = served_model(alone, find_gpu(gpu), max_num_batched_tokens=MOST_TOKENS, max_model_len=2**17)
    return rank_of(served, constants_for(served.gpu))


def _ratio(layer: object) -> int | None:
    return getattr(getattr(getattr(layer, "attention", None), "compressed", None), "ratio", None)


def module_s(rank: Rank, window: int, sequences: int, tokens: int, context: int) -> float:
    """One layer's attention over so many sequences that compute `tokens` each after `context` others."""
    (layer,) = rank.arch.layers
    beside, chosen = (compressed_over(rank, windowed=part) for part in (False, True))
    computed = np.array([float(sequences * tokens)])
    multiplies = [each for each in layer_tensors(rank.arch, rank.parallelism, layer) if is_multiply(each)]
    spent_s = sum(each.count * float(sum(gemm(rank, computed, each).values())[0]) for each in multiplies)
    widths = sum(each.count * (each.rows + each.cols) for each in multiplies) + 2 * rank.arch.hidden_size
    moved = computed[0] * widths * rank.constants.activation_bytes_per_element
    spent_s += 0.5 * rank.constants.glue_s + moved / rank.gemm_bandwidth("bf16")
    sums = BatchSums()
    sums.add(start=context, end=context + tokens, is_sampled=True, is_decode=tokens == 1, window=window)
    if tokens > 1:
        attended_s = beside.prefill_s * sums.prefill_work + chosen.prefill_s * sums.window_prefill_work
        return spent_s + sequences * (attended_s + tokens * beside.prefill_token_s)
    read_s = beside.context_s * sums.decode_context + chosen.context_s * sums.window_context + beside.sequence_s
    return spent_s + sequences * read_s + beside.start_s


def compared(data: Path) -> pd.DataFrame:
    """A row for each measured time, with ours beside it."""
    return pd.DataFrame(_rows(data), columns=["gpu", "is_prompt", "ratio", "heads", "measured_s", "ours_s"])


def _rows(data: Path) -> Iterator[tuple[object, ...]]:
    for folder, gpu in GPUS.items():
        for name, (ratio, is_prompt) in TABLES.items():
            table = read_table(data, folder, "sparse_attention", name)
            if table is None:
                continue
            if is_prompt:
                is_served = table["batch_size"] * table["isl"] <= MOST_TOKENS
                table = table[is_served & (table["measured_s"] >= SHORTEST_PROMPTS_S)]
            for row in table.itertuples():
                model = "deepseek-v4-flash" if "Flash" in row.model else "deepseek-v4-pro"
                rank = attention_rank(gpu, model, row.num_heads, ratio)
                window = window_class(load_model(model))[1]
                ours_s = module_s(rank, window, row.batch_size, row.isl if is_prompt else 1, row.step)
                yield gpu, is_prompt, ratio, row.num_heads, row.measured_s, ours_s


if __name__ == "__main__":
    print_errors(compared, __doc__, "ratio")
