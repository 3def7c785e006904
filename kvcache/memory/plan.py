"""The settings of one memory budget, resolved, with what a rank of each pipeline stage holds under them."""

import math
from dataclasses import dataclass

from kvcache.formats.quantization import QuantizationScheme, weight_bytes
from kvcache.gpus.gpu import GPU
from kvcache.layout.kv_layout import KVLayout
from kvcache.memory.interval import Terms, shipped_residuals, unmeasured_conditions
from kvcache.memory.terms import activation_peak_bytes, buffers_bytes, cuda_graph_bytes, non_torch_bytes
from kvcache.parallelism import Parallelism
from kvcache.releases import BATCH_IN_FLIGHT_PER_STAGE
from kvcache.shape.architecture import Architecture
from kvcache.shape.parameters import stage_tensors


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The settings of one budget, resolved."""

    arch: Architecture
    gpu: GPU
    parallelism: Parallelism
    scheme: QuantizationScheme
    layout: KVLayout
    utilization: float
    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    enforce_eager: bool
    vllm_version: str

    @property
    def max_in_flight_tokens(self) -> int:
        """Tokens scheduled, not yet settled: a batch per pipeline stage with one more under asynchronous scheduling."""
        batches = self.parallelism.pipeline_parallel_size + 1
        if not BATCH_IN_FLIGHT_PER_STAGE.holds_in(self.vllm_version):
            batches = 1
        return self.max_num_batched_tokens * batches

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """Which conditions of the plan no start-up log had."""
        return unmeasured_conditions(
            self.arch,
            self.gpu,
            self.parallelism,
            self.scheme,
            vllm_version=self.vllm_version,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_num_seqs=self.max_num_seqs,
        )


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One rank of a pipeline stage."""

    weights: int
    activation: int
    non_torch: int
    cuda_graph: int

    def available(self, requested: int) -> int:
        return requested - self.weights - self.activation - self.non_torch - self.cuda_graph

    def half_width(self, unmeasured: tuple[str, ...]) -> int:
        """Half of the 90 % interval of `available`."""
        terms = Terms(
            weights_bytes=self.weights,
            activation_peak_bytes=self.activation,
            non_torch_bytes=self.non_torch,
            cuda_graph_bytes=self.cuda_graph,
        )
        return math.ceil(shipped_residuals().half_width_bytes(terms, unmeasured))


def stage_of(plan: Plan, stage: int) -> Stage:
    """What one rank of a pipeline stage holds."""
    arch, parallelism = plan.arch, plan.parallelism
    layers = [arch.layers[index] for index in parallelism.stage_layers(arch.num_hidden_layers, stage)]
    attention_layers = sum(layer.attention is not None for layer in layers)
    tensors = stage_tensors(arch, parallelism, stage)
    return Stage(
        weights=weight_bytes(plan.scheme, tensors, arch.dtype) + buffers_bytes(arch, parallelism, attention_layers),
        activation=activation_peak_bytes(
            arch,
            parallelism,
            max_num_batched_tokens=plan.max_num_batched_tokens,
            max_num_seqs=plan.max_num_seqs,
            samples=stage == parallelism.pipeline_parallel_size - 1,
            vllm_version=plan.vllm_version,
            eight_bit=plan.scheme.gemm_dtype_on(plan.gpu) in ("int8", "fp8"),
        ),
        non_torch=non_torch_bytes(parallelism, plan.vllm_version, plan.gpu),
        cuda_graph=cuda_graph_bytes(
            arch,
            plan.gpu,
            parallelism,
            num_layers=len(layers),
            max_num_seqs=plan.max_num_seqs,
            enforce_eager=plan.enforce_eager,
            vllm_version=plan.vllm_version,
        ),
    )
