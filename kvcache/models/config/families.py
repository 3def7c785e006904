"""What each model family fixes in code rather than in its `config.json`."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from files.documents import ReadJson

FOLDER = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Family:
    """Traits of one `model_type`, as families.toml lists them; fields that `Architecture` has mean the same there."""

    kinds: str = "windows"  # how the config says which layer has what: a rule of layer_kinds.py
    state: str | None = None  # where it says what a state looks like: an entry of states.toml
    unequal_caches: bool = False  # layers may share caches, or have heads of their own (Gemma 3n, Gemma 4)
    unequal_heads: bool = False  # layers may have query heads of their own number (Step 3.5, Laguna)
    lists_mlps: bool = False  # the config says which layers have experts in `mlp_layer_types`
    wide_keys: bool = False  # keys may be wider than values, and layers with a window have widths of their own
    has_indexer: bool = False  # its latent attention is sparse where the config has index_topk (DeepSeek-V3.2)
    has_block_indexer: bool = False  # it is sparse by blocks, as sparse_attention_config says (MiniMax-M3)
    compresses: bool = False  # what lies before a window (DeepSeek-V4)
    has_mlp: bool = True  # False: states alone (Mamba)
    gated_mlp: bool = True
    qkv_bias: bool | None = None  # None: where the config's attention_bias says so
    output_bias: bool | None = None  # None: as q, k, v
    mlp_bias: bool = False
    qk_norm: bool = False
    qk_norm_weights: bool = True  # False: normalised without weights (Llama 4)
    qk_norm_whole_projection: bool = False
    norms_per_layer: int = 2
    norm_bias: bool = False
    attention_sinks: bool = False
    sinks_in_windows_only: bool = False
    expert_bias: bool = False
    router_bias: bool = False
    shared_expert_gate: bool = False
    shared_experts_always_split: bool = False
    pads_shared_experts: bool = False
    router_fp32: bool = False
    attention_output_gate: bool = False
    attention_head_gate: bool = False
    attention_element_gate: bool = False
    lm_head_bias: bool = False
    ffn_multiple: int | None = None  # MLP width over hidden size, where the config omits it
    dense_width_key: str | None = None  # of MLPs beside layers with experts, where they have a key of their own
    vision_split: bool = True
    num_rotary_tables: int = 1  # Gemma 3: one for windows, one for full attention
    learned_position_offset: int | None = None  # learned positions beyond the longest context; None: rotary ones
    defaults: ReadJson = field(default_factory=dict)  # transformers' defaults that checkpoints leave out


FALLBACK = Family()


@cache
def family_of(model_type: str) -> Family:
    """The traits of a `model_type`; `FALLBACK`, which is Llama-like, for one that is not known."""
    found = entries("families.toml").get(model_type)
    return FALLBACK if found is None else Family(**found)


def known_families() -> tuple[str, ...]:
    """Every `model_type` whose parameters are counted exactly."""
    return tuple(sorted(entries("families.toml")))


def families_with_states() -> tuple[str, ...]:
    """Every `model_type` with layers that keep a state."""
    return tuple(name for name in known_families() if family_of(name).state)


def state_keys(name: str) -> ReadJson:
    """Field of `StateSpace` → the config's key or keys, of one entry of states.toml."""
    return entries("states.toml")[name]


@cache
def entries(file: str) -> Mapping[str, ReadJson]:
    """The tables of a data file, those that are `like` one above them with all of that one's."""
    found: dict[str, dict[str, object]] = {}
    for name, table in tomllib.loads((FOLDER / file).read_text(encoding="utf-8")).items():
        found[name] = {**found.get(table.pop("like", ""), {}), **table}
    return found
