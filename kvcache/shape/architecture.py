"""The shape of a decoder-only transformer, as far as bytes depend on it."""

from dataclasses import dataclass, replace
from functools import cached_property

from files.errors import HeadcountError
from kvcache.shape.image_encoder import ImageEncoder
from kvcache.shape.images import ImageRule
from kvcache.shape.layer import Attention, Experts, Indexer, Layer, StateSpace
from kvcache.shape.tensors import ExtraTensor

# vLLM's names for --dtype (config/model.py, ModelDType); auto: the checkpoint's, 16 bits for one in fp32.
DTYPES = {
    "auto": None,
    "half": "float16",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float": "float32",
    "float32": "float32",
}
# vLLM's values of --mamba-ssm-cache-dtype (config/cache.py, MambaDType); auto: the model's.
STATE_DTYPES = ("auto", "float32", "float16", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class DeclaredKVCache:
    """A KV-cache format that a checkpoint was made for."""

    method: str  # "modelopt" or "compressed-tensors": vLLM heeds them at different places, from different releases on
    dtype: str | None  # vLLM's name for it; None: a format that vLLM does not know, so that it warns and keeps 16 bits
    text: str  # as the config has it


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One model's shape: its layers, and what they have in common.

    Widths count elements. `ValueError` where the numbers contradict each other.
    """

    name: str
    model_type: str
    layers: tuple[Layer, ...]
    hidden_size: int
    vocab_size: int
    max_position_embeddings: int
    gated_mlp: bool = True
    attention_bias: bool = False  # on q, k, v
    attention_output_bias: bool = False
    mlp_bias: bool = False
    tie_word_embeddings: bool = False
    qk_norm: bool = False
    qk_norm_whole_projection: bool = False  # OLMo-2, MiniMax-M2: one weight per element of the projection, not per head
    attention_output_gate: bool = False  # as wide as the output, in the same projection (Qwen3-Next, Kimi-K3)
    attention_head_gate: bool = False  # a number for each head, from a projection of its own (Step 3.5, Laguna)
    attention_element_gate: bool = False  # the same for each element of a head (Laguna M.1, Trinity)
    attention_sinks: bool = False
    sinks_in_windows_only: bool = False  # MiMo-V2: none where a layer attends to the whole context
    norms_per_layer: int = 2
    norm_bias: bool = False
    expert_bias: bool = False
    router_bias: bool = False
    router_fp32: bool = False  # whatever the model's dtype
    shared_expert_gate: bool = False
    pads_shared_experts: bool = False  # in blocks of FP8, until every rank has whole ones (Ling 3.0)
    shared_experts_always_split: bool = False  # vLLM's model code has no sequence-parallel form of them
    residual_streams: int = 1  # copies of the hidden state that layers mix (DeepSeek-V4's hyper-connections)
    extra_tensors: tuple[ExtraTensor, ...] = ()
    lm_head_bias: bool = False
    vision_parameters: int = 0  # encoder with its projector; loaded by vLLM beside the text model
    encoder_pass_bytes: int = 0  # what the encoder's pass over the largest image takes on every rank
    encoder_pass_split_bytes: int = 0  # the same, of what tensor parallelism splits with the encoder
    modalities: tuple[str, ...] = ()  # that the encoder reads, as vLLM limits them per prompt
    undivided_items: tuple[tuple[str, int], ...] = ()  # by modality, embeddings of the largest that one step computes
    image_rule: ImageRule | None = None  # how its processor turns an image into tokens; None: not known, or none
    vision_split: bool = True  # False: whole on every tensor-parallel rank
    vision_size: tuple[int, int] | None = None  # its layers and width as SGLang counts them; None: no `vision_config`
    outer_type: str | None = None  # the `model_type` of the whole config, where it wraps that of text
    vision_whole: int = 0  # of its parameters, those that are whole on every rank even so
    image_encoder: ImageEncoder | None = None  # what it computes; None: not known, or none
    num_rotary_tables: int = 1
    rotary_width: int = 0  # columns of each; 0: as wide as a head
    longer_rotary_tables: int = 0  # how many tables' worth of rows linear rope scaling adds
    learned_positions: int = 0  # rows of a position embedding (OPT), whole on every rank
    dtype: str = "bfloat16"
    native_quantization: str | None = None
    declared_kv_cache: DeclaredKVCache | None = None  # what the checkpoint was made for; see kv_cache_dtype
    unquantized: tuple[str, ...] = ()  # components that the checkpoint's own format leaves in 16 bits in every layer
    lm_head_format: str | None = None  # where the checkpoint packs it
    file_share: float = 1.0  # bytes of weights in the checkpoint's files over those counted from its config
    assumptions: tuple[tuple[str, str, str], ...] = ()  # (name, value, why) of what the config did not say

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise HeadcountError(f"model {self.name!r}: {problem}; correct its config.json")

    def __hash__(self) -> int:
        """Cheap, since caches are keyed by models; `==` tells apart models with equal hashes."""
        return hash((self.name, self.dtype, self.hidden_size, len(self.layers), self.layers[0]))

    @property
    def served_type(self) -> str:
        """The `model_type` by which engines choose the model's class."""
        return self.outer_type or self.model_type

    @property
    def num_hidden_layers(self) -> int:
        """How many layers there are."""
        return len(self.layers)

    @cached_property
    def attention(self) -> Attention | None:
        """The model's representative attention: of the first layer with a window, else the first with attention.

        Only Gemma 4's layers without a window have other heads.
        """
        found = [layer.attention for layer in self.layers if layer.attention is not None]
        return next((each for each in found if each.window is not None), found[0] if found else None)

    @property
    def num_attention_heads(self) -> int:
        """Query heads; 0 without attention."""
        return self.attention.num_heads if self.attention else 0

    @property
    def num_key_value_heads(self) -> int:
        """KV heads of `attention`; 0 without any."""
        return self.attention.num_kv_heads if self.attention else 0

    @property
    def head_dim(self) -> int:
        """Width of a head of `attention`; 0 without any."""
        return self.attention.head_dim if self.attention else 0

    @cached_property
    def intermediate_size(self) -> int:
        """Width of the widest MLP; 0 where no layer has one."""
        return max(layer.intermediate_size for layer in self.layers)

    @cached_property
    def experts(self) -> Experts | None:
        """The experts of every MoE layer; None without any."""
        return next((layer.experts for layer in self.layers if layer.experts is not None), None)

    @cached_property
    def state_space(self) -> StateSpace | None:
        """The state that every SSM or linear-attention layer keeps; None without any."""
        return next((layer.state for layer in self.layers if layer.state is not None), None)

    @cached_property
    def indexer(self) -> Indexer | None:
        """The indexer of every layer that has one; None without any."""
        found = (layer.attention.indexer for layer in self.layers if layer.attention)
        return next((indexer for indexer in found if indexer is not None), None)

    @property
    def is_sparse(self) -> bool:
        """Whether queries attend to the tokens that an indexer chooses."""
        return self.indexer is not None

    @property
    def is_mla(self) -> bool:
        """Whether attention caches one latent per token instead of keys with values."""
        return self.attention is not None and self.attention.latent is not None

    @property
    def is_compressed(self) -> bool:
        """Whether attention reads a window, and entries that stand for several tokens each (DeepSeek-V4)."""
        return self.attention is not None and self.attention.compressed is not None

    @property
    def is_moe(self) -> bool:
        """Whether any layer routes tokens to experts."""
        return self.experts is not None

    @property
    def num_moe_layers(self) -> int:
        """Layers that route tokens to experts."""
        return sum(layer.experts is not None for layer in self.layers)

    @property
    def num_state_layers(self) -> int:
        """Layers that keep a state per sequence."""
        return sum(layer.state is not None for layer in self.layers)

    @property
    def windows(self) -> tuple[int, ...]:
        """The windows of the layers that have one, in tokens."""
        found = (layer.attention.window for layer in self.layers if layer.attention)
        return tuple(window for window in found if window is not None)


def with_dtype(architecture: Architecture, dtype: str) -> Architecture:
    """The model with its unpacked weights served in that dtype. Raises `ValueError` on one that is not known."""
    if dtype not in DTYPES:
        raise HeadcountError(f"no dtype {dtype[:40]!r}; allowed: {', '.join(DTYPES)}")
    asked = DTYPES[dtype]
    return architecture if asked in (None, architecture.dtype) else replace(architecture, dtype=asked)


_OF_MODEL = ("short_conv", "lightning")  # states in the model's dtype, whatever is asked


def with_state_dtype(architecture: Architecture, dtype: str) -> Architecture:
    """The model with its recurrent states kept in that dtype; `auto` is the model's choice.

    Raises `ValueError` on one that is not known, or that the model's kind of layer does not have.
    """
    if dtype not in STATE_DTYPES:
        raise HeadcountError(f"no mamba_ssm_cache_dtype {dtype[:40]!r}; allowed: {', '.join(STATE_DTYPES)}")
    state = architecture.state_space
    if dtype == "auto" or state is None or state.kind in _OF_MODEL or state.state_dtype == dtype:
        return architecture
    is_of_k3 = state.full_rank_gate and not state.full_rank_decay
    if state.kind == "kimi_delta" and not (is_of_k3 and dtype == "bfloat16"):
        # vLLM 0.33: `kda_state_dtype` knows these two, and Kimi-K3's model alone hands it the option.
        allowed = "float32 or bfloat16" if is_of_k3 else "float32 alone"
        raise HeadcountError(
            f"the recurrent state of {architecture.name} is {allowed}; leave --mamba-ssm-cache-dtype out"
        )
    layers = tuple(
        replace(layer, state=replace(layer.state, state_dtype=dtype)) if layer.state else layer
        for layer in architecture.layers
    )
    return replace(architecture, layers=layers)


def _problems(arch: Architecture) -> list[str]:
    """What contradicts itself; empty where nothing does."""
    sizes = ("num_hidden_layers", "hidden_size", "vocab_size", "max_position_embeddings")
    found = [f"{size} is {getattr(arch, size)}, must be positive" for size in sizes if getattr(arch, size) <= 0]
    found += [problem for layer in dict.fromkeys(arch.layers) for problem in layer.problems]
    for index, layer in enumerate(arch.layers):
        owner = layer.attention.kv_owner if layer.attention else None
        if owner is not None and not (0 <= owner < index and arch.layers[owner].caches_kv):
            found.append(f"layer {index} shares the KV cache of layer {owner}, which has none of its own before it")
    return found
