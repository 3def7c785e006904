"""What LoRA adapters add to a step: two kernels for each linear layer, and loads of adapters.

vLLM's kernels start a grid of thread blocks for every slot on the GPU, used or not, and one more for requests without
an adapter (lora/ops/triton_ops/lora_shrink_op.py, lora_expand_op.py of 0.33). Blocks of free slots end at once; those
of an adapter in the step take as long for few tokens as for 64. docs/measurements/adapters.md compares with servers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from kvcache.memory.adapters import adapter_bytes
from kvcache.shape.adapted import AdaptedLayer, stage_adapted_layers
from simulator.engines.vllm.adapter_args import AdapterArgs
from simulator.latency.passes import padded_batch
from simulator.latency.step_time import FloatArray
from simulator.latency.terms import Rank

# Fitted to vLLM 0.8.5 on one H100 64GB: Llama-3.1-8B and Qwen2.5-7B with 8 to 384 slots and 0 to 300 adapters
# (github.com/FerranAgulloLopez/GPULLMAdapterOptimization, digital_twin_dynamic/estimators).
EMPTY_BLOCK_S: Final = 0.85e-9  # 0.84 and 0.86: 21 to 24 µs a slot at one sequence
TILE_S: Final = 25.5e-9  # 24.3 and 26.7: 0.33 ms an adapter, of 128 outputs or of a part of the inputs
COPY_S: Final = 8e-6  # of one matrix into a slot; an adapter took 6.4 and 3.0 ms there, whatever its rank
# Two of them a layer take 2 ms a token in 7B to 13B models (Punica, arXiv:2310.18547, abstract); one for queries, keys
# and values 10 µs in vLLM 0.15 (pull request 32425).
KERNEL_S: Final = 8e-6
READ_BASE_S, READ_BYTES_PER_S = 0.05, 1e9  # from a local disk: an assumption; the same servers logged 0.1 to 0.2 s
HOST_LINK_BYTES_PER_S: Final = 25e9  # where the GPU's own is not known: PCIe 4 in practice
TILE_TOKENS, TILE_OUTPUTS, TILE_RANK = 64, 128, 32  # of an expand block (lora/ops/triton_ops/utils.py of 0.33)
SHRINK_TOKENS, SHRINK_RANK = 32, 16
_EXPERT_KERNELS, _KERNELS = 2, 2  # of a layer
SOURCE: Final = "vLLM 0.8.5 on an H100 with up to 384 slots and 300 adapters; docs/measurements/adapters.md"


@dataclass(frozen=True, kw_only=True)
class AdapterCosts:
    """Seconds of a step by its tokens, and for each adapter in it; of a load, from CPU memory and from disk."""

    by_tokens: FloatArray
    adapter_s: float
    load_s: float
    read_s: float
    launches: float  # kernels of all layers, beside the model's own


def adapter_costs(rank: Rank) -> AdapterCosts | None:
    """Of one rank; None without adapters."""
    args = rank.args.lora
    if not isinstance(args, AdapterArgs):
        return None
    tokens = np.arange(rank.args.max_num_batched_tokens + 1, dtype=np.float64)
    if rank.args.cudagraph_mode != "NONE":
        tokens = padded_batch(tokens, rank.served)
    layers = list(_weighted_layers(rank))
    each_s = sum(weight * units(layer, args.max_lora_rank) for weight, layer in layers if not layer.is_experts) * TILE_S
    by_tokens = np.where(tokens > 0, each_s * np.floor(tokens / TILE_TOKENS), 0.0)
    for weight, layer in layers:
        by_tokens += weight * (_experts_s(rank, layer, tokens) if layer.is_experts else kernels_s(layer, args, tokens))
    stages = range(rank.stages)
    held = max(adapter_bytes(rank.arch, rank.parallelism, stage, args) for stage in stages)
    copies = 2 * sum(len(layer.outputs) * (1 if layer.is_experts else layer.count) for _, layer in layers)
    link = rank.gpu.host_link_bytes_per_s or HOST_LINK_BYTES_PER_S
    return AdapterCosts(
        by_tokens=by_tokens,
        adapter_s=each_s,
        load_s=copies * COPY_S + held / link,
        read_s=READ_BASE_S + held / READ_BYTES_PER_S,
        launches=_KERNELS * sum(weight for weight, _ in layers),
    )


def _weighted_layers(rank: Rank) -> Iterator[tuple[float, AdaptedLayer]]:
    """Layers that multiply, with what each counts in a pipeline; an embedding only looks rows up."""
    for stage in range(rank.stages):
        for layer in stage_adapted_layers(rank.arch, rank.parallelism, stage):
            if not layer.is_looked_up:
                yield rank.layer_weight, layer


def units(layer: AdaptedLayer, lora_rank: int) -> float:
    """Blocks of an adapter with few tokens: parts of 128 outputs, then eight parts of the inputs for each slice."""
    expand = sum(_parts(width, TILE_OUTPUTS) for width in layer.outputs) * _parts(lora_rank, TILE_RANK)
    return float(expand + 8 * len(layer.outputs) * _parts(lora_rank, SHRINK_RANK))


def kernels_s(layer: AdaptedLayer, args: AdapterArgs, tokens: FloatArray) -> FloatArray:
    """What both kernels take until their blocks have begun: no less than a kernel's own time."""
    slots = 1 if args.specialize_active_lora else args.max_loras + 1
    slices, width = len(layer.outputs), max(layer.outputs)
    split = np.where(tokens < 128, 64, 8)
    shrink = split * np.ceil(tokens / SHRINK_TOKENS) * _parts(args.max_lora_rank, SHRINK_RANK) * slices
    columns = TILE_OUTPUTS // 2 if slices > 1 else TILE_OUTPUTS
    expand = np.ceil(tokens / TILE_TOKENS) * _parts(width, columns) * slices
    both = sum(np.maximum(KERNEL_S, slots * blocks * EMPTY_BLOCK_S) for blocks in (shrink, expand))
    return np.where(tokens > 0, both, 0.0)


def _experts_s(rank: Rank, layer: AdaptedLayer, tokens: FloatArray) -> FloatArray:
    """Adapters of experts: a block serves the tokens of one adapter that chose one expert. Not measured."""
    args, experts = rank.args.lora, rank.arch.experts
    assert experts is not None and isinstance(args, AdapterArgs), "only layers with experts have adapters of them"
    share = layer.count / experts.num_experts
    chosen = share * tokens * experts.num_experts_per_tok
    most = layer.count * np.minimum(args.max_loras, np.maximum(tokens, 1.0))  # of one adapter and one expert each
    distinct = most * -np.expm1(-chosen / most) + chosen / TILE_TOKENS
    return np.where(tokens > 0, _EXPERT_KERNELS * KERNEL_S + distinct * units(layer, args.max_lora_rank) * TILE_S, 0.0)


def _parts(width: int, size: int) -> int:
    return -(-width // size)


def assumptions(rank: Rank) -> tuple[tuple[str, str, str], ...]:
    """What the answer says of their time."""
    costs = adapter_costs(rank)
    if costs is None:
        return ()
    one = float(costs.by_tokens[1])
    rows = [
        ("LoRA kernels", f"{1e3 * one:.1f} ms a step, {1e3 * costs.adapter_s:.2f} ms for each adapter in it", SOURCE),
        ("LoRA load", f"{1e3 * costs.load_s:.0f} ms into a slot, from disk {costs.read_s:.2f} s more", SOURCE),
    ]
    if rank.arch.is_moe:
        rows.append(("LoRA on experts", "as blocks of other layers", "an estimate: no measured run of this was found"))
    return tuple(rows)
