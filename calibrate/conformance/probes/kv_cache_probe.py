"""Says how a real vLLM cuts up the KV cache of given models; run by an interpreter that has it, without a GPU.

usage: python kv_cache_probe.py CASES.jsonl > LAYOUTS.jsonl

Each line of the input is a case; a line comes out for each, with `refused` and the reason where vLLM takes it not:
`{"name", "vllm_version", "block_size", "mamba_cache_mode", "page_size_bytes", "groups", "num_blocks",
"max_concurrency", "kv_cache_tokens"}`; a group is `{"layers", "kind", "window", "block_size", "blocks_per_request"}`.

A case with `layers` has one description per layer: vLLM's own attention and Mamba classes give their cache specs for
it, its platform code aligns block sizes, its core makes groups. A case with `config`, as in `config.json`, has vLLM
build the whole model on torch's meta device first. Ranks of a split model are played one after another; the kernels'
block sizes come with the case, since no kernel can be asked without a GPU.

A case with `quantization_config`, `latent` and the asked `kv_cache_dtype` is answered by the one that vLLM runs.
"""

import importlib
import json
import os
import re
import sys
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
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from vllm.config import CacheConfig, VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.attention.attention import Attention
from vllm.model_executor.layers.attention.chunked_local_attention import ChunkedLocalAttention
from vllm.model_executor.layers.attention.mla_attention import MLAAttention, MLACommonBackend
from vllm.model_executor.layers.fused_moe import unquantized_fused_moe_method as experts
from vllm.model_executor.layers.mamba.abstract import MambaBase
from vllm.model_executor.layers.mamba.mamba_mixer2 import MambaMixer2
from vllm.model_executor.layers.mamba.mamba_utils import MambaStateDtypeCalculator, MambaStateShapeCalculator
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import CompressedTensorsConfig
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.model_executor.models import ModelRegistry
from vllm.model_executor.models.config import MambaModelConfig
from vllm.platforms import current_platform
from vllm.platforms.interface import Platform
from vllm.utils.torch_utils import (
    STR_DTYPE_TO_TORCH_DTYPE,
    kv_cache_dtype_str_to_dtype,
    resolve_kv_cache_dtype_string,
)
from vllm.v1.attention.backend import AttentionBackend, AttentionMetadataBuilder, AttentionType, MultipleOf
from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend
from vllm.v1.attention.backends.utils import get_supported_kv_cache_layouts, resolve_kv_cache_layout
from vllm.v1.core.kv_cache_utils import (
    generate_scheduler_kv_cache_config,
    get_kv_cache_capacity,
    get_kv_cache_configs,
)
from vllm.v1.kv_cache_interface import ChunkedLocalAttentionSpec, MambaSpec
from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec

PLATFORM = type(current_platform)


def without_kernels(module):
    """A module of vLLM that imports GPU libraries which are not here: stubs stand for them while it is imported."""
    stubs = []
    while True:
        try:
            found = importlib.import_module(module)
            break
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith(("flashinfer", "cutlass", "cuda")):
                raise
            sys.modules[error.name] = MagicMock()
            stubs.append(error.name)
    for name in stubs:
        del sys.modules[name]
    return found


FLASHINFER = without_kernels("vllm.v1.attention.backends.flashinfer").FlashInferBackend


class Kernels(AttentionBackend):
    """Stands for the attention kernels of a GPU; a case sets their block sizes."""

    sizes = (MultipleOf(16),)
    supported_kv_cache_dtypes = ()
    supported_dtypes = (torch.float16, torch.bfloat16, torch.float32)
    forward_includes_kv_cache_update = False
    accept_output_buffer = True

    @classmethod
    def get_supported_kernel_block_sizes(cls, kv_cache_spec=None):
        return list(cls.sizes)

    @classmethod
    def customize_spec(cls, spec):
        return FLASHINFER.customize_spec(TritonAttentionBackend.customize_spec(spec))

    @staticmethod
    def get_name():
        return "CPU_ATTN"

    @staticmethod
    def get_impl_cls():
        return Implementation

    @staticmethod
    def get_builder_cls():
        return AttentionMetadataBuilder


class LatentKernels(Kernels):
    """The same for latent attention."""

    @classmethod
    def customize_spec(cls, spec):
        return MLACommonBackend.customize_spec(spec)

    @classmethod
    def is_mla(cls):
        return True


class Implementation:
    """What an attention layer makes of its backend, never run."""

    supports_pcp = supports_dcp = True
    dcp_world_size = pcp_world_size = 1

    def __init__(self, num_heads=0, head_size=0, *_, **__):
        self.num_heads, self.head_size = num_heads, head_size

    def __getattr__(self, name):
        return self.__dict__.get(name)


class Rank:
    """One process of a group of them, as far as layers ask when they are built."""

    def __init__(self, size, rank=0):
        self.world_size, self.rank_in_group, self.rank, self.local_rank = size, rank, rank, rank
        self.ranks, self.first_rank, self.last_rank = list(range(size)), 0, size - 1
        self.is_first_rank, self.is_last_rank = rank == 0, rank == size - 1
        self.device_group = self.cpu_group = self
        self.device_communicator = None
        self.device, self.unique_name, self.use_device_communicator = torch.device("cpu"), "one", False

    def size(self):
        return self.world_size


def play_rank(tp, pp=1, stage=0):
    """Make this process a rank of a split model."""
    parallel_state._TP, parallel_state._PP = Rank(tp), Rank(pp, stage)
    parallel_state._WORLD = Rank(tp * pp)
    for name in ("_DP", "_EP", "_DCP", "_PCP", "_EPLB"):
        if hasattr(parallel_state, name):
            setattr(parallel_state, name, Rank(1))


NUM_LAYERS = [0]


def set_kernels(case):
    """The block sizes of the case's backend."""
    Kernels.sizes = [MultipleOf(size) if case["multiples"] else size for size in case["kernel_block_sizes"]]


# A case of layers -------------------------------------------------------------------------------------------------


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
    return calculator.short_conv_state_shape(
        tp_world_size=tp, intermediate_size=state["intermediate_size"], conv_kernel=state["conv_kernel"], num_spec=spec
    )


def state_dtypes(state, dtype):
    """The dtypes beside them."""
    kind, calculator = state["kind"], MambaStateDtypeCalculator
    if kind == "kimi_delta":
        return calculator.kda_state_dtype(dtype, "auto")
    if kind == "short_conv":
        return calculator.short_conv_state_dtype(dtype, "auto")
    return getattr(calculator, f"{kind}_state_dtype")(dtype, "auto", state["state_dtype"])


def state_class(state):
    """vLLM's layer of this kind: only Mamba 2 has its own word on its cache."""

    class StateLayer(MambaMixer2 if state["kind"] == "mamba2" else MambaBase):
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
            indexer=None,
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
            tensor_parallel_size=tp, pipeline_parallel_size=pp, decode_context_parallel_size=1
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
        if layer["attention"]:
            found[f"layers.{number}.attn"] = attention_layer(layer["attention"], case, dtype)
        if layer["state"]:
            state = layer["state"]
            found[f"layers.{number}.mixer"] = make(
                state_class(state), shapes=state_shapes(state, tp, spec), dtypes=state_dtypes(state, dtype)
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


# A case of a whole model ------------------------------------------------------------------------------------------

_CONFIGS = {}
RUNS_V2 = VllmConfig.use_v2_model_runner
# What vLLM wants to read and its cache does not depend on.
TEXT_MODELS = {"qwen2_5_vl": "qwen2", "qwen3_vl_text": "qwen3", "qwen3_vl_moe_text": "qwen3_moe"}  # as vLLM's classes
ASSUMED = {"minimax_m2": {"rotary_dim": 64, "scoring_func": "sigmoid"}}


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
    known = {**MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, "kimi_k2": "DeepseekV3ForCausalLM"}
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
        if stage == 0:
            Platform.update_block_size_for_backend.__func__(PLATFORM, config)
        specs.append(get_kv_cache_spec(config))
    return config, specs


def as_on_a_gpu():
    """Leave out what vLLM sets for a CPU."""
    PLATFORM.check_and_update_config = classmethod(lambda *_: None)
    PLATFORM.get_attn_backend_cls = classmethod(kernels_of)
    experts.select_unquantized_moe_backend = lambda **_: (experts.UnquantizedMoeBackend.OOT, None)
    item = torch.Tensor.item
    torch.Tensor.item = lambda tensor: 0.0 if tensor.is_meta else item(tensor)  # Gemma 3n reads constants back


def kernels_of(_, __, attn_selector_config, **___):
    """Where vLLM finds the backend of an attention layer."""
    kernels = LatentKernels if attn_selector_config.use_mla else Kernels
    return f"kv_cache_probe.{kernels.__name__}"


# Both -------------------------------------------------------------------------------------------------------------


def number_of(name):
    """The layer that a name belongs to: `model.layers.3.self_attn.attn`, `transformer.h.3.attn`.

    Falcon-H1 counts its states on from its last layer.
    """
    return int(re.search(r"\.(\d+)\.", name).group(1)) % NUM_LAYERS[0]


def group_json(group, config):
    """One group: what its layers keep, in blocks of how many tokens, how many of them a request may hold."""
    spec = group.kv_cache_spec
    kind = "attention"
    if isinstance(spec, MambaSpec):
        kind = "state"
    elif isinstance(spec, ChunkedLocalAttentionSpec):
        kind = "chunked"
    return {
        "layers": [number_of(name) for name in group.layer_names],
        "kind": kind,
        "window": getattr(spec, "attention_chunk_size", None) or getattr(spec, "sliding_window", None),
        "block_size": spec.block_size,
        "blocks_per_request": -(-spec.max_memory_usage_bytes(config) // spec.page_size_bytes),
    }


def measure(case):
    """One line of the output."""
    line = {"name": case["name"], "vllm_version": vllm.__version__}
    if "quantization_config" in case:
        return {**line, **resolved_dtype(case)}
    set_kernels(case)
    NUM_LAYERS[0] = case["num_layers"]
    try:
        config, specs = lay_out_layers(case) if "layers" in case else lay_out_model(case)
        layouts = get_supported_kv_cache_layouts([Kernels])
        resolve_kv_cache_layout(
            config,
            [[layout.name for layout in layouts]],
            [spec for stage in specs for spec in stage.values()],
        )
        configs = get_kv_cache_configs(config, specs, case["available_bytes"])
        scheduler = generate_scheduler_kv_cache_config(configs)
        tokens, concurrency = get_kv_cache_capacity(config, scheduler)
    except Exception as error:  # whatever stops vLLM is its answer to this case
        if os.environ.get("HEADCOUNT_PROBE_DEBUG"):
            raise
        return {**line, "refused": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    pages = {group.kv_cache_spec.page_size_bytes for group in scheduler.kv_cache_groups}
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
    found = [group_json(group, config) for group in configs[0].kv_cache_groups]
    for stage in configs[1:]:
        for group, more in zip(found, stage.kv_cache_groups, strict=True):
            group["layers"] += [number_of(name) for name in more.layer_names]
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


def main():
    as_on_a_gpu()
    with open(sys.argv[1], encoding="utf-8") as cases:
        for text in cases:
            print(json.dumps(measure(json.loads(text))), flush=True)


if __name__ == "__main__":
    sys.modules["kv_cache_probe"] = sys.modules["__main__"]
    main()
