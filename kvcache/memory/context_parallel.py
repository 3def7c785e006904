"""Decode context parallelism: ranks that would hold copies of the same KV heads hold different tokens instead.

A block then has as many times more tokens, each rank every so manieth of them; its bytes stay the same. Sources:
vLLM 0.33 v1/core/kv_cache_utils.py (`resolve_dcp_kv_block_size`), config/model.py and config/parallel.py (what is
refused at start).
"""

from dataclasses import replace

from files.errors import HeadcountError
from kvcache.errors import SplitError
from kvcache.layout.kv_layout import KVLayout
from kvcache.memory.settings import MemorySettings
from kvcache.releases import CONTEXT_PARALLEL_HEADS, CONTEXT_PARALLEL_LATENTS
from kvcache.shape.architecture import Architecture

_OPTION = "decode_context_parallel_size"


def split_context(layout: KVLayout, arch: Architecture, settings: MemorySettings) -> KVLayout:
    """The layout whose blocks lie across the ranks of `decode_context_parallel_size`.

    Raises `SplitError` for ranks that vLLM refuses, `HeadcountError` for what is not simulated so.
    """
    ranks = settings.decode_context_parallel_size
    if ranks == 1:
        return layout
    _check_release(arch, settings)
    _check_ranks(arch, settings)
    _check_alone(layout, settings)
    return spread(layout, ranks)


def spread(layout: KVLayout, ranks: int) -> KVLayout:
    """A layout of one group, each of whose blocks has the tokens of so many ranks."""
    return replace(layout, block_size=ranks * layout.block_size, bytes_per_token=-(-layout.bytes_per_token // ranks))


def _check_release(arch: Architecture, settings: MemorySettings) -> None:
    rule = CONTEXT_PARALLEL_LATENTS if arch.is_mla else CONTEXT_PARALLEL_HEADS
    if not rule.holds_in(settings.vllm_version):
        raise HeadcountError(
            f"{_OPTION}: vLLM has it for a model like {arch.name} from {rule.since} on; leave it out, or give a later "
            "--vllm-version"
        )


def _check_ranks(arch: Architecture, settings: MemorySettings) -> None:
    ranks, tp = settings.decode_context_parallel_size, settings.tensor_parallel_size
    if tp % ranks:
        raise SplitError(f"{_OPTION} {ranks} does not divide tensor_parallel_size {tp}; vLLM refuses that")
    if arch.is_mla:
        return
    attention, copies = arch.attention, tp // arch.num_key_value_heads
    queries = attention.num_heads // attention.num_kv_heads if attention else 1
    if ranks > copies or queries % ranks:
        fitting = [str(size) for size in range(2, copies + 1) if tp % size == 0 and queries % size == 0]
        take = f"take {' or '.join(fitting)}" if fitting else "leave it out, or raise tensor_parallel_size"
        held = f"is on {copies} ranks" if copies > 1 else "is on one rank alone"
        raise SplitError(
            f"{_OPTION} {ranks}: with tensor_parallel_size {tp}, each of the {arch.num_key_value_heads} KV heads "
            f"{held}, for {queries} query heads; {take}"
        )


def _check_alone(layout: KVLayout, settings: MemorySettings) -> None:
    """Refuse what lays blocks out otherwise, or copies them elsewhere."""
    (first, *others) = layout.groups
    if others or first.window is not None or first.is_state or layout.compresses or len(set(first.page_bytes)) > 1:
        raise HeadcountError(
            f"{_OPTION} is simulated for models whose layers all attend to the whole context, with one cache each; "
            "leave it out"
        )
    outside = settings.kv_offloading_size, settings.kv_store_size, settings.lmcache
    if settings.speculation is not None or any(given is not None for given in outside):
        raise HeadcountError(
            f"{_OPTION} is not simulated with speculative decoding or KV outside the GPUs; leave one of them out"
        )
