"""The linear layers that LoRA adapters change, as vLLM wraps them."""

from collections.abc import Iterator
from dataclasses import dataclass

from files.errors import HeadcountError
from kvcache.parallelism import Parallelism, split
from kvcache.shape.architecture import Architecture
from kvcache.shape.layer import Attention, Experts, Layer

# Models whose embedding and language-model head take adapters too: `embedding_modules` of vLLM 0.33's classes
# (model_executor/models/*.py), by model_type. The second have them in their embedding alone, which vLLM serves by its
# Transformers backend but for Cohere's.
_EMBEDDED = (
    "apertus", "ernie4_5", "exaone", "exaone4", "exaone_moe", "granite", "granitemoe", "granitemoeshared",
    "hyperclovax", "llama", "minicpm", "mixtral", "nemotron", "nemotron-nas", "phi3", "phimoe", "qwen3", "qwen3_moe",
    "solar",
)  # fmt: skip
_EMBEDDED_ALONE = (
    "arcee", "cohere", "cohere2", "cwm", "flex_olmo", "glm", "gpt_bigcode", "gpt_neox", "hunyuan_v1_dense",
    "hunyuan_v1_moe", "jais2", "olmo", "olmo2", "olmo3", "phi", "seed_oss", "smollm3", "starcoder2", "vaultgemma",
)  # fmt: skip
# Classes without `supports_lora`: vLLM refuses adapters of them.
_WITHOUT = (
    "bloom", "cohere2_moe", "dbrx", "falcon", "gpt2", "gptj", "mimo_v2_flash", "stablelm",
)  # fmt: skip
# One A and B for queries, keys and values, and one for gate and up (`packed_modules_mapping`).
_ONE_PAIR = ("phi3", "phi4mm")
_FUSED_EXPERTS = ("gpt_oss",)  # adapters of gate and up projections are one pair: `is_3d_moe_weight` in the same files
LARGEST_VOCABULARY = 258_048  # of a head with adapters (vLLM 0.33 lora/layers/logits_processor.py)


@dataclass(frozen=True, kw_only=True)
class AdaptedLayer:
    """`count` equal linear layers of one rank: the inputs that all slices share, the outputs of each slice.

    An adapter has A, rank × inputs, and B, outputs × rank, for each slice. `split_side` is the one that tensor
    parallelism divides: "outputs", "inputs", or "" where each rank holds the layer whole. `is_looked_up`: A of a
    vocabulary, of which rows are looked up.
    """

    inputs: int
    outputs: tuple[int, ...]
    count: int = 1
    split_side: str = ""
    is_experts: bool = False
    is_looked_up: bool = False

    def elements(self, rank: int, *, whole_ranks: int = 1) -> int:
        """Of one adapter; `whole_ranks` above 1: fully sharded, so that ranks share what else each holds whole."""
        a_ways = whole_ranks if self.split_side == "outputs" else 1
        b_ways = whole_ranks if self.split_side == "inputs" else 1
        a = len(self.outputs) * (rank // a_ways) * self.inputs
        b = sum(width // b_ways for width in self.outputs) * rank
        return self.count * (a + b)


def check_adapted(arch: Architecture) -> None:
    """Raise HeadcountError for a model whose adapters are not known."""
    if arch.model_type in _WITHOUT:
        raise HeadcountError(f"vLLM serves no LoRA adapters of {arch.name} ({arch.model_type}); leave --adapters out")
    what = next((text for is_there, text in _not_known(arch) if is_there), None)
    if what is not None:
        raise HeadcountError(
            f"LoRA adapters are not simulated for models with {what}, such as {arch.name}; leave --adapters out, or "
            "take a model with plain attention"
        )


def _not_known(arch: Architecture) -> Iterator[tuple[bool, str]]:
    yield arch.is_mla or arch.is_compressed or arch.is_sparse, "latent or sparse attention"
    yield arch.state_space is not None, "SSM or linear-attention layers"
    borrows = any(layer.attention is not None and layer.attention.kv_owner is not None for layer in arch.layers)
    yield borrows or bool(arch.extra_tensors), "matrices that only its family has"
    both = any(layer.experts is not None and layer.intermediate_size for layer in arch.layers)
    yield both, "an MLP beside experts"
    experts = arch.experts
    yield experts is not None and bool(experts.shared_expert_intermediate_size), "shared experts"


def adapted_layers(arch: Architecture, parallelism: Parallelism, layer: Layer) -> Iterator[AdaptedLayer]:
    """One layer's, on one rank. Source: vLLM 0.32 and 0.33, lora/layers/*.py, `create_lora_weights`."""
    if layer.attention is not None:
        yield from _attention(arch, layer.attention, parallelism)
    if layer.experts is not None:
        yield from _experts(arch, layer.experts, parallelism)
    if layer.intermediate_size:
        yield from _mlp(arch, split(layer.intermediate_size, parallelism, "MLP width"))


def stage_adapted_layers(arch: Architecture, parallelism: Parallelism, stage: int) -> Iterator[AdaptedLayer]:
    """All of a pipeline stage, on one rank."""
    if stage == 0 and arch.model_type in (*_EMBEDDED, *_EMBEDDED_ALONE):  # whole on every rank
        yield AdaptedLayer(inputs=arch.vocab_size, outputs=(arch.hidden_size,), is_looked_up=True)
    for index in parallelism.stage_layers(arch.num_hidden_layers, stage):
        yield from adapted_layers(arch, parallelism, arch.layers[index])
    if stage == parallelism.pipeline_parallel_size - 1 and arch.model_type in _EMBEDDED:
        if arch.vocab_size > LARGEST_VOCABULARY:
            raise HeadcountError(
                f"{arch.name} has {arch.vocab_size:,} words; vLLM takes LoRA adapters up to {LARGEST_VOCABULARY:,}"
            )
        yield AdaptedLayer(inputs=arch.hidden_size, outputs=(arch.vocab_size,))


def _attention(arch: Architecture, attention: Attention, parallelism: Parallelism) -> Iterator[AdaptedLayer]:
    heads, kv_heads = split(attention.num_heads, parallelism, "attention heads"), attention.num_kv_heads
    own = parallelism.kv_heads_per_rank(kv_heads)
    widths = heads * attention.head_dim, own * attention.head_dim, own * attention.value_dim
    yield AdaptedLayer(inputs=arch.hidden_size, outputs=_in_pairs(arch, widths), split_side="outputs")
    yield AdaptedLayer(inputs=heads * attention.value_dim, outputs=(arch.hidden_size,), split_side="inputs")


def _mlp(arch: Architecture, width: int) -> Iterator[AdaptedLayer]:
    outputs = (width, width) if arch.gated_mlp else (width,)
    yield AdaptedLayer(inputs=arch.hidden_size, outputs=_in_pairs(arch, outputs), split_side="outputs")
    yield AdaptedLayer(inputs=width, outputs=(arch.hidden_size,), split_side="inputs")


def _experts(arch: Architecture, experts: Experts, parallelism: Parallelism) -> Iterator[AdaptedLayer]:
    """The router, and adapters of each expert."""
    yield AdaptedLayer(inputs=arch.hidden_size, outputs=(experts.num_experts,))
    count, width = experts.num_experts, experts.moe_intermediate_size
    if parallelism.enable_expert_parallel:
        count = parallelism.experts_per_rank(count)
    else:
        width = split(width, parallelism, "expert width", ways=parallelism.expert_ways)
    outputs = (2 * width,) if arch.model_type in _FUSED_EXPERTS else (width, width)
    yield AdaptedLayer(inputs=arch.hidden_size, outputs=outputs, count=count, split_side="outputs", is_experts=True)
    yield AdaptedLayer(inputs=width, outputs=(arch.hidden_size,), count=count, split_side="inputs", is_experts=True)


def _in_pairs(arch: Architecture, widths: tuple[int, ...]) -> tuple[int, ...]:
    """Outputs of each pair of A and B."""
    return (sum(widths),) if arch.model_type in _ONE_PAIR else widths
