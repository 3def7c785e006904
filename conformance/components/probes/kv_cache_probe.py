"""Says how a real vLLM cuts up the KV cache of given models; run by an interpreter that has it, without a GPU.

usage: python kv_cache_probe.py CASES.jsonl > LAYOUTS.jsonl

Each line of the input is a case; a line comes out for each, with `refused` and the reason where vLLM takes it not:
`{"name", "vllm_version", "block_size", "mamba_cache_mode", "page_size_bytes", "groups", "num_blocks",
"max_concurrency", "kv_cache_tokens"}`; a group is `{"layers", "page_bytes", "kind", "window", "block_size",
"blocks_per_request"}`, with the layer of each of its caches, and what a block takes in it.

A case with `layers` has one description per layer: vLLM's own attention and Mamba classes give their cache specs for
it, its platform code aligns block sizes, its core makes groups. A case with `config`, as in `config.json`, has vLLM
build the whole model on torch's meta device first. Ranks of a split model are played one after another; the kernels'
block sizes come with the case, since no kernel can be asked without a GPU.

A case with `quantization_config`, `latent` and the asked `kv_cache_dtype` is answered by the one that vLLM runs.
"""

import json
import os
import tempfile
from types import SimpleNamespace
from unittest.mock import MagicMock

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")

import torch
import vllm
from each_case import print_each
from gpu_stand_ins import PLATFORM, Kernels, LatentKernels, as_on_a_gpu, play_rank, set_kernels, without_kernels
from made_layers import NUM_LAYERS, lay_out_layers, number_of
from published_configs import register_published
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from vllm.config import CacheConfig, VllmConfig, set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.attention.attention import Attention
from vllm.model_executor.layers.attention.mla_attention import MLAAttention
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import CompressedTensorsConfig
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.model_executor.models import ModelRegistry
from vllm.platforms.interface import Platform
from vllm.utils.torch_utils import resolve_kv_cache_dtype_string
from vllm.v1.attention.backends.mla.indexer import DeepseekV4IndexerBackend
from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend
from vllm.v1.attention.backends.utils import get_supported_kv_cache_layouts, resolve_kv_cache_layout
from vllm.v1.core.kv_cache_utils import generate_scheduler_kv_cache_config, get_kv_cache_capacity
from vllm.v1.kv_cache_interface import ChunkedLocalAttentionSpec, MambaSpec
from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec

try:
    from vllm.v1.core.kv_cache_planning import get_global_kv_cache_groups, get_kv_cache_configs
except ImportError:  # releases before 0.33 make the groups on the way
    from vllm.v1.core.kv_cache_utils import get_kv_cache_configs

    get_global_kv_cache_groups = None

_CONFIGS = {}
RUNS_V2 = VllmConfig.use_v2_model_runner
# What vLLM wants to read and its cache does not depend on.
TEXT_MODELS = {
    "qwen2_5_vl": "qwen2",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
    "glm4v_text": "glm4",
    "glm4v_moe_text": "glm4_moe",
}  # fmt: skip; as vLLM's classes
ASSUMED = {
    "minimax_m2": {"rotary_dim": 64, "scoring_func": "sigmoid"},
    "afmoe": {"score_func": "sigmoid", "route_norm": True, "n_group": 1, "topk_group": 1},
    "hy_v3": {"route_norm": True},
    "step3p5": {
        "use_moe_router_bias": True, "need_fp32_gate": True, "norm_expert_weight": True,
        "moe_router_scaling_factor": 3.0,
    },
}  # fmt: skip


def engine_config(case):
    """vLLM's own VllmConfig for a config.json; the last one is kept, since ranks and lengths vary most."""
    names = ("config", "enable_prefix_caching", "kv_cache_dtype", "block_size", "max_model_len")
    key = json.dumps([case[name] for name in (*names, "max_num_batched_tokens")])
    VllmConfig.use_v2_model_runner = RUNS_V2
    if key not in _CONFIGS:
        _CONFIGS.clear()
        if case["config"]["model_type"] == "kimi_linear":
            register_kimi_linear()
        folder = tempfile.TemporaryDirectory()  # some models read it again when they are built
        with open(os.path.join(folder.name, "config.json"), "w") as file:
            json.dump(with_architecture(case["config"]), file)
        config = EngineArgs(
            model=folder.name,
            skip_tokenizer_init=True,
            load_format="dummy",
            runner="generate",
            block_size=case["block_size"],
            kv_cache_dtype=case["kv_cache_dtype"],
            enable_prefix_caching=case["enable_prefix_caching"],
            max_model_len=case["max_model_len"],
            max_num_batched_tokens=case["max_num_batched_tokens"],
            max_num_seqs=min(256, case["max_num_batched_tokens"]),
        ).create_engine_config()
        sizes = config.cache_config
        _CONFIGS[key] = config, folder, (sizes.block_size, sizes.mamba_block_size, sizes.mamba_page_size_padded)
    config, _, fresh = _CONFIGS[key]
    sizes = config.cache_config
    sizes.block_size, sizes.mamba_block_size, sizes.mamba_page_size_padded = fresh
    sizes.kv_cache_layout = None
    VllmConfig.use_v2_model_runner = True  # as on a GPU: it decides how many batches are in flight
    config.parallel_config.tensor_parallel_size = case["tensor_parallel_size"]
    config.parallel_config.pipeline_parallel_size = case["pipeline_parallel_size"]
    config.scheduler_config.async_scheduling = case["async_scheduling"]
    return config


def register_kimi_linear():
    """vLLM reads its file only where a GPU's libraries are."""
    without_kernels("vllm.model_executor.kernels.linear.cute_dsl.gemm_rs_ar")
    model = without_kernels("vllm.models.kimi_k3").KimiLinearForCausalLM
    ModelRegistry.register_model("KimiLinearForCausalLM", model)
    torch.cuda.Stream = torch.cuda.Event = MagicMock


def with_architecture(fields):
    """A config that names its class, as published ones do: transformers' causal model of its type."""
    # A checkpoint's weight format is of no account to its cache, and its quantization might want a GPU.
    fields = {key: value for key, value in fields.items() if key != "quantization_config"}
    fields["model_type"] = TEXT_MODELS.get(fields["model_type"], fields["model_type"])
    ling = "BailingMoeV3ForCausalLM" if fields.get("no_kda_lora") else "BailingMoeV2_5ForCausalLM"
    known = {
        **MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, "kimi_k2": "DeepseekV3ForCausalLM", "step3p5": "Step3p5ForCausalLM",
        "bailing_hybrid": ling,
    }  # fmt: skip
    return {**ASSUMED.get(fields["model_type"], {}), "architectures": [known[fields["model_type"]]], **fields}


def lay_out_model(case):
    """The layout of a model that vLLM builds."""
    config = engine_config(case)
    specs = []
    for stage in range(case["pipeline_parallel_size"]):
        play_rank(case["tensor_parallel_size"], case["pipeline_parallel_size"], stage)
        config.compilation_config.static_forward_context = {}
        with set_current_vllm_config(config), torch.device("meta"):
            torch.set_default_dtype(config.model_config.dtype)
            initialize_model(config)
        torch.set_default_dtype(torch.float32)
        choose_state_kernels(case, config)
        if stage == 0:
            Platform.update_block_size_for_backend.__func__(PLATFORM, config)
        specs.append(get_kv_cache_spec(config))
    return config, specs


def choose_state_kernels(case, config):
    """Give layers with states the prefill kernels of the case's GPU, which vLLM would have chosen there."""
    alignment = case["checkpoint_alignment"]
    for layer in config.compilation_config.static_forward_context.values():
        if hasattr(layer, "kda_prefill_backend"):
            layer.kda_prefill_backend = "flashkda" if alignment else "triton"
        if hasattr(layer, "_checkpoint_alignment") and config.cache_config.mamba_cache_mode == "align":
            layer._checkpoint_alignment = alignment


def specs_of(group):
    """The cache spec of each of a group's layers."""
    spec = group.kv_cache_spec
    own = getattr(spec, "kv_cache_specs", {})  # where their pages differ
    return [own.get(name, spec) for name in group.layer_names]


def group_json(group, config):
    """One group: what its layers keep, in blocks of how many tokens, how many of them a request may hold."""
    specs = specs_of(group)
    spec = specs[0] if specs else group.kv_cache_spec  # a stage may have none of its layers
    kind = "attention"
    if isinstance(spec, MambaSpec):
        kind = "state"
    elif isinstance(spec, ChunkedLocalAttentionSpec):
        kind = "chunked"
    return {
        "layers": [number_of(name) for name in group.layer_names],
        "page_bytes": [each.page_size_bytes for each in specs],
        "kind": kind,
        "window": getattr(spec, "attention_chunk_size", None) or getattr(spec, "sliding_window", None),
        "block_size": spec.block_size,
        "blocks_per_request": -(-spec.max_memory_usage_bytes(config) // spec.page_size_bytes),
    }


class PackedKernels(Kernels):
    """Of DeepSeek-V4's indexer, as vLLM says of them."""

    @classmethod
    def supported_kv_cache_layouts(cls):
        return DeepseekV4IndexerBackend.supported_kv_cache_layouts()


def measure(case):
    """One line of the output."""
    line = {"name": case["name"], "vllm_version": vllm.__version__}
    if "quantization_config" in case:
        return {**line, **resolved_dtype(case)}
    set_kernels(case)
    NUM_LAYERS[0] = case["num_layers"]
    try:
        config, specs = lay_out_layers(case) if "layers" in case else lay_out_model(case)
        is_packed = any(layer["attention"] and layer["attention"]["compressed"] for layer in case.get("layers", ()))
        layouts = get_supported_kv_cache_layouts([PackedKernels if is_packed else Kernels])
        resolve_kv_cache_layout(
            config,
            [[layout.name for layout in layouts]],
            [spec for stage in specs for spec in stage.values()],
        )
        groups = (get_global_kv_cache_groups(config, specs),) if get_global_kv_cache_groups else ()
        configs = get_kv_cache_configs(config, specs, case["available_bytes"], *groups)
        scheduler = generate_scheduler_kv_cache_config(configs)
        tokens, concurrency = get_kv_cache_capacity(config, scheduler)
    except Exception as error:  # whatever stops vLLM is its answer to this case
        if os.environ.get("HEADCOUNT_PROBE_DEBUG"):
            raise
        return {**line, "refused": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    groups = [group for stage in configs for group in stage.kv_cache_groups]
    pages = {spec.page_size_bytes for group in groups for spec in specs_of(group)}
    return {
        **line,
        "block_size": config.cache_config.block_size,
        "mamba_cache_mode": config.cache_config.mamba_cache_mode,
        "page_size_bytes": sorted(pages),
        "groups": merged(configs, config),
        "num_blocks": scheduler.num_blocks,
        "max_concurrency": concurrency,
        "kv_cache_tokens": tokens,
    }


def merged(configs, config):
    """The groups with the layers of all pipeline stages."""
    found = []
    for held in zip(*(stage.kv_cache_groups for stage in configs), strict=True):
        whole = group_json(max(held, key=lambda group: len(group.layer_names) > 0), config)
        whole["layers"] = [number_of(name) for part in held for name in part.layer_names]
        whole["page_bytes"] = [spec.page_size_bytes for part in held for spec in specs_of(part)]
        found.append(whole)
    return found


def resolved_dtype(case):
    """The KV-cache format that vLLM's own functions and attention layers run a checkpoint with."""
    quantization = case["quantization_config"]
    model = SimpleNamespace(hf_config=SimpleNamespace(quantization_config=quantization))
    try:
        cache = CacheConfig(cache_dtype=resolve_kv_cache_dtype_string(case["kv_cache_dtype"], model))
        if quantization["quant_method"] == "compressed-tensors":
            with set_current_vllm_config(VllmConfig(cache_config=cache)), torch.device("meta"):
                whole_layer(CompressedTensorsConfig.from_config(quantization), cache, is_latent=case["latent"])
    except (ValueError, NotImplementedError) as error:
        return {"refused": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    return {"kv_cache_dtype": cache.cache_dtype}


def whole_layer(quantization, cache, is_latent):
    """An attention layer of a quantized model, made as a model makes it."""
    shared = {"cache_config": cache, "quant_config": quantization, "prefix": "model.layers.0.self_attn.attn"}
    if not is_latent:
        return Attention(4, 64, 1.0, num_kv_heads=4, attn_backend=TritonAttentionBackend, **shared)
    widths = {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "q_lora_rank": None}
    backend = {"attn_backend": LatentKernels, "kv_b_proj": MagicMock(), "kv_lora_rank": 512}
    return MLAAttention(4, 1.0, **widths, **backend, **shared)


if __name__ == "__main__":
    register_published()
    as_on_a_gpu()
    print_each(measure)
