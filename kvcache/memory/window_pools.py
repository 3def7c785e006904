"""How SGLang holds the KV cache of layers with sliding windows: in a pool of their own, or in that of all layers.

Read from SGLang 0.5.23: `srt/configs/model_config.py` (`is_hybrid_swa_model`), `srt/arg_groups/model_overrides/`,
`srt/model_executor/pool_configurator.py` (`HybridSWAPoolConfigurator`), and the models' own code.
"""

from dataclasses import dataclass
from typing import Protocol

from files.errors import HeadcountError
from kvcache.errors import DoesNotFitError
from kvcache.layout.kv_content import cache_bytes_per_token
from kvcache.layout.kv_layout import KVGroup
from kvcache.models.drafters import Drafter
from kvcache.shape.architecture import Architecture

# By model type, how many tokens less than its window SGLang keeps of each sequence in the pool of windows: the model's
# `get_attention_sliding_window_size` leaves out the token itself, and the window of a config includes it.
_OWN_POOL = {
    "gemma4_text": 1, "gpt_oss": 1, "mellum": 1, "muse_glimmer_text": 1,
    "laguna": 0, "llama4_text": 0, "mimo_v2": 0, "mimo_v2_flash": 0, "step3p5": 0,
}  # fmt: skip
# Those that hold every token in every layer, and read their windows alone.
_ONE_POOL = ("afmoe", "gemma2", "gemma3_text")


class PoolSettings(Protocol):
    """An SGLang server's arguments, as far as its pools depend on them."""

    @property
    def page_size(self) -> int: ...
    @property
    def disable_radix_cache(self) -> bool: ...
    @property
    def disable_hybrid_swa_memory(self) -> bool: ...
    @property
    def swa_full_tokens_ratio(self) -> float: ...


@dataclass(frozen=True, kw_only=True)
class WindowPool:
    """The pool of the layers with windows, beside that of the others."""

    window: int  # tokens that a sequence keeps there
    windowed: KVGroup
    full: KVGroup
    ratio: float  # its tokens over those of the other pool
    page_size: int
    draft_layers: int = 0  # of a drafter: each takes as much as one of the layers without windows

    @property
    def token_bytes(self) -> float:
        """What a token of the other pool takes, with its share of this one."""
        full, windowed = (sum(group.page_bytes) // self.page_size for group in (self.full, self.windowed))
        drafted = self.full.page_bytes[0] // self.page_size * self.draft_layers
        return full + drafted + self.ratio * windowed

    def tokens_beside(self, full_tokens: int) -> int:
        """Tokens of this pool where the other one has so many; both have whole pages."""
        return int(full_tokens * self.ratio) // self.page_size * self.page_size

    def check_holds_a_request(self, tokens: int) -> None:
        """Raise DoesNotFitError for a pool with which SGLang does not start."""
        if tokens <= self.window + self.page_size:
            raise DoesNotFitError(
                f"the KV pool of the layers with sliding windows has {tokens:,} tokens, and SGLang needs more than a "
                f"window and a page ({self.window + self.page_size:,}); raise --swa-full-tokens-ratio or "
                "--mem-fraction-static, or take more or larger GPUs"
            )


def window_pool(
    arch: Architecture,
    settings: PoolSettings,
    tensor_parallel_size: int,
    kv_cache_dtype: str,
    drafter: Drafter | None = None,
) -> WindowPool | None:
    """The pool of a model's windows; None where all layers share one pool.

    Raises HeadcountError for a drafter whose layers may be in that of windows.
    """
    if arch.model_type not in _OWN_POOL or not arch.windows or settings.disable_hybrid_swa_memory:
        return None
    if drafter is not None and drafter.kind == "mtp":
        raise HeadcountError(
            f"SGLang's MTP modules of models with a pool of sliding windows, such as {arch.name}, are not simulated; "
            "give an EAGLE head or a draft model, or leave --engine sglang out to ask about vLLM"
        )
    attention = {index: layer.attention for index, layer in enumerate(arch.layers) if layer.attention is not None}

    def group(*, is_windowed: bool) -> KVGroup:
        layers = [index for index, each in attention.items() if (each.window is not None) is is_windowed]
        token = [sum(cache_bytes_per_token(arch, attention[i], tensor_parallel_size, kv_cache_dtype)) for i in layers]
        pages = tuple(settings.page_size * size for size in token)
        return KVGroup(arch.windows[0] if is_windowed else None, tuple(layers), pages)

    return WindowPool(
        window=arch.windows[0] - _OWN_POOL[arch.model_type],
        windowed=group(is_windowed=True),
        full=group(is_windowed=False),
        ratio=settings.swa_full_tokens_ratio,
        page_size=settings.page_size,
        draft_layers=0 if drafter is None else drafter.arch.num_hidden_layers,
    )


def refuse_windows(arch: Architecture, settings: PoolSettings) -> None:
    """Raise HeadcountError for windows that are not simulated as this model has them under SGLang."""
    if not arch.windows or min(arch.windows) >= arch.max_position_embeddings:
        return
    owners = {layer.attention.kv_owner for layer in arch.layers if layer.attention is not None}
    sizes = {cache_bytes_per_token(arch, layer.attention, 1, "auto") for layer in arch.layers if layer.attention}
    is_own = arch.model_type in _OWN_POOL and not settings.disable_hybrid_swa_memory
    if owners != {None}:
        why = "sliding windows and layers that read another layer's cache"
    elif arch.model_type not in _OWN_POOL and arch.model_type not in _ONE_POOL:
        why = "these sliding windows"
    elif is_own and len(set(arch.windows)) > 1:
        why = "sliding windows of several sizes"
    elif not is_own and len(sizes) > 1:
        why = "sliding windows and unequal layers in one pool"
    elif is_own and None not in {layer.attention.window for layer in arch.layers if layer.attention}:
        why = "sliding windows alone"
    elif is_own and settings.disable_radix_cache:
        raise HeadcountError(
            f"without the radix cache, SGLang may size the pool of {arch.name}'s sliding windows by the requests that "
            "run, which is not modelled; leave --disable-radix-cache out"
        )
    else:
        return
    raise HeadcountError(
        f"SGLang's KV cache of models with {why}, such as {arch.name}, is not simulated; leave --engine sglang out to "
        "ask about vLLM, or choose another model"
    )
