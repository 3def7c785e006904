"""What SGLang's own code makes of a server's arguments, for any model on any GPU.

Run by an interpreter that has SGLang. The whole of its resolution runs (`ServerArgs.resolve_once`), with a GPU that is
not there.
"""

import json
import logging
import os
import sys
import tempfile
from types import SimpleNamespace

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import sglang
import torch
from sglang.srt.arg_groups import memory_hook
from sglang.srt.arg_groups.model_override_base import resolved_view
from sglang.srt.mem_cache import kv_cache_configurator
from sglang.srt.model_executor import cuda_graph_config
from sglang.srt.runtime_context import override_platform
from sglang.srt.server_args import ServerArgs
from transformers import AutoConfig, PretrainedConfig
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

OWN = {  # classes that checkpoints name and transformers lacks
    "bailing_hybrid": "BailingMoeV2_5ForCausalLM",
    "deepseek_v32": "DeepseekV32ForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "kimi_k25": "KimiK25ForConditionalGeneration",
    "kimi_k3": "KimiK3ForConditionalGeneration",
    "kimi_linear": "KimiLinearForCausalLM",
    "kimi_vl": "KimiVLForConditionalGeneration",
    "mimo_v2": "MiMoV2ForCausalLM",
    "minimax_m3": "MiniMaxM3SparseForConditionalGeneration",
    "step3p5": "Step3p5ForCausalLM",
}
TEXT, SEEING = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
UNREADABLE = ("does not recognize this architecture", "has no attribute 'startswith'", "is not subscriptable",
              "hidden_activation", "per-layer attribute")  # fmt: skip


class ModelConfig(PretrainedConfig):
    """Stands for config classes that checkpoints bring along."""

    def __init__(self, **fields):
        super().__init__(**fields)
        for name in ("text_config", "vision_config"):
            if isinstance(getattr(self, name, None), dict):
                setattr(self, name, PretrainedConfig(**getattr(self, name)))


def registered(model_type):
    """Makes a model type known that only its checkpoint's code describes."""
    made = type("Own", (ModelConfig,), {"model_type": model_type})
    AutoConfig.register(model_type, made, exist_ok=True)


def class_of(config):
    """The architecture that the published config names."""
    known = {**TEXT, **SEEING} if "vision_config" in config else {**SEEING, **TEXT}
    return {**known, **OWN}.get(config["model_type"])


def write(config, folder):
    """The config.json, as published ones are: with the class's name, in no special format."""
    fields = {name: value for name, value in config.items() if name != "quantization_config"}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump({"architectures": [class_of(config)], **fields}, file)


def platform(major, minor):
    """The facts of an NVIDIA GPU of that compute capability."""
    torch.cuda.get_device_capability = lambda *_, **__: (major, minor)
    return override_platform(
        is_cuda=True, is_hip=False, is_npu=False, is_xpu=False, is_musa=False, is_mps=False, has_flashinfer=True,
        is_sm90=major == 9, is_sm100=major == 10, is_sm100_or_sm110=major == 10, is_sm110=False, is_sm120=major == 12,
        is_blackwell=major in (10, 12), is_hopper_with_cuda_12_3=major == 9, device_sm=10 * major + minor,
        device_capability=(major, minor),
    )  # fmt: skip


def resolved(case, folder):
    """The arguments that the server starts with; the folder is empty."""
    memory_hook.get_device_memory_capacity = lambda _: case["memory_mib"]
    write(case["config"], folder)
    given = dict(case["args"])
    if "speculative_algorithm" in given:
        given["speculative_draft_model_path"] = folder
    args = ServerArgs(model_path=folder, device="cuda", skip_tokenizer_init=True, load_format="dummy", **given)
    override = platform(*case["capability"])
    override.install()
    try:
        args.resolve_once()
    finally:
        override.restore()
    found = resolved_view(args)
    graphs = found.cuda_graph_config
    return {
        "page_size": found.page_size,
        "kv_cache_dtype": found.kv_cache_dtype,
        "chunk_of_rank": found.chunked_prefill_size,
        "conservativeness_of_rank": found.schedule_conservativeness,
        "cuda_graph_max_bs_decode": graphs.decode.max_bs,
        "mem_fraction_static": found.mem_fraction_static,
        "prefill_graphs": graphs.prefill.bs,
        "disable_overlap_schedule": found.disable_overlap_schedule,
        "mamba_radix_cache_strategy": found.mamba_radix_cache_strategy,
        "max_running_requests": running_requests(case, found),
    }


def running_requests(case, found):
    """What `resolve_max_num_reqs` says of a pool."""
    schedule = SimpleNamespace(max_running_requests=found.max_running_requests)
    kv_cache_configurator.get_schedule = lambda: schedule
    owner = SimpleNamespace(
        model_config=SimpleNamespace(context_len=case["context_length"]),
        attn_dp_size=found.attn_dp_size,
        mambaish_config=None,
    )
    return kv_cache_configurator.KVCacheConfigurator.resolve_max_num_reqs(owner, case["kv_tokens"])


def answer(case):
    """One line of the output."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            return resolved(case, folder)
    except Exception as error:
        said = " ".join(str(error).split())
        return {"unreadable" if any(known in said for known in UNREADABLE) else "refused": said[:300]}


def main():
    logging.disable(logging.CRITICAL)
    torch.cuda.is_available, torch.cuda.device_count = lambda: True, lambda: 8
    torch.cuda.get_device_name = lambda *_: "NVIDIA"
    cuda_graph_config.default_prefill_backend = lambda: cuda_graph_config.Backend.BREAKABLE  # as on CUDA
    for model_type in ("mimo_v2", "minimax_m3"):
        registered(model_type)
    with open(sys.argv[1], encoding="utf-8") as file:
        for line in file:
            case = json.loads(line)
            found = {"name": case["name"], "sglang_version": sglang.__version__, **answer(case)}
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
