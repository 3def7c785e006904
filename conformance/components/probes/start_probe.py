"""Whether a real vLLM's own configuration code starts a deployment; run by an interpreter that has it, without a GPU.

usage: python start_probe.py CASES.jsonl > ANSWERS.jsonl

Each case has a `config` (config.json), the server's `args` and a `gpu`: `{"title", "memory_bytes", "capability"}`. A
stand-in for vLLM's CUDA platform says that eight of them are there; what needs kernels is not run. `num_gpu_blocks`
and `available_bytes` are ours: vLLM then checks what it checks with those that it measured.

A line comes out for each: `{"name", "vllm_version", "refused"}`, the reason or null, and the settings it starts with.
"""

import importlib
import json
import os
import sys
import tempfile
from types import SimpleNamespace
from unittest.mock import MagicMock

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
import vllm
import vllm.model_executor.model_loader.weight_utils
import vllm.model_executor.models.registry
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)
from vllm.config import vllm as vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms import current_platform
from vllm.platforms.interface import DeviceCapability
from vllm.usage.usage_lib import UsageContext
from vllm.v1.attention.backend import AttentionCGSupport
from vllm.v1.core import kv_cache_planning
from vllm.v1.kv_cache_interface import FullAttentionSpec

for kernels in ("_C", "_C_stable_libtorch", "_moe_C", "_moe_C_stable_libtorch"):
    sys.modules[f"vllm.{kernels}"] = MagicMock()
GPUS = 8
CASE = {}  # the GPU that is played


class PlayedGPU(importlib.import_module("vllm.platforms.cuda").CudaPlatformBase):
    """The CUDA platform of a server with eight GPUs of the case's kind."""

    @classmethod
    def get_device_capability(cls, device_id=0):
        return DeviceCapability(*CASE["gpu"]["capability"])

    @classmethod
    def get_device_name(cls, device_id=0):
        return CASE["gpu"]["title"]

    @classmethod
    def get_device_total_memory(cls, device_id=0):
        return CASE["gpu"]["memory_bytes"]

    @classmethod
    def get_device_uuid(cls, device_id=0):
        return f"GPU-{device_id}"

    @classmethod
    def is_fully_connected(cls, physical_device_ids):
        return True

    @classmethod
    def device_count(cls):
        return GPUS

    @classmethod
    def log_warnings(cls):
        pass


for kernel in ("cutlass_scaled_mm_supports_fp8", "cutlass_scaled_mm_supports_block_fp8"):
    setattr(torch.ops._C, kernel, lambda capability: capability >= 89)
# Modules hold the platform since they were imported, on a CPU: the object becomes another one.
object.__setattr__(current_platform, "__class__", PlayedGPU)
vllm_config.HAS_TRITON = True  # as on a GPU


def started(case, folder):
    """The configuration that the server would run with. Raises what vLLM raises."""
    config = EngineArgs(
        model=folder, skip_tokenizer_init=True, load_format="dummy", **case["args"]
    ).create_engine_config(UsageContext.OPENAI_API_SERVER)
    current_platform.check_if_supports_dtype(config.model_config.dtype)
    check_quantization(config)
    check_states(case, config)
    check_memory(case, config)
    return config


def check_quantization(config):
    """What vLLM checks where it is about to load weights."""
    vllm_config.VllmConfig._get_quantization_config(config.model_config, config.load_config)


def check_states(case, config):
    """What it checks before it captures graphs, with the blocks that it has."""
    blocks = SimpleNamespace(num_blocks=case["num_gpu_blocks"], has_mamba_layers=config.model_config.is_hybrid)
    config.compilation_config.resolve_cudagraph_mode_and_sizes(
        AttentionCGSupport.ALWAYS, None, 1, True, blocks, config.scheduler_config.max_num_seqs
    )


def check_memory(case, config):
    """What it checks once it knows its memory: one request of the longest context; of plain attention alone."""
    model, parallel = config.model_config, config.parallel_config
    if model.is_hybrid or case["available_bytes"] is None:
        return
    spec = FullAttentionSpec(
        block_size=config.cache_config.block_size,
        num_kv_heads=model.get_num_kv_heads(parallel),
        head_size=model.get_head_size(),
        dtype=model.dtype,
    )
    layers = model.get_num_layers(parallel)
    kv_cache_planning._check_enough_kv_cache_memory(
        case["available_bytes"],
        lambda: kv_cache_planning.max_memory_usage_bytes(config, [spec] * layers),
        model.max_model_len,
        lambda _: 0,
    )


def with_architecture(fields):
    """A config that names its class, as published ones do."""
    known = {**MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, **MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}
    return {"architectures": [known[fields["model_type"]]], **fields}


def answer(case):
    """One line of the output."""
    CASE.update(case)
    line = {"name": case["name"], "vllm_version": vllm.__version__, "refused": None}
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(with_architecture(case["config"]), file)
        try:
            config = started(case, folder)
        except (ValueError, NotImplementedError, AssertionError) as error:
            return {**line, "refused": " ".join(str(error).split())[:400]}
    scheduler = config.scheduler_config
    return {
        **line,
        "max_model_len": config.model_config.max_model_len,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "max_num_seqs": scheduler.max_num_seqs,
        "async_scheduling": bool(scheduler.async_scheduling),
        "enable_prefix_caching": bool(config.cache_config.enable_prefix_caching),
    }


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        for line in file:
            print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
