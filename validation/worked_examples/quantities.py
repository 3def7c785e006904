"""The models of worked examples, and what Headcount computes for them."""

from dataclasses import replace
from math import ceil
from typing import Any

from conformance.models import with_attention
from kvcache.formats.quantization import find_quantization, weight_bytes
from kvcache.layout.kv_layout import kv_layout
from kvcache.models.catalog import find_gpu, load_model
from kvcache.parallelism import Parallelism
from kvcache.shape.architecture import Architecture
from kvcache.shape.layer import Attention, Layer
from kvcache.shape.parameters import total_parameters
from kvcache.shape.tensors import Tensor
from kvcache.training.activations import ActivationSettings, LayerActivations, layer_activations
from kvcache.training.budget import TrainingBudget, training_budget
from kvcache.training.plan import TrainingPlan
from kvcache.training.states import ModelStates, find_optimizer, find_precision, model_states
from simulator.engines.memory import memory_budget

GB, GIB = 1e9, 2**30
_MATRIX = 128 * 10_000


def gpt(layers: int, hidden: int, heads: int, vocabulary: int = 51200) -> Architecture:
    """A GPT as papers on training have it."""
    return Architecture(
        name="gpt",
        model_type="gpt",
        layers=_layers(layers, hidden, heads, 4 * hidden),
        hidden_size=hidden,
        vocab_size=vocabulary,
        gated_mlp=False,
        norm_bias=True,
        max_position_embeddings=2048,
    )


def _layers(layers: int, hidden: int, heads: int, width: int) -> tuple[Layer, ...]:
    attention = Attention(num_heads=heads, num_kv_heads=heads, head_dim=hidden // heads)
    return (Layer(attention=attention, intermediate_size=width),) * layers


def llama(layers: int, hidden: int, heads: int, width: int) -> Architecture:
    """A LLaMA of the first generation."""
    shape = _layers(layers, hidden, heads, width)
    return replace(gpt(layers, hidden, heads, 32000), gated_mlp=True, norm_bias=False, layers=shape, name="llama")


LLAMA = {
    "7B": llama(32, 4096, 32, 11008),
    "13B": llama(40, 5120, 40, 13824),
    "33B": llama(60, 6656, 52, 17920),
    "65B": llama(80, 8192, 64, 22016),
}
# Llama-2-70B's depth and width without grouped keys, GPT-3, a 7B.
BIG, GPT3, SEVEN = gpt(80, 8192, 64), gpt(96, 12288, 96), gpt(32, 4096, 32)


def weights_gb(billions: float, quantization: str = "none") -> float:
    """GB of so many billion parameters, in matrices too small for the allocator's steps to show."""
    count, rest = divmod(round(billions * GB), _MATRIX)
    tensors = [Tensor("mlp", 1, _MATRIX, count=count, quantizable=True)]
    tensors += [Tensor("mlp", 1, rest, quantizable=True)] if rest else []
    return weight_bytes(find_quantization(quantization), tensors, "bfloat16") / GB


def kv_gb(model: str | Architecture, tokens: int, tp: int = 1, kv_heads: int | None = None) -> float:
    """GB of keys and values on one rank."""
    arch = load_model(model) if isinstance(model, str) else model
    if kv_heads is not None:
        arch = with_attention(arch, num_kv_heads=kv_heads)
    return kv_layout(arch, tensor_parallel_size=tp).bytes_per_token * tokens / GB


def kv_gib(arch: Architecture, tokens: int) -> float:
    """GiB of keys and values on one GPU."""
    return kv_gb(arch, tokens) * GB / GIB


def server_gb(arch: Architecture, tokens: int, tp: int) -> float:
    """GB per GPU of a share of 7.6B weights, a cache, 2 GB of buffers."""
    return weights_gb(7.6 / tp) + kv_gb(arch, tokens) + 2


def block_bytes(model: str, tp: int = 1) -> int:
    """A block of 16 tokens on one rank."""
    return kv_layout(load_model(model), tensor_parallel_size=tp, block_size=16).block_bytes()


def least_h100(model: str, num_requests: int = 1, **settings: Any) -> int:
    """The smallest tensor-parallel size on H100 that holds so many requests of 4,096 tokens."""
    for tp in (1, 2, 4, 8):
        budget = memory_budget(
            load_model(model), find_gpu("h100-sxm"), tensor_parallel_size=tp, max_model_len=4096, **settings
        )
        if budget.fits and budget.max_concurrency >= num_requests:
            return tp
    raise ValueError(f"{num_requests} requests of {model} do not fit on eight GPUs; ask for fewer")


def gpus_of_80_gb(total_gb: float) -> int:
    """GPUs of 80 decimal GB, as the guides count, with nothing left over."""
    return ceil(total_gb / 80)


# Training


def budget(model: str | Architecture = "llama-3.1-8b", **plan: Any) -> TrainingBudget:
    """On H100."""
    arch = load_model(model) if isinstance(model, str) else model
    return training_budget(arch, find_gpu("h100-sxm"), TrainingPlan(**plan))


def states(parameters: float, precision: str = "bf16-mixed", optimizer: str = "adamw", **zero: Any) -> ModelStates:
    """Of so many parameters in one matrix."""
    tensor = Tensor("mlp", round(parameters), quantizable=True)
    return model_states([tensor], find_precision(precision), find_optimizer(optimizer), **zero)


def per(what: str, *names: str) -> float:
    """Bytes per parameter of `weights`, `gradients`, `optimizer` or their `total`; names: precision, optimizer."""
    found: int = getattr(states(GB, *names), f"{what}_bytes")
    return found / GB


def states_gb(billions: float, what: str) -> float:
    """GB under mixed precision and Adam."""
    return billions * per(what)


def states_gib(arch: Architecture, what: str) -> float:
    """GiB under mixed precision and Adam."""
    return total_parameters(arch) * per(what) / GIB


def state_reduction(stage: int) -> float:
    """How many times smaller states are on very many ranks under a ZeRO stage."""
    return states(GB).total_bytes / states(GB, zero_stage=stage, data_parallel_size=10**6).total_bytes


def kept(**changes: Any) -> ActivationSettings:
    """The GPT of Korthikanti et al. in 16 bits, unless changed."""
    given_: dict[str, Any] = {
        "micro_batch_size": 1, "sequence_length": 2048, "recompute": "none", "sequence_parallel": False,
        "flash_attention": False, "dropout": True, "fused_kernels": True, "precision": find_precision("bf16-mixed"),
    } | changes  # fmt: skip
    return ActivationSettings(**given_)


def layer(arch: Architecture, tp: int = 1, **changes: Any) -> LayerActivations:
    """What one layer keeps per token."""
    return layer_activations(arch, Parallelism(tensor_parallel_size=tp), kept(**changes), arch.layers[0])


def stored_gb(arch: Architecture, which: str = "total", batch: int = 1, length: int = 2048) -> float:
    """GB of all layers' activations: `total`, `linear` (without the scores), `input` (full recomputation)."""
    one = layer(arch, sequence_length=length)
    found = {"total": one.total, "linear": one.total - one.attention_core, "input": one.layer_input}[which]
    return found * arch.num_hidden_layers * batch * length / GB


def per_hidden(arch: Architecture, which: str = "linear", **changes: Any) -> float:
    """Bytes per token and hidden element that one layer keeps."""
    one = layer(arch, **changes)
    found = {"total": one.total, "linear": one.total - one.attention_core, "input": one.layer_input}[which]
    return found / arch.hidden_size


def activations_gib(arch: Architecture) -> float:
    """GiB of 64 sequences of 2,048 tokens, with their scores kept."""
    return budget(arch, micro_batch_size=64, sequence_length=2048, flash_attention=False).activations_bytes / GIB


def score_bytes(arch: Architecture, length: int = 2048) -> float:
    """Bytes of scores that one layer keeps per head and pair of tokens."""
    return layer(arch, dropout=False, sequence_length=length).attention_core / (arch.num_attention_heads * length)


def adapters_gb(which: str) -> float:
    """Of rank 16 on the attention of a 7B: `count` in millions, `gradients`, `optimizer` in GB."""
    found = budget("llama-2-7b", lora_rank=16, lora_targets="attention")
    if which == "count":
        return found.num_trainable_parameters / 1e6
    return (found.gradients_bytes if which == "gradients" else found.optimizer_bytes) / GB
