"""What attention costs where ranks hold different tokens of the same KV heads (decode context parallelism).

Each rank gathers the queries of its group, reads its own part of the context for all of them, and the parts are
scattered back, weighted by what the ranks tell each other of their sums. Source: vLLM 0.33,
v1/attention/ops/common.py (`cp_lse_ag_out_rs`), model_executor/layers/attention/mla_attention.py,
v1/attention/backends/flash_attn.py (`_forward_with_dcp`).
"""

from dataclasses import replace

import numpy as np

from kvcache.shape.layer import Attention
from simulator.latency.attention_cost import AttentionCost
from simulator.latency.terms import Rank, link_of


def over_context_ranks(
    rank: Rank, shape: Attention, own: AttentionCost, *, read_s: float, compute_s: float
) -> AttentionCost:
    """One layer's attention, where `own` is its cost with the whole context on each rank.

    `read_s`, `compute_s`: of one token of context for a rank's own heads. A group's heads are as many times more, over
    as many times fewer tokens. Prompts are computed by the rank of their heads, of latent attention over a gathered
    context, which takes next to nothing; with KV heads their queries are gathered as those of decodes are.
    """
    ranks = rank.args.decode_context_parallel_size
    constants, (start_s, bytes_per_s, exponent) = rank.constants, link_of(rank)
    # Gathering queries and scattering results are an all-reduce's two stages; the logarithms of sums are one more.
    started_s = 2 * start_s * (1 + constants.all_reduce_start_growth * np.log2(ranks))
    started_s += constants.all_reduce_second_stage_s[rank.gpu.interconnect]
    latent = shape.latent
    widths = latent.cached_width + latent.kv_lora_rank if latent else shape.head_dim + shape.value_dim
    heads = ranks * shape.num_heads / rank.parallelism.tensor_parallel_size  # of its group
    message = heads * widths / 2 * rank.plain_bytes  # as `terms.all_reduce_s` counts it
    token_s = (2 * (ranks - 1) / ranks) ** exponent * message / bytes_per_s
    return replace(
        own,
        start_s=own.start_s + started_s,
        sequence_s=own.sequence_s + rank.args.decode_width * token_s,
        context_s=max(read_s / ranks, compute_s),
        prefill_token_s=own.prefill_token_s + (0.0 if latent else token_s),
        is_compute_bound=compute_s > read_s / ranks,
    )
