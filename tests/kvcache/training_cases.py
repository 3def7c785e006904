"""Models with settings that the tests of training memory share."""

from dataclasses import replace
from typing import Any

from kvcache.architecture import Architecture
from kvcache.catalog import find_gpu, load_model
from kvcache.parallelism import Parallelism
from kvcache.parameters import Tensor
from kvcache.training import TrainingBudget, training_budget
from kvcache.training_activations import ActivationSettings, LayerActivations, layer_activations
from kvcache.training_plan import TrainingPlan
from kvcache.training_states import OPTIMIZERS, PRECISIONS, ModelStates, model_states

GB, GIB = 1e9, 2**30
H100 = find_gpu("h100-sxm")


def budget(model: str | Architecture = "llama-3.1-8b", **plan: Any) -> TrainingBudget:
    return training_budget(load_model(model) if isinstance(model, str) else model, H100, TrainingPlan(**plan))


def states(parameters: float, precision: str = "bf16-mixed", optimizer: str = "adamw", **zero: Any) -> ModelStates:
    tensor = Tensor("mlp", round(parameters), quantizable=True)
    return model_states([tensor], PRECISIONS[precision], OPTIMIZERS[optimizer], **zero)


def gpt(layers: int, hidden: int, heads: int, vocabulary: int = 51200) -> Architecture:
    return Architecture(
        name="gpt",
        model_type="gpt",
        num_hidden_layers=layers,
        hidden_size=hidden,
        vocab_size=vocabulary,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=hidden // heads,
        intermediate_size=4 * hidden,
        gated_mlp=False,
        norm_bias=True,
        max_position_embeddings=2048,
        layer_windows=(None,) * layers,
    )


def llama(layers: int, hidden: int, heads: int, width: int) -> Architecture:
    return replace(
        gpt(layers, hidden, heads, 32000), gated_mlp=True, norm_bias=False, intermediate_size=width, name="llama"
    )


def kept(**changes: Any) -> ActivationSettings:
    """The paper's GPT in 16 bits, unless changed."""
    given_ = {
        "micro_batch_size": 1, "sequence_length": 2048, "recompute": "none", "sequence_parallel": False,
        "flash_attention": False, "dropout": True, "fused_kernels": True, "precision": PRECISIONS["bf16-mixed"],
    } | changes  # fmt: skip
    return ActivationSettings(**given_)


def layer(arch: Architecture, tp: int = 1, **changes: Any) -> LayerActivations:
    return layer_activations(arch, Parallelism(tensor_parallel_size=tp), kept(**changes), is_moe=arch.is_moe_layer(0))


LLAMA = {
    "7B": llama(32, 4096, 32, 11008),
    "13B": llama(40, 5120, 40, 13824),
    "33B": llama(60, 6656, 52, 17920),
    "65B": llama(80, 8192, 64, 22016),
}
