"""A model in its format, laid over the ranks of a replica, and what a rank of each pipeline stage holds of it."""

import math
from dataclasses import dataclass

from kvcache.formats.quantization import QuantizationScheme, weight_bytes
from kvcache.gpus.gpu import GPU
from kvcache.layout.kv_layout import KVLayout
from kvcache.memory.adapters import check_release, check_split, graph_cases, slots_bytes
from kvcache.memory.all_to_all import buffers_bytes as buffers_of_ranks
from kvcache.memory.interval import Terms, shipped_residuals, unmeasured_conditions
from kvcache.memory.settings import MemorySettings
from kvcache.memory.sparse_attention import sparse_attention_memory
from kvcache.memory.terms import (
    activation_peak_bytes,
    buffers_bytes,
    cuda_graph_bytes,
    graph_pass_bytes,
    non_torch_bytes,
)
from kvcache.models.drafters import Drafter
from kvcache.parallelism import Parallelism
from kvcache.shape.architecture import Architecture
from kvcache.shape.parameters import stage_tensors


@dataclass(frozen=True, kw_only=True)
class Placement:
    """What a budget's terms are worked out from."""

    arch: Architecture
    gpu: GPU
    parallelism: Parallelism
    scheme: QuantizationScheme
    layout: KVLayout
    kv_cache_dtype: str  # as vLLM runs it
    settings: MemorySettings
    drafter: Drafter | None = None

    @property
    def drafter_bytes(self) -> int:
        """The drafter's weights on one rank."""
        if self.drafter is None:
            return 0
        drafter = self.drafter
        return weight_bytes(drafter.scheme, drafter.tensors(self.parallelism), drafter.arch.dtype)

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """Which of its conditions no start-up log had."""
        return unmeasured_conditions(self.arch, self.gpu, self.parallelism, self.scheme, self.settings)


@dataclass(frozen=True, kw_only=True)
class Stage(Terms):
    """One rank of a pipeline stage."""

    @property
    def held_bytes(self) -> int:
        """What is not for the KV cache."""
        held = self.weights_bytes + self.activation_peak_bytes + self.non_torch_bytes + self.cuda_graph_bytes
        return held + self.adapter_bytes

    def available(self, requested: int) -> int:
        return requested - self.held_bytes

    def half_width(self, unmeasured: tuple[str, ...]) -> int:
        """Half of the 90 % interval of `available`."""
        return math.ceil(shipped_residuals().half_width_bytes(self, unmeasured))


def parallelism_of(settings: MemorySettings, scheme: QuantizationScheme, gpu: GPU) -> Parallelism:
    """The ranks that these settings ask for, with the expert matrices as wide as the GPU's kernels want them."""
    width, hidden = scheme.expert_padding_on(gpu)
    return Parallelism(
        tensor_parallel_size=settings.attention_ranks,
        pipeline_parallel_size=settings.pipeline_parallel_size,
        data_parallel_size=settings.data_parallel_size,
        enable_expert_parallel=settings.enable_expert_parallel,
        splits_dense_over_groups=settings.splits_dense_over_groups,
        splits_shared_over_groups=settings.splits_shared_over_groups,
        splits_head_over_groups=settings.splits_head_over_groups,
        num_redundant_experts=settings.num_redundant_experts,
        pad_expert_width_to=width,
        pad_expert_hidden_to=hidden,
    )


def stage_of(placed: Placement, stage: int) -> Stage:
    """What one rank of a pipeline stage holds."""
    arch, parallelism, settings = placed.arch, placed.parallelism, placed.settings
    layers = [arch.layers[index] for index in parallelism.stage_layers(arch.num_hidden_layers, stage)]
    attention_layers = sum(layer.attention is not None for layer in layers)
    tensors = stage_tensors(arch, parallelism, stage)
    if settings.lora is not None:
        check_release(settings.vllm_version)
        check_split(arch, parallelism, settings.lora)
    sparse = sparse_attention_memory(
        arch,
        parallelism,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_model_len=settings.max_model_len,
        kv_cache_dtype=placed.kv_cache_dtype,
    )
    taken_in = 0
    if settings.has_full_cuda_graphs:
        taken_in = graph_pass_bytes(
            arch,
            placed.gpu,
            parallelism,
            max_num_seqs=settings.max_num_seqs,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            vllm_version=settings.vllm_version,
        )
    return Stage(
        weights_bytes=weight_bytes(placed.scheme, tensors, arch.dtype)
        + buffers_bytes(arch, parallelism, attention_layers)
        + placed.drafter_bytes
        + sparse.kept,
        activation_peak_bytes=activation_peak_bytes(
            arch,
            parallelism,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            max_num_seqs=settings.max_num_seqs,
            samples=stage == parallelism.pipeline_parallel_size - 1,
            vllm_version=settings.vllm_version,
            eight_bit=placed.scheme.gemm_dtype_on(placed.gpu) in ("int8", "fp8"),
            sparse=sparse,
        ),
        non_torch_bytes=non_torch_bytes(parallelism, settings.vllm_version, placed.gpu)
        + buffers_of_ranks(
            settings.all_to_all_buffers,
            arch,
            parallelism,
            placed.gpu,
            max_num_batched_tokens=settings.max_num_batched_tokens,
        ),
        cuda_graph_bytes=cuda_graph_bytes(
            arch,
            placed.gpu,
            parallelism,
            num_layers=len(layers),
            max_num_seqs=settings.max_num_seqs,
            is_eager=not settings.has_cuda_graphs,
            vllm_version=settings.vllm_version,
            cases=graph_cases(settings.lora),
        )
        + taken_in,
        graph_pass_bytes=taken_in,
        adapter_bytes=slots_bytes(arch, parallelism, stage, settings.lora),
    )
