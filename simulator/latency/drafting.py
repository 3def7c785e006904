"""What drafting adds to a step under speculative decoding: the drafter's passes, by the cause of their time."""

from dataclasses import dataclass, field, replace
from functools import reduce
from types import MappingProxyType

import numpy as np

from kvcache.memory.terms import uses_v2_runner
from kvcache.models.drafters import Drafter, find_drafter
from kvcache.parallelism import pad_vocabulary
from kvcache.shape.tensors import Tensor
from simulator.engines.engines import with_settings
from simulator.engines.vllm.speculation import Speculation
from simulator.latency.attention import attention_over
from simulator.latency.attention_cost import NO_ATTENTION, AttentionCost, add_attention
from simulator.latency.model import ACTIVATIONS, HOST
from simulator.latency.passes import ONCE_PER_PASS, pass_over
from simulator.latency.shared_experts import shared_experts
from simulator.latency.step_time import FloatArray
from simulator.latency.terms import (
    Causes,
    Rank,
    add,
    gemm,
    times,
)

# What the host takes to launch a drafter's pass where CUDA graphs cover its layers alone; Model Runner V2 replays whole
# passes. By how step times grow per draft at batch 1: Llama-3.1-8B on H100 by 1.02 ms with EAGLE-3, 0.74 with EAGLE-1,
# whose pass takes 0.6 of it on the GPU (vllm issue 20780); with another EAGLE-3 by 0.85 (vllm pull request 32628).
# With this, simulated steps grow by 0.71 ms with EAGLE-1, by 1.07 with EAGLE-3.
LAUNCH_S = 0.70e-3
# More of it where logits of a smaller vocabulary are spread over the model's (vllm pull request 25917 lists the calls).
MAP_VOCABULARY_S = 0.36e-3
NGRAM_SEQUENCE_S = 20e-6  # assumed: a scan of a few thousand tokens on the CPU
LOGIT_BYTES = 2.0  # read once more for their largest


@dataclass(frozen=True, kw_only=True)
class Drafting:
    """What a step takes more; nothing without speculation.

    `host_s` is what launching takes, and `host_sequence_s` a sequence, where the host works while the GPU does.
    """

    by_tokens: Causes = field(default_factory=lambda: MappingProxyType({}))
    by_sampled: Causes = field(default_factory=lambda: MappingProxyType({}))
    attention: AttentionCost = NO_ATTENTION
    chosen: AttentionCost = NO_ATTENTION  # of tokens that its indexer chooses
    host_s: float = 0.0
    host_sequence_s: float = 0.0
    assumptions: tuple[tuple[str, str, str], ...] = ()


def drafting(rank: Rank) -> Drafting:
    """The drafter's part of a deployment's steps.

    The first pass is over all of a step's tokens, so that the drafter has seen them too, and over the slots that it
    adds to each sequence; each later one over one token a sequence (vLLM v1/spec_decode/llm_base_proposer.py).
    """
    if rank.args.speculation is None:
        return Drafting()
    passes = _passes(rank)
    return passes.cost() if passes else _by_ngrams(rank)


def drafted_by_all_tokens(rank: Rank, tokens: FloatArray) -> Causes:
    """What drafting takes for experts that attention-parallel ranks share, by the tokens of all of them."""
    passes = _passes(rank)
    return passes.shared_experts(tokens) if passes else {}


def _passes(rank: Rank) -> "_Passes | None":
    """None where nothing is computed to draft."""
    speculation = rank.args.speculation
    if speculation is None:
        return None
    found = find_drafter(rank.arch, speculation.drafter, speculation.model, rank.args.quantization)
    if found is None:
        return None
    first = replace(rank, served=replace(rank.served, architecture=found.arch), scheme=found.scheme)
    replays_passes = uses_v2_runner(rank.arch, rank.args.vllm_version)
    launch_s = 0.0 if replays_passes else LAUNCH_S + MAP_VOCABULARY_S * found.maps_vocabulary
    return _Passes(found, speculation, first, launch_s)


def _by_ngrams(rank: Rank) -> Drafting:
    row = ("n-gram draft tokens", f"{NGRAM_SEQUENCE_S * 1e6:g} µs per sequence on the host", "assumed")
    if rank.args.async_scheduling:
        return Drafting(host_sequence_s=NGRAM_SEQUENCE_S, assumptions=(row,))
    sampled = np.arange(rank.args.max_num_seqs + 1, dtype=np.float64)
    return Drafting(by_sampled={HOST: NGRAM_SEQUENCE_S * sampled}, assumptions=(row,))


class _Passes:
    """A drafter's passes in one step; the host launches each in `launch_s`."""

    def __init__(self, drafter: Drafter, speculation: Speculation, first: Rank, launch_s: float) -> None:
        self.drafter, self.speculation, self.first, self.launch_s = drafter, speculation, first, launch_s
        alone = with_settings(first.args, {"speculation": None})  # a token at a time
        self.later = replace(first, served=replace(first.served, args=alone))
        self.num_later = speculation.num_passes - 1
        self.async_scheduling = first.args.async_scheduling

    def cost(self) -> Drafting:
        scheduled = np.arange(self.first.args.max_num_batched_tokens + 1, dtype=np.float64)
        sampled = np.maximum(np.arange(self.first.args.max_num_seqs + 1, dtype=np.float64), 1.0)
        parts = [self._rest_of_first(sampled), times(self.num_later, self._later(sampled))]
        if not self.async_scheduling:
            parts.append({HOST: self._awaited_launches(sampled)})
        return Drafting(
            by_tokens=pass_over(self.first, scheduled),
            by_sampled=add(*parts),
            attention=self._attention(windowed=False),
            chosen=self._attention(windowed=True) if self.first.arch.is_sparse else NO_ATTENTION,
            host_s=self.speculation.num_passes * self.launch_s if self.async_scheduling else 0.0,
            assumptions=self._assumptions(),
        )

    def _rest_of_first(self, sampled: FloatArray) -> dict[str, FloatArray]:
        """What the first pass takes beside that over the step's tokens: added slots, the drafts it chooses."""
        drafted = self.speculation.num_speculative_tokens if self.speculation.parallel_drafting else 1
        if not self.speculation.draft_slots:
            return self._choice(sampled * drafted)
        own = sampled * self.first.args.decode_width
        with_slots = pass_over(self.first, own + sampled * self.speculation.draft_slots)
        return add(self._choice(sampled * drafted), with_slots, times(-1, pass_over(self.first, own)))

    def _later(self, sampled: FloatArray) -> dict[str, FloatArray]:
        """One of the passes over a token of each sequence, in a tree one of each branch.

        EAGLE-3 joins the model's states in the first only.
        """
        places = () if self.drafter.kind == "eagle3" else ONCE_PER_PASS
        tokens = sampled * self.speculation.topk
        return add(pass_over(self.later, tokens, places=places), self._choice(tokens))

    def _choice(self, drafted: FloatArray) -> dict[str, FloatArray]:
        """The most likely of the drafter's words."""
        rank = self.later
        vocabulary = pad_vocabulary(rank.arch.vocab_size, rank.parallelism)
        head = Tensor("lm_head", vocabulary // rank.parallelism.tensor_parallel_size, rank.arch.hidden_size)
        return add(gemm(rank, drafted, head), {ACTIVATIONS: drafted * vocabulary * LOGIT_BYTES / rank.bandwidth})

    def _awaited_launches(self, sampled: FloatArray) -> FloatArray:
        """What the GPU waits for: drafting begins when the step's tokens are known, a pass no sooner than launched."""
        own = pass_over(self.first, sampled * self.first.args.decode_width)
        first_s = sum(add(own, self._rest_of_first(sampled)).values())
        later_s = sum(self._later(sampled).values())
        waited = np.maximum(self.launch_s - first_s, 0.0) + self.num_later * np.maximum(self.launch_s - later_s, 0.0)
        return np.asarray(waited)

    def _attention(self, *, windowed: bool) -> AttentionCost:
        """Windows of a drafter are taken to be as long as the context: the model has one length of its own."""
        parts = (windowed,) if self.first.arch.is_sparse else (False, True)
        first, later = (
            reduce(add_attention, (attention_over(rank, windowed=part) for part in parts))
            for rank in (self.first, self.later)
        )
        return replace(
            first,
            start_s=first.start_s + self.num_later * later.start_s,
            sequence_s=first.sequence_s + self.num_later * self.speculation.topk * later.sequence_s,
            context_s=first.context_s + self.num_later * later.context_s,
        )

    def shared_experts(self, tokens: FloatArray) -> dict[str, FloatArray]:
        """Experts that ranks share, in a module of the model: over all their tokens, then over one of each sequence."""
        mixture = next((held for held in self.first.arch.layers if held.experts is not None), None)
        if mixture is None or mixture.experts is None:
            return {}
        first = shared_experts(self.first, tokens, mixture, mixture.experts)
        sequences = np.ceil(tokens / self.first.args.decode_width)
        later = times(self.num_later, shared_experts(self.later, sequences, mixture, mixture.experts))
        return times(self.first.arch.num_moe_layers, add(first, later))

    def _assumptions(self) -> tuple[tuple[str, str, str], ...]:
        passes = f"{self.speculation.num_passes} {'passes' if self.num_later else 'pass'} of the {self.drafter.name}"
        why = "counted as the model's layers are; no fitted run has speculative decoding"
        waits = f"{1e3 * self.launch_s:g} ms per pass" if self.launch_s else "whole passes are replayed as CUDA graphs"
        launched = ("launching draft passes", waits, "by published step times (vllm issue 20780)")
        return (("drafting", passes, why), launched, *self.drafter.assumptions)
