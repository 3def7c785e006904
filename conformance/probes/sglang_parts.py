"""Parts of SGLang's engine that run without a GPU: its settings, its pools, its radix tree.

Imported by probes, which an interpreter with SGLang runs.
"""

from array import array
from unittest.mock import MagicMock

import torch
from sglang.srt.mem_cache.allocator.mamba import MambaSlotAllocator
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_swa_memory_pool import BaseSWAKVPool
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import HybridReqToTokenPool, ReqToTokenPool
from sglang.srt.mem_cache.unified_cache.components import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.runtime_context import get_context

BITS_OF_POSITION = 24


def token_at(content, position):
    """A token id that depends on its content and position alone."""
    return (content << BITS_OF_POSITION) + position


def tokens_of(spans, num_tokens, start=0):
    """Positions [start, num_tokens) of a sequence, as SGLang holds token ids."""
    tokens, begin = array("q"), 0
    for content, end in spans:
        first, last = max(begin, start), min(end, num_tokens)
        tokens.extend(range(token_at(content, first), token_at(content, max(first, last))))
        begin = end
    return tokens


def settings(**given):
    """Publishes a case's settings as SGLang's own; `restore()` ends it."""
    override = get_context().override_server_args(device="cpu", **given)
    override.install()
    return override


class NoCaches(BaseSWAKVPool):
    """Of layers with and without windows, where nothing is stored: which place there stands for which is known."""

    full_kv_pool = swa_kv_pool = MagicMock()

    def __init__(self):
        pass

    def register_mapping(self, full_to_swa_index_mapping):
        self.full_to_swa_index_mapping = full_to_swa_index_mapping

    def translate_loc_from_full_to_swa(self, kv_indices):
        return self.full_to_swa_index_mapping[kv_indices]


NoCaches.__abstractmethods__ = frozenset()  # what else a KV cache does, nobody asks for


class NoStates(HybridReqToTokenPool):
    """Rows of requests with slots for states, where nothing is stored: which slot whose is, is known."""

    def _init_mamba_pool(self, mamba_size, device, enable_mamba_extra_buffer, **_):
        self.mamba_pool = MagicMock(replayssm_write_pos=None, replayssm_spec_write_pos=None, size=mamba_size)
        self.mamba_allocator = MambaSlotAllocator(size=mamba_size, device=device)
        self.mamba_ckpt_pool, self.device = None, device
        num_rows = self.req_to_token.shape[0]
        self.req_index_to_mamba_index_mapping = torch.zeros(num_rows, dtype=torch.int32)
        if enable_mamba_extra_buffer:
            self.req_index_to_mamba_ping_pong_track_buffer_mapping = torch.zeros(
                (num_rows, self.mamba_ping_pong_track_buffer_size), dtype=torch.int64
            )


def has_tracked_states(engine):
    """Whether states are tracked for the tree beside those that requests go on from."""
    return engine["mamba_radix_cache_strategy"] == "extra_buffer" and not engine["disable_radix_cache"]


def make_allocator(num_tokens, page_size, window_tokens=None):
    """SGLang's own, without a KV cache behind it; `window_tokens`: of a pool of windows beside it."""
    if window_tokens is not None:
        return SWATokenToKVPoolAllocator(num_tokens, window_tokens, page_size, torch.bfloat16, "cpu", NoCaches(), False)
    if page_size == 1:
        return TokenToKVPoolAllocator(num_tokens, torch.bfloat16, "cpu", MagicMock(), False)
    return PagedTokenToKVPoolAllocator(num_tokens, page_size, torch.bfloat16, "cpu", MagicMock(), False)


def make_tree(engine, allocator, rows, tree_core=None):
    """SGLang's radix tree over these pools."""
    config = None
    if engine["radix_eviction_policy"] == "tlru":
        config = {name: engine[name] for name in ("threshold", "next_prompt_estimate")}
    return UnifiedRadixCache(
        CacheInitParams(
            disable=engine["disable_radix_cache"],
            req_to_token_pool=rows,
            token_to_kv_pool_allocator=allocator,
            page_size=engine["page_size"],
            eviction_policy=engine["radix_eviction_policy"],
            eviction_policy_config=config,
            sliding_window_size=engine.get("sliding_window_size"),
            is_eagle=bool(engine.get("speculation")) and engine["speculation"]["method"] == "eagle",
            enable_mamba_extra_buffer=bool(engine.get("max_mamba_cache_size")) and has_tracked_states(engine),
            tree_components=(
                ComponentType.FULL,
                *[ComponentType.SWA] * bool(engine.get("sliding_window_size")),
                *[ComponentType.MAMBA] * bool(engine.get("max_mamba_cache_size")),
            ),
            tree_core_backend=tree_core,
        )
    )


def make_rows(num_rows, max_tokens, engine=None):
    """SGLang's table of which slots each running request has, with those for states if the engine has some."""
    if engine is None or not engine["max_mamba_cache_size"]:
        return ReqToTokenPool(num_rows, max_tokens, "cpu", False)
    return NoStates(
        size=num_rows,
        mamba_size=engine["max_mamba_cache_size"],
        mamba_spec_state_size=num_rows,
        max_context_len=max_tokens,
        device="cpu",
        enable_memory_saver=False,
        cache_params=None,
        mamba_layer_ids=[],
        enable_mamba_extra_buffer=has_tracked_states(engine),
        enable_overlap_schedule=not engine["disable_overlap_schedule"],
    )
