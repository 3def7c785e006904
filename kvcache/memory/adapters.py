"""Slots for LoRA adapters on a GPU, which vLLM allocates as it loads the model."""

from typing import TYPE_CHECKING

from files.errors import HeadcountError
from kvcache.parallelism import Parallelism
from kvcache.releases import LORA_AS_READ
from kvcache.shape.adapted import check_adapted, stage_adapted_layers
from kvcache.shape.architecture import Architecture

if TYPE_CHECKING:
    from kvcache.memory.settings import AdapterSettings

SOURCE = "counted from vLLM 0.33's lora/layers (create_lora_weights), equal to its own; docs/measurements/adapters.md"


def check_release(vllm_version: str) -> None:
    """Raise HeadcountError for a release with other rules."""
    if not LORA_AS_READ.holds_in(vllm_version):
        raise HeadcountError(
            f"LoRA adapters are simulated by the rules of vLLM {LORA_AS_READ.first} and later; "
            f"leave --adapters out, or give --vllm-version {LORA_AS_READ.since}"
        )


def check_split(arch: Architecture, parallelism: Parallelism, settings: "AdapterSettings") -> None:
    """Raise HeadcountError for a model or a split whose adapters are not simulated, or that vLLM refuses."""
    check_adapted(arch)
    if arch.is_moe and parallelism.data_parallel_size > 1:
        raise HeadcountError("LoRA adapters are not simulated for MoE with data parallelism; use tensor_parallel_size")
    if arch.is_moe and parallelism.enable_expert_parallel and settings.fully_sharded_loras:
        raise HeadcountError("vLLM refuses --fully-sharded-loras with --enable-expert-parallel; leave one of them out")
    if settings.fully_sharded_loras and settings.max_lora_rank % parallelism.tensor_parallel_size:
        raise HeadcountError(
            f"max_lora_rank is {settings.max_lora_rank}; with --fully-sharded-loras it must be a multiple of "
            f"tensor_parallel_size, {parallelism.tensor_parallel_size}"
        )


def adapter_bytes(arch: Architecture, parallelism: Parallelism, stage: int, settings: "AdapterSettings") -> int:
    """What one adapter takes on one rank of a pipeline stage.

    Every slot has room for every linear layer at `max_lora_rank`, whatever the adapters change. A of layers whose
    outputs are split, and B of those whose inputs are, is whole on every rank, unless fully sharded.
    Source: vLLM 0.32 and 0.33, lora/layers/*.py, `create_lora_weights`; `python -m conformance.components adapters`.
    """
    ways = parallelism.tensor_parallel_size if settings.fully_sharded_loras else 1
    layers = stage_adapted_layers(arch, parallelism, stage)
    elements = sum(layer.elements(settings.max_lora_rank, whole_ranks=ways) for layer in layers)
    return elements * (4 if arch.dtype == "float32" and settings.lora_dtype == "auto" else 2)


def slots_bytes(arch: Architecture, parallelism: Parallelism, stage: int, settings: "AdapterSettings | None") -> int:
    """All slots of one rank; 0 without LoRA."""
    return 0 if settings is None else settings.max_loras * adapter_bytes(arch, parallelism, stage, settings)


def graph_cases(settings: "AdapterSettings | None") -> int:
    """How many CUDA graphs vLLM captures of each size: without adapters, and with them.

    `specialize_active_lora` captures one for each power of 2 up to `max_loras`, and for one more than that (vLLM 0.33
    v1/cudagraph_dispatcher.py, `_get_lora_cases`; lora/utils.py, `get_captured_lora_counts`).
    """
    if settings is None:
        return 1
    most = settings.max_loras
    counts = {1 << power for power in range(most.bit_length())} if settings.specialize_active_lora else set()
    return 1 + len(counts | {most + 1})
