"""Small models with LoRA slots, whose sizes are compared with vLLM's."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from conformance.components.cases.weight_cases import WeightCase, weight_cases
from files.errors import HeadcountError
from kvcache.models.config.reader import from_config
from kvcache.shape.adapted import check_adapted

_PLAIN = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 4, "vocab_size": 1000, "max_position_embeddings": 512, "tie_word_embeddings": False,
}  # fmt: skip
_DENSE = {  # the class that vLLM builds, and what its config says besides
    "qwen2": ("Qwen2ForCausalLM", {}),
    "qwen3": ("Qwen3ForCausalLM", {"head_dim": 16}),
    "mistral": ("MistralForCausalLM", {"head_dim": 16}),
    "gemma2": ("Gemma2ForCausalLM", {"head_dim": 16, "query_pre_attn_scalar": 16, "tie_word_embeddings": True}),
    "gemma3_text": ("Gemma3ForCausalLM", {"head_dim": 16, "query_pre_attn_scalar": 16, "tie_word_embeddings": True}),
    "granite": ("GraniteForCausalLM", {}),
    "cohere2": ("Cohere2ForCausalLM", {"tie_word_embeddings": True}),
    "olmo2": ("Olmo2ForCausalLM", {}),
    "nemotron": ("NemotronForCausalLM", {"hidden_act": "relu2", "partial_rotary_factor": 0.5, "norm_eps": 1e-5}),
    "starcoder2": ("Starcoder2ForCausalLM", {"use_bias": True, "hidden_act": "gelu_pytorch_tanh"}),
    "phi3": ("Phi3ForCausalLM", {"pad_token_id": 0}),
    "mixtral": ("MixtralForCausalLM", {"num_local_experts": 8, "num_experts_per_tok": 2}),
}


@dataclass(frozen=True, kw_only=True)
class AdapterCase(WeightCase):
    """One model's slots on the first rank of one split."""

    max_loras: int
    max_lora_rank: int
    fully_sharded_loras: bool = False


def adapter_cases() -> Iterator[AdapterCase]:
    """Every model that takes adapters here, on one GPU and split, with both ways to split adapters."""
    for case, fully_sharded in product((*_dense_cases(), *_adapted(weight_cases())), (False, True)):
        yield AdapterCase(
            name=f"{case.name}{' fully sharded' if fully_sharded else ''}",
            config=case.config,
            tensor_parallel_size=case.tensor_parallel_size,
            enable_expert_parallel=case.enable_expert_parallel,
            max_loras=3,
            max_lora_rank=16,
            fully_sharded_loras=fully_sharded,
        )


def _dense_cases() -> Iterator[WeightCase]:
    for (model_type, (name, fields)), tp in product(_DENSE.items(), (1, 2, 8)):
        config = {"model_type": model_type, "architectures": [name], **_PLAIN, **fields}
        yield WeightCase(name=f"{model_type} TP {tp}", config=config, tensor_parallel_size=tp)


def _adapted(cases: Iterator[WeightCase]) -> Iterator[WeightCase]:
    for case in cases:
        try:
            check_adapted(from_config(case.config, name=case.name))
        except HeadcountError:
            continue
        if case.data_parallel_size == 1:
            yield case
