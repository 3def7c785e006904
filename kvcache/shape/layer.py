"""What one layer of a model is made of."""

from dataclasses import dataclass

CHOSEN_RATIO, SUMMED_RATIO = 4, 128  # tokens in an entry of DeepSeek-V4 (vLLM 0.33 models/deepseek_v4)
KINDS = ("mamba1", "mamba2", "gated_delta_net", "kimi_delta", "lightning", "short_conv")


@dataclass(frozen=True, kw_only=True)
class LatentAttention:
    """Widths of multi-head latent attention (MLA), which caches one latent per token in place of keys and values."""

    kv_lora_rank: int
    q_lora_rank: int | None = None  # None: queries come from the hidden state in one projection
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int

    @property
    def cached_width(self) -> int:
        """Elements that one token leaves in the cache: the latent with its rotary key."""
        return self.kv_lora_rank + self.qk_rope_head_dim


@dataclass(frozen=True, kw_only=True)
class Indexer:
    """What chooses the tokens that sparse attention reads (DeepSeek-V3.2): own heads, one cached key per token.

    `chooses_blocks`: of tokens, not single ones (MiniMax-M3); its keys are in 16 bits, its heads split like KV heads.
    """

    num_heads: int
    head_dim: int
    chooses_blocks: bool = False

    @property
    def cached_bytes(self) -> int:
        """What a token leaves in its cache: a key in 16 bits, or in FP8 with fp32 scales for 128 each.

        Source: vLLM 0.33 MiniMaxM3IndexerCache, DeepseekV32IndexerCache.
        """
        return 2 * self.head_dim if self.chooses_blocks else self.head_dim + self.head_dim // 128 * 4


@dataclass(frozen=True, kw_only=True)
class CompressedAttention:
    """DeepSeek-V4's: one vector of a token is key and value of all heads; far ones are summed up `ratio` by `ratio`."""

    ratio: int | None = None  # tokens in an entry of the compressed cache; None: the window alone
    q_lora_rank: int
    o_lora_rank: int  # of each group of heads, on the way out
    o_groups: int

    @property
    def is_chosen_from(self) -> bool:
        """Whether queries read what an indexer chooses; else all entries, of so many tokens that they are few."""
        return self.ratio == CHOSEN_RATIO

    @property
    def state_tokens(self) -> int:
        """The last tokens whose sums are kept; entries of CHOSEN_RATIO tokens overlap with the one before."""
        assert self.ratio is not None, "asked of a layer without a compressed cache"
        return self.ratio * self.overlap

    @property
    def overlap(self) -> int:
        """Entries that a token is summed up in."""
        return 2 if self.is_chosen_from else 1


@dataclass(frozen=True, kw_only=True)
class Attention:
    """One layer's attention. Windows count tokens; `head_dim` is the width of a query, under MLA of both its parts."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    window: int | None = None  # None: full attention
    chunked: bool = False  # the window is one of Llama 4's fixed chunks, not a sliding window
    kv_owner: int | None = None  # the earlier 0-based layer whose cache this one reads (Gemma 3n)
    keys_as_values: bool = False  # vLLM holds the projection twice (Gemma 4)
    latent: LatentAttention | None = None
    v_head_dim: int | None = None  # of its values where keys are wider (MiMo-V2); None: `head_dim`
    topk: int | None = None  # the most tokens that a query attends to, chosen by an indexer; None: all
    compressed: CompressedAttention | None = None  # beside a window
    indexer: Indexer | None = None  # None beside a `topk`: it takes what an earlier layer's indexer chose (GLM-5.2)

    @property
    def value_dim(self) -> int:
        """Width of one head's values."""
        return self.head_dim if self.v_head_dim is None else self.v_head_dim

    @property
    def problems(self) -> list[str]:
        """What contradicts itself, in the config's words; empty where nothing does."""
        sizes = {
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
        }
        found = [f"{name} is {size}, must be positive" for name, size in sizes.items() if size <= 0]
        if not found and self.num_heads % self.num_kv_heads:
            found.append(
                f"num_attention_heads {self.num_heads} is not a multiple of num_key_value_heads {self.num_kv_heads}"
            )
        if self.window is not None and self.window <= 0:
            found.append("an attention window is not positive")
        v_head_dim = self.value_dim if self.latent is None else self.latent.v_head_dim
        if not found and v_head_dim <= 0:
            found.append(f"v_head_dim is {v_head_dim}, must be positive")
        if self.topk is not None and self.topk <= 0:
            found.append(f"index_topk is {self.topk}, must be positive")
        if self.compressed is not None and self.num_heads % self.compressed.o_groups:
            found.append(
                f"num_attention_heads {self.num_heads} is not a multiple of o_groups {self.compressed.o_groups}"
            )
        if self.indexer is not None:
            sizes = {"index_n_heads": self.indexer.num_heads, "index_head_dim": self.indexer.head_dim}
            found += [f"{name} is {size}, must be positive" for name, size in sizes.items() if size <= 0]
        return found


@dataclass(frozen=True, kw_only=True)
class StateSpace:
    """The shape that a model's state-space or linear-attention layers share; 0 where a kind has no such width.

    `mamba1`: `intermediate_size`, `state_size`, `dt_rank`. `mamba2`: `num_heads` of `head_dim`, `num_groups`,
    `state_size`. `gated_delta_net` (Qwen3-Next): `num_heads` value heads of `head_dim`, `num_key_heads` of
    `key_head_dim`. `kimi_delta`: `num_heads` of `head_dim`. `lightning` (Ling 2.6): the same, without a convolution,
    normed in `num_groups`. `short_conv` (LFM2): `intermediate_size`.
    """

    kind: str  # one of KINDS
    conv_kernel: int = 0
    num_heads: int = 0
    head_dim: int = 0
    num_key_heads: int = 0
    key_head_dim: int = 0
    num_groups: int = 0
    state_size: int = 0
    intermediate_size: int = 0
    full_rank_gate: bool = False  # of the output, as wide as the heads, not through a narrow rank (Kimi-K3)
    full_rank_decay: bool = False  # so is what says how much is forgotten (Ling 3.0)
    state_dtype: str = "auto"  # of the recurrent state, vLLM's mamba_ssm_cache_dtype; auto: the model's dtype
    # What only the count of weights needs.
    dt_rank: int = 0
    conv_bias: bool = False
    projection_bias: bool = False  # into the layer
    output_bias: bool = False
    norm: bool = False  # weights of the norm before the output (mamba2), of dt, B, C (mamba1), of q, k (lightning)

    @property
    def problems(self) -> list[str]:
        """What contradicts itself; empty where nothing does."""
        if self.kind not in KINDS:
            return [f"state-space kind {self.kind!r} is not modelled; known: {', '.join(KINDS)}"]
        needed = {
            "mamba1": ("conv_kernel", "intermediate_size", "state_size", "dt_rank"),
            "mamba2": ("conv_kernel", "num_heads", "head_dim", "num_groups", "state_size"),
            "gated_delta_net": ("conv_kernel", "num_heads", "head_dim", "num_key_heads", "key_head_dim"),
            "kimi_delta": ("conv_kernel", "num_heads", "head_dim"),
            "lightning": ("num_heads", "head_dim", "num_groups"),
            "short_conv": ("conv_kernel", "intermediate_size"),
        }[self.kind]
        found = [
            f"{key} of its state-space layers is {getattr(self, key)}, must be positive"
            for key in needed
            if getattr(self, key) <= 0
        ]
        shared_by = {"mamba2": "num_groups", "lightning": "num_groups", "gated_delta_net": "num_key_heads"}.get(
            self.kind
        )
        if not found and shared_by and self.num_heads % getattr(self, shared_by):
            found.append(
                f"the {self.num_heads} heads of its state-space layers are not a multiple of "
                f"{shared_by} {getattr(self, shared_by)}"
            )
        return found


@dataclass(frozen=True, kw_only=True)
class Experts:
    """One layer's mixture of experts."""

    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int  # of each routed expert
    shared_expert_intermediate_size: int = 0  # of those that every token passes, together
    hidden_size: int = 0  # what experts read and write, where it is narrower (Nemotron-H); 0: the model's
    by_word: bool = False  # a table gives each word its experts (DeepSeek-V4), so that no bias balances them

    @property
    def problems(self) -> list[str]:
        """What contradicts itself, in the config's words; empty where nothing does."""
        found = [] if self.moe_intermediate_size else ["moe_intermediate_size is missing for its experts"]
        if not 0 < self.num_experts_per_tok <= self.num_experts:
            found.append(f"num_experts_per_tok {self.num_experts_per_tok} must lie in 1–{self.num_experts}")
        return found


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer's parts, in their order; each may be absent.

    A state stands beside attention (Falcon-H1) or in its place, experts beside an MLP (Gemma 4) or in its place.
    """

    attention: Attention | None = None
    state: StateSpace | None = None
    intermediate_size: int = 0  # of the MLP; 0: none
    experts: Experts | None = None
    formats: tuple[tuple[str, str], ...] = ()  # (component.part, weight format) where not the model's: see `Tensor`

    @property
    def num_parts(self) -> int:
        """Parts that each add to the hidden state."""
        parts = self.attention is not None, self.state is not None, self.intermediate_size > 0, self.experts is not None
        return sum(parts)

    @property
    def caches_kv(self) -> bool:
        """Whether the layer has a KV cache of its own."""
        return self.attention is not None and self.attention.kv_owner is None

    @property
    def problems(self) -> list[str]:
        """What contradicts itself, in the config's words; empty where nothing does."""
        return [
            each for part in (self.attention, self.state, self.experts) if part is not None for each in part.problems
        ]
