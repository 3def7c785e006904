"""Layers of a case, made of vLLM's own classes without their weights, and the cache specs that they give."""

import re
from types import SimpleNamespace

import torch
from gpu_stand_ins import PLATFORM, Kernels, LatentKernels, without_kernels
from vllm.config import CacheConfig, VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.attention.attention import Attention
from vllm.model_executor.layers.attention.chunked_local_attention import ChunkedLocalAttention
from vllm.model_executor.layers.attention.mla_attention import MLAAttention
from vllm.model_executor.layers.mamba.abstract import MambaBase
from vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn import QwenGatedDeltaNetAttention
from vllm.model_executor.layers.mamba.linear.base import LinearAttention
from vllm.model_executor.layers.mamba.mamba_mixer2 import MambaMixer2
from vllm.model_executor.layers.mamba.mamba_utils import MambaStateDtypeCalculator, MambaStateShapeCalculator
from vllm.model_executor.models import ModelRegistry
from vllm.model_executor.models.config import MambaModelConfig
from vllm.model_executor.models.deepseek_v2 import DeepseekV32IndexerCache
from vllm.platforms.interface import Platform
from vllm.utils.torch_utils import (
    STR_DTYPE_TO_TORCH_DTYPE,
    kv_cache_dtype_str_to_dtype,
)
from vllm.v1.attention.backend import AttentionType
from vllm.v1.attention.backends.mla.indexer import DeepseekV32IndexerBackend
from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec

NUM_LAYERS = [0]


def make(layer_class, **fields):
    """A layer without its weights: what its class says of its cache needs these fields alone."""
    layer = layer_class.__new__(layer_class)
    layer.__dict__.update(fields)
    return layer


def state_shapes(state, tp, spec):
    """The shapes that vLLM's model of this kind gives its states."""
    kind, calculator = state["kind"], MambaStateShapeCalculator
    if kind == "mamba1":
        return calculator.mamba1_state_shape(
            tp_world_size=tp,
            intermediate_size=state["intermediate_size"],
            state_size=state["state_size"],
            conv_kernel=state["conv_kernel"],
        )
    if kind == "mamba2":
        return calculator.mamba2_state_shape(
            tp_world_size=tp,
            intermediate_size=state["intermediate_size"] or state["num_heads"] * state["head_dim"],
            n_groups=state["num_groups"],
            num_heads=state["num_heads"],
            head_dim=state["head_dim"],
            state_size=state["state_size"],
            conv_kernel=state["conv_kernel"],
            num_spec=spec,
        )
    if kind == "gated_delta_net":
        return calculator.gated_delta_net_state_shape(
            tp,
            state["num_key_heads"],
            state["num_heads"],
            state["key_head_dim"],
            state["head_dim"],
            state["conv_kernel"],
            spec,
        )
    if kind == "kimi_delta":
        return calculator.kda_state_shape(
            tp, state["num_heads"], state["head_dim"], conv_kernel_size=state["conv_kernel"], num_spec=spec
        )
    if kind == "lightning":
        return calculator.linear_attention_state_shape(
            num_heads=state["num_heads"], tp_size=tp, head_dim=state["head_dim"]
        )
    return calculator.short_conv_state_shape(
        tp_world_size=tp, intermediate_size=state["intermediate_size"], conv_kernel=state["conv_kernel"], num_spec=spec
    )


def state_dtypes(state, dtype):
    """The dtypes beside them."""
    kind, calculator = state["kind"], MambaStateDtypeCalculator
    if kind == "kimi_delta":
        return calculator.kda_state_dtype(dtype, "auto", state["state_dtype"])
    if kind == "lightning":
        return calculator.linear_attention_state_dtype(dtype, "auto")
    if kind == "short_conv":
        return calculator.short_conv_state_dtype(dtype, "auto")
    return getattr(calculator, f"{kind}_state_dtype")(dtype, "auto", state["state_dtype"])


def class_of(state):
    """vLLM's layer of this kind, where it has its own word on its cache."""
    if state["kind"] == "kimi_delta" and state["full_rank_decay"]:
        return without_kernels("vllm.model_executor.models.bailing_moe_v3").BailingMoeV3KimiDeltaAttention
    if state["kind"] == "kimi_delta" and state["full_rank_gate"]:
        return without_kernels("vllm.models.kimi_k3.nvidia.kda").KimiK3DeltaAttention
    if state["kind"] == "lightning":
        return LinearAttention
    return {"mamba2": MambaMixer2, "gated_delta_net": QwenGatedDeltaNetAttention}.get(state["kind"], MambaBase)


def state_class(state):
    """The same, without what it computes."""

    class StateLayer(class_of(state)):
        mamba_type = is_kv_cache_tp_replicated = None

        def get_state_shape(self):
            return self.shapes

        def get_state_dtype(self):
            return self.dtypes

        def get_attn_backend(self):
            return StateKernels

    StateLayer.__abstractmethods__ = frozenset()
    return StateLayer


class StateKernels(Kernels):
    """Of state layers: left out where block sizes are chosen."""

    @classmethod
    def is_ssm(cls):
        return True


def attention_layer(layer, case, dtype):
    """One attention layer with its shape on a rank."""
    cache_dtype = case["kv_cache_dtype"]
    fields = {
        "kv_cache_dtype": cache_dtype,
        "kv_cache_torch_dtype": kv_cache_dtype_str_to_dtype(cache_dtype, SimpleNamespace(dtype=dtype)),
        "sliding_window": layer["window"] if not layer["chunked"] else None,
        "kv_sharing_target_layer_name": None if layer["shared_with"] is None else f"layers.{layer['shared_with']}.attn",
    }
    if layer["latent"]:
        return make(
            MLAAttention,
            head_size=layer["head_size"],
            indexer=layer["indexer"],
            topk_buffer_width=layer["topk"],
            non_causal_multi_token_decode=False,
            attn_backend=LatentKernels,
            **fields,
        )
    fields |= {
        "attn_backend": Kernels,
        "attn_type": AttentionType.DECODER,
        "num_kv_heads": max(1, layer["num_kv_heads"] // case["tensor_parallel_size"]),
        "head_size": layer["head_size"],
        "head_size_v": layer["head_size"],
    }
    if layer["chunked"]:
        return make(ChunkedLocalAttention, attention_chunk_size=layer["window"], **fields)
    return make(Attention, **fields)


class IndexerKernels(LatentKernels):
    """Those of an indexer, whose cache is as its own layer says."""

    @classmethod
    def customize_spec(cls, spec):
        return DeepseekV32IndexerBackend.customize_spec(spec)


def indexer_cache(indexer, config):
    """The keys of an indexer, in the width that vLLM's DeepseekV32Indexer or MiniMaxM3Indexer gives them."""
    width, dtype, base = indexer["head_dim"], torch.bfloat16, DeepseekV32IndexerCache
    if indexer["chooses_blocks"]:
        base = without_kernels("vllm.models.minimax_m3.common.indexer").MiniMaxM3IndexerCache
    else:
        width, dtype = width + width // 128 * 4, torch.uint8

    class Cache(base):
        def get_attn_backend(self):
            return IndexerKernels

    return make(Cache, head_dim=width, dtype=dtype, cache_config=config.cache_config)


def compressed_layers(number, attention, config):
    """The caches of a layer of DeepSeek-V4, in the order in which vLLM's DeepseekV4Attention makes them."""
    model = without_kernels("vllm.models.deepseek_v4.attention")
    sums = without_kernels("vllm.models.deepseek_v4.compressor").CompressorStateCache
    window = without_kernels("vllm.v1.attention.backends.mla.sparse_swa").DeepseekV4SWACache
    name, ratio, width = f"layers.{number}.attn", attention["compressed"]["ratio"], attention["head_size"]
    config.cache_config.cache_dtype = "fp8_ds_mla"
    entries = (2 if ratio == 4 else 1) * 2  # values with weights, of the entries that a token is in
    with set_current_vllm_config(config):
        if attention["indexer"]:
            keys = attention["indexer"]["head_dim"]
            yield (
                f"{name}.indexer.k_cache",
                model.DeepseekV4IndexerCache(
                    head_dim=keys + keys // 128 * 4,
                    dtype=torch.uint8,
                    prefix=f"{name}.indexer.k_cache",
                    cache_config=config.cache_config,
                    compress_ratio=ratio,
                ),
            )
            part = f"{name}.indexer.compressor.state_cache"
            yield part, sums(state_dim=entries * keys, dtype=torch.float32, compress_ratio=ratio, prefix=part)
        part = f"{name}.swa_cache"
        yield (
            part,
            window(
                head_dim=width,
                window_size=attention["window"],
                dtype=torch.uint8,
                prefix=part,
                cache_config=config.cache_config,
            ),
        )
        if ratio:
            fields = {"compress_ratio": ratio, "head_dim": width, "kv_cache_dtype": "fp8_ds_mla"}
            yield name, make_compressed(model.DeepseekV4Attention, fields)
            part = f"{name}.compressor.state_cache"
            yield part, sums(state_dim=entries * width, dtype=torch.float32, compress_ratio=ratio, prefix=part)


def make_compressed(base, fields):
    """vLLM's layer without what it computes."""

    class Layer(base):
        pass

    Layer.__abstractmethods__ = frozenset()
    return make(Layer, **fields, backend_cls=LatentKernels)


class Configured(SimpleNamespace):
    """As much of a VllmConfig as the cache asks for; how many tokens are in flight is vLLM's own word."""

    use_v2_model_runner = True  # as on a GPU
    max_concurrent_batches = VllmConfig.max_concurrent_batches
    max_in_flight_tokens = VllmConfig.max_in_flight_tokens


def configured(case):
    """A case's configuration, with its real CacheConfig."""
    first = next((layer for layer in case["layers"] if layer["attention"]), None)
    states = [layer for layer in case["layers"] if layer["state"]]
    tp, pp = case["tensor_parallel_size"], case["pipeline_parallel_size"]
    model = SimpleNamespace(
        max_model_len=case["max_model_len"],
        original_max_model_len=case["max_model_len"],
        dtype=STR_DTYPE_TO_TORCH_DTYPE[case["dtype"]],
        is_hybrid=bool(states and first),
        use_mla=bool(first and first["attention"]["latent"]),
        architecture="model",
        supports_kv_cache_grouping=False,
        get_num_kv_heads=lambda _: max(1, first["attention"]["num_kv_heads"] // tp),
        get_head_size=lambda: first["attention"]["head_size"],
    )
    cache = CacheConfig(
        block_size=case["block_size"],
        cache_dtype=case["kv_cache_dtype"],
        enable_prefix_caching=case["enable_prefix_caching"] and (bool(first) or not states),
        num_gpu_blocks_override=case["num_gpu_blocks_override"],
    )
    config = Configured(
        model_config=model,
        cache_config=cache,
        parallel_config=SimpleNamespace(
            tensor_parallel_size=tp,
            pipeline_parallel_size=pp,
            decode_context_parallel_size=case["decode_context_parallel_size"],
        ),
        scheduler_config=SimpleNamespace(
            disable_hybrid_kv_cache_manager=False,
            enable_chunked_prefill=True,
            async_scheduling=case["async_scheduling"],
            max_num_batched_tokens=case["max_num_batched_tokens"],
        ),
        attention_config=SimpleNamespace(hisparse_config=None),
        compilation_config=SimpleNamespace(static_forward_context={}),
        speculative_config=None,
        kv_transfer_config=None,
        num_prefill_lookahead_tokens=0,
        num_speculative_tokens=case["num_speculative_tokens"],
    )
    if states:
        MambaModelConfig.verify_and_update_config(config)
    return config


def layers_of(case, config):
    """Every layer by its name, in order."""
    tp, spec, dtype = case["tensor_parallel_size"], case["num_speculative_tokens"], config.model_config.dtype
    found = {}
    for number, layer in enumerate(case["layers"]):
        if layer["attention"] and layer["attention"]["compressed"]:
            found |= dict(compressed_layers(number, layer["attention"], config))
            continue
        if layer["attention"] and layer["attention"]["indexer"]:
            found[f"layers.{number}.indexer"] = indexer_cache(layer["attention"]["indexer"], config)
        if layer["attention"]:
            found[f"layers.{number}.attn"] = attention_layer(layer["attention"], case, dtype)
        if layer["state"]:
            state = layer["state"]
            found[f"layers.{number}.mixer"] = make(
                state_class(state),
                shapes=state_shapes(state, tp, spec),
                dtypes=state_dtypes(state, dtype),
                vllm_config=config,
                _checkpoint_alignment=case["checkpoint_alignment"]
                if config.cache_config.mamba_cache_mode == "align"
                else None,
                kda_prefill_backend="flashkda" if case["checkpoint_alignment"] else "triton",
            )
    return found


def align_blocks(case, config):
    """vLLM's choice of block sizes, which asks the model's class for its states."""
    state = next((layer["state"] for layer in case["layers"] if layer["state"]), None)
    tp, spec, dtype = case["tensor_parallel_size"], case["num_speculative_tokens"], config.model_config.dtype

    class Model:
        @classmethod
        def get_mamba_state_shape_from_config(cls, _):
            return state_shapes(state, tp, spec)

        @classmethod
        def get_mamba_state_dtype_from_config(cls, _):
            return state_dtypes(state, dtype)

    real, ModelRegistry.resolve_model_cls = ModelRegistry.resolve_model_cls, lambda *_, **__: (Model, "model")
    try:
        with set_current_vllm_config(None):
            Platform.update_block_size_for_backend.__func__(PLATFORM, config)
    finally:
        ModelRegistry.resolve_model_cls = real


def lay_out_layers(case):
    """The layout of a case of layers."""
    config = configured(case)
    layers = layers_of(case, config)
    config.compilation_config.static_forward_context = layers
    align_blocks(case, config)
    ends = [*case["stage_starts"][1:], len(case["layers"])]
    specs = []
    for start, end in zip(case["stage_starts"], ends, strict=True):
        held = {name: layer for name, layer in layers.items() if start <= number_of(name) < end}
        config.compilation_config.static_forward_context = held
        specs.append(get_kv_cache_spec(config))
    return config, specs


def number_of(name):
    """The layer that a name belongs to: `model.layers.3.self_attn.attn`, `transformer.h.3.attn`.

    Falcon-H1 counts its states on from its last layer.
    """
    return int(re.search(r"\.(\d+)\.", name).group(1)) % NUM_LAYERS[0]
