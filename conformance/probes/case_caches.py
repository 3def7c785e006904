"""The KV caches of a scheduler case in vLLM's own words."""

import os

import torch
from vllm.v1.core.kv_cache_utils import generate_scheduler_kv_cache_config
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)


def pool_of(engine, has_latent_attention, context_ranks):
    """What vLLM's scheduler reads of the caches: a group for each of the case's, with the blocks of one rank."""
    groups = []
    sizes = [size // context_ranks for size in engine["group_block_sizes"]]
    states = {}
    if engine["caches_states"]:
        states["mamba_cache_mode"] = "align"
    if engine["keeps_state_checkpoints"]:
        states |= {"num_prefill_checkpoint_blocks": 1, "prefill_checkpoint_alignment": 1}
    for number, (group, block_size) in enumerate(zip(engine["kv_groups"], sizes, strict=True)):
        shape = {"block_size": block_size, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
        if group["is_state"]:
            spec = MambaSpec(block_size=block_size, shapes=((1,),), dtypes=(torch.float32,), **states)
        elif group["window"] is None and group["page_bytes"]:  # caches of unequal sizes: an indexer's, latents
            shapes = ({**shape, "head_size": page // block_size, "dtype": torch.uint8} for page in group["page_bytes"])
            caches = {f"layer{place}": MLAAttentionSpec(**each) for place, each in enumerate(shapes)}
            spec = UniformTypeKVCacheSpecs.from_specs(caches)
        elif group["window"] is None:
            spec = MLAAttentionSpec(**shape) if has_latent_attention else FullAttentionSpec(**shape)
        elif group["chunked"]:
            spec = ChunkedLocalAttentionSpec(**shape, attention_chunk_size=group["window"])
        else:
            spec = SlidingWindowSpec(**shape, sliding_window=group["window"])
        groups.append(KVCacheGroupSpec([f"layer{number}"], spec))
    interval = engine["prefix_cache_retention_interval"]
    settings = {}
    if "prefix_cache_retention_interval" in KVCacheConfig.__dataclass_fields__:
        settings["prefix_cache_retention_interval"] = interval
    os.environ.pop("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", None)
    slides = any(group["window"] is not None and not group["chunked"] for group in engine["kv_groups"])
    if not settings and interval is not None and slides:  # releases before 0.30; they refuse it without a window
        os.environ["VLLM_PREFIX_CACHE_RETENTION_INTERVAL"] = str(interval)
    of_worker = KVCacheConfig(
        num_blocks=engine["num_gpu_blocks"], kv_cache_tensors=[], kv_cache_groups=groups, **settings
    )
    return generate_scheduler_kv_cache_config([of_worker])
