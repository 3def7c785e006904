"""The form that every latency model takes before a run: tables over a step's sums."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from files.errors import HeadcountError

FloatArray = NDArray[np.float64]
LEAST_STEP_S, MOST_STEP_S = 1e-4, 3600.0  # of a constant step: no GPU is faster, and a search would never end

TOKEN_ID_S = 0.75e-6  # of an API server, for a prompt's token that comes as an id: nothing is tokenized
TOKEN_ID_SOURCE = (
    "measured: with token ids, vLLM 0.26 on an H100's host gave first tokens 0.7 to 0.9 µs per prompt token after "
    "their step; its detokenizer decodes the prompt"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class StepTimes:
    """How long a step takes, in seconds, as a function of sums over its batch.

    With m scheduled tokens, n sequences, s sampled sequences, M tokens over all ranks of the replica:
    GPU time = decode[m] or prefill[m] + shared[M] + sampling[s] + context_s · Σ context of decodes
    + prefill_s · Σ positions attended to by prefill chunks (+ the same capped at `window` tokens)
    + decode_base_s if anything decodes; at least floor[m] where the step holds prefill; + adapter_s · LoRA adapters.
    Where it encodes images: + encoder_start_s + encoder_patch_s · their patches + encoder_pair_s · pairs of these that
    attend, one to the other.
    Step time = max(GPU time, host_base_s + host_sequence_s · n, stream_sequence_s · n) + gap_s. Of a replica's steps,
    `cold_stalls` take cold_start_s more.
    """

    decode: FloatArray  # [max_num_batched_tokens + 1], steps without prefill
    prefill: FloatArray  # [max_num_batched_tokens + 1], steps with prefill
    floor: FloatArray  # [max_num_batched_tokens + 1]
    sampling: FloatArray  # [max_num_seqs + 1]
    shared: Callable[[FloatArray], FloatArray] = np.zeros_like  # of the tokens of all ranks
    decode_base_s: float = 0.0
    context_s: float = 0.0
    window: int = 1
    window_context_s: float = 0.0
    prefill_s: float = 0.0
    window_prefill_s: float = 0.0
    host_base_s: float = 0.0
    host_sequence_s: float = 0.0
    stream_sequence_s: float = 0.0  # of API servers, for the tokens of a step: no step is shorter, as if none buffered
    gap_s: float = 0.0
    adapter_s: float = 0.0  # for each LoRA adapter of running requests; the others' part is in the tables
    adapter_load_s: float = 0.0  # of one that a step waits for, from CPU memory …
    adapter_read_s: float = 0.0  # … and from disk before that
    encoder_floor_s: float = 0.0  # of a step that encodes images, at least …
    encoder_start_s: float = 0.0  # … else this …
    encoder_patch_s: float = 0.0  # … for each of their patches …
    encoder_pair_s: float = 0.0  # … and each pair of patches of which one attends to the other
    cold_start_s: float = 0.0  # kernels are compiled or loaded when first used; 0 for a server that was warmed up
    cold_stalls: int = 1  # steps that take so much longer: the first, then some with prompts …
    cold_apart_s: float = 0.0  # … that begin so long after one another
    # From a request's arrival at the server to its scheduler: the front end takes requests one after the other …
    ingress_request_s: float = 0.0  # … for so long each …
    ingress_token_s: float = 0.0  # … and per prompt token …
    ingress_s: float = 0.0  # … and hands them on after so long

    def __post_init__(self) -> None:
        for name in ("decode", "prefill", "floor", "sampling"):
            table = getattr(self, name)
            if not (np.isfinite(table).all() and (table >= 0).all()):
                raise HeadcountError(f"step times '{name}' hold a negative or non-finite time")

    def times(self, factor: float) -> "StepTimes":
        """Every step so many times as long; what is before it as it is."""
        kept = (
            "window",
            "cold_start_s",
            "cold_stalls",
            "cold_apart_s",
            "ingress_request_s",
            "ingress_token_s",
            "ingress_s",
            "shared",
        )
        longer = {item.name: getattr(self, item.name) * factor for item in fields(self) if item.name not in kept}
        if self.prefill is self.decode:
            longer["prefill"] = longer["decode"]
        return replace(self, **longer, shared=partial(_times_as_long, factor, self.shared))

    def with_cold_start(self, stall_s: float, stalls: int = 1, apart_s: float = 0.0) -> "StepTimes":
        """Of a server that stalls so often for so long before it is warm."""
        return replace(self, cold_start_s=stall_s, cold_stalls=stalls, cold_apart_s=apart_s)

    @property
    def shortest_s(self) -> float:
        """No step takes less, but for rounding."""
        gpu_s = min(self.decode[1:].min(), self.prefill[1:].min()) + self.sampling.min()
        return float(max(gpu_s, self.host_base_s) + self.gap_s)

    def step_s(self, sums: "BatchSums", shared_s: float = 0.0) -> float:
        """One step's time from its sums, `shared_s` of it for the tokens of all ranks."""
        table = self.prefill if sums.prefill_tokens > 0 else self.decode
        gpu_s = float(table[sums.tokens] + self.sampling[sums.sampled]) + self.context_s * sums.decode_context
        gpu_s += shared_s + self.window_context_s * sums.window_context
        gpu_s += self.prefill_s * sums.prefill_work + self.window_prefill_s * sums.window_prefill_work
        gpu_s += self.decode_base_s if sums.decode_context > 0 else 0.0
        if sums.prefill_tokens > 0:
            gpu_s = max(gpu_s, float(self.floor[sums.tokens]))
        gpu_s += self.adapter_s * sums.adapters + sums.encoder_s
        return max(gpu_s, float(self.host_s(sums.sequences))) + self.gap_s

    def host_s(self, sequences: float | FloatArray) -> FloatArray:
        """What a step with so many sequences takes outside of the GPU, meanwhile."""
        of_engine = self.host_base_s + self.host_sequence_s * sequences
        return np.asarray(np.maximum(of_engine, self.stream_sequence_s * sequences))

    def steps_s(self, sums: Mapping[str, NDArray[Any]]) -> FloatArray:
        """Many steps at once, from columns named as in `BatchSums`: what `step_s` says of each, without `shared`."""
        tokens = sums["tokens"]
        holds_prefill = sums["prefill_tokens"] > 0
        gpu_s = self.sampling[sums["sampled"]] + (
            self.decode[tokens]
            if self.prefill is self.decode
            else np.where(holds_prefill, self.prefill[tokens], self.decode[tokens])
        )
        gpu_s += self.context_s * sums["decode_context"]
        gpu_s += self.prefill_s * sums["prefill_work"]
        if self.window_context_s or self.window_prefill_s:
            gpu_s += self.window_context_s * sums["window_context"]
            gpu_s += self.window_prefill_s * sums["window_prefill_work"]
        gpu_s += self.decode_base_s * (sums["decode_context"] > 0)
        gpu_s = np.maximum(gpu_s, np.where(holds_prefill, self.floor[tokens], 0.0))
        if self.adapter_s:
            gpu_s += self.adapter_s * sums["adapters"]
        if "encoder_s" in sums:
            gpu_s += sums["encoder_s"]
        return np.asarray(np.maximum(gpu_s, self.host_s(sums["sequences"])) + self.gap_s)


def _times_as_long(factor: float, shared: Callable[[FloatArray], FloatArray], tokens: FloatArray) -> FloatArray:
    return factor * shared(tokens)


@dataclass(kw_only=True)
class BatchSums:
    """Sums over one step's batch; `*_work` counts positions attended to, `window_*` the same capped at the window."""

    tokens: int = 0
    sequences: int = 0
    sampled: int = 0
    decode_context: int = 0
    window_context: int = 0
    prefill_tokens: int = 0
    prefill_work: float = 0.0
    window_prefill_work: float = 0.0
    adapters: int = 0  # LoRA adapters of running requests
    encoder_s: float = 0.0  # for the images that are encoded

    def add(self, *, start: int, end: int, is_sampled: bool, is_decode: bool, window: int) -> None:
        """Add a sequence that computes positions [start, end): a decode, drafts included, or a prefill chunk."""
        self.tokens += end - start
        self.sequences += 1
        self.sampled += is_sampled
        if is_decode:
            self.decode_context += end
            self.window_context += min(end, window)
        else:
            self.prefill_tokens += end - start
            self.prefill_work += (end - start) * (start + end) / 2
            inside = min(max(start, window), end)  # [start, inside) attend to all before them
            self.window_prefill_work += (inside - start) * (start + inside) / 2 + (end - inside) * window


def constant_step_times(step_s: float, *, max_num_batched_tokens: int, max_num_seqs: int) -> StepTimes:
    """Every step takes `step_s` seconds: for comparing decisions, where time must be trivial."""
    if not LEAST_STEP_S <= step_s <= MOST_STEP_S:
        raise HeadcountError(
            f"step_s is {step_s}; a constant step time must be a finite number of seconds, at least "
            f"{LEAST_STEP_S:g}, at most {MOST_STEP_S:,.0f}"
        )
    table = np.full(max_num_batched_tokens + 1, step_s)
    return StepTimes(decode=table, prefill=table, floor=np.zeros_like(table), sampling=np.zeros(max_num_seqs + 1))
