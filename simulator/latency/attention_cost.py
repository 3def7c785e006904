"""What attention over the cache costs, by the sums of a batch that it grows with."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class AttentionCost:
    """Seconds of a layer or of several.

    Of a decode step, per sequence that decodes, per token of context that it reads, per position that prefill sees.
    `prefill_token_s` is what a token of a step with prefill costs besides: reading queries, keys, writing the cache.
    """

    start_s: float
    sequence_s: float
    context_s: float
    prefill_s: float
    prefill_token_s: float
    is_compute_bound: bool  # in decode


NO_ATTENTION = AttentionCost(
    start_s=0.0, sequence_s=0.0, context_s=0.0, prefill_s=0.0, prefill_token_s=0.0, is_compute_bound=False
)


def add_attention(one: AttentionCost, other: AttentionCost) -> AttentionCost:
    """Of both in one step; the first says what bounds it, unless it takes no time."""
    return AttentionCost(
        start_s=one.start_s + other.start_s,
        sequence_s=one.sequence_s + other.sequence_s,
        context_s=one.context_s + other.context_s,
        prefill_s=one.prefill_s + other.prefill_s,
        prefill_token_s=one.prefill_token_s + other.prefill_token_s,
        is_compute_bound=(one if one.context_s else other).is_compute_bound,
    )


def times_attention(count: float, one: AttentionCost) -> AttentionCost:
    """Of so many layers alike."""
    return AttentionCost(
        start_s=count * one.start_s,
        sequence_s=count * one.sequence_s,
        context_s=count * one.context_s,
        prefill_s=count * one.prefill_s,
        prefill_token_s=count * one.prefill_token_s,
        is_compute_bound=one.is_compute_bound,
    )
