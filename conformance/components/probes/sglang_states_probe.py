"""How SGLang's own code sizes the pool of a model's SSM states. Run by an interpreter that has SGLang."""

import json
import sys
from types import SimpleNamespace

import sglang
from sglang.srt import configs
from sglang.srt.arg_groups import overrides
from sglang.srt.configs import falcon_h1, granitemoehybrid, kimi_linear, lfm2, lfm2_moe, nemotron_h, qwen3_5, qwen3_next
from sglang.srt.mem_cache.kv_cache_configurator import KVCacheConfigurator
from sglang.srt.runtime_context import get_context, get_schedule
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

CLASSES = {  # by model type: the configuration's class, and the architecture as checkpoints name it
    "bailing_moe_v3": (configs.BailingHybridConfig, "BailingMoeV3ForCausalLM"),
    "falcon_h1": (configs.FalconH1Config, "FalconH1ForCausalLM"),
    "granitemoehybrid": (configs.GraniteMoeHybridConfig, "GraniteMoeHybridForCausalLM"),
    "kimi_linear": (configs.KimiLinearConfig, "KimiLinearForCausalLM"),
    "lfm2": (configs.Lfm2Config, "Lfm2ForCausalLM"),
    "lfm2_moe": (configs.Lfm2MoeConfig, "Lfm2MoeForCausalLM"),
    "nemotron_h": (configs.NemotronHConfig, "NemotronHForCausalLM"),
    "qwen3_5_moe_text": (qwen3_5.Qwen3_5MoeTextConfig, "Qwen3_5MoeForConditionalGeneration"),
    "qwen3_5_text": (qwen3_5.Qwen3_5TextConfig, "Qwen3_5ForConditionalGeneration"),
    "qwen3_next": (configs.Qwen3NextConfig, "Qwen3NextForCausalLM"),
}
SHARED = (  # where the tensor-parallel size is asked for
    configs.bailing_hybrid, falcon_h1, granitemoehybrid, kimi_linear, lfm2, lfm2_moe, nemotron_h, qwen3_next,
)  # fmt: skip


def pool(case):
    config_class, architecture = CLASSES[case["model_type"]]
    config = config_class(**case["config"])
    parallel = SimpleNamespace(attn_tp_size=case["tp_size"])
    for module in SHARED:
        module.get_parallel = lambda: parallel
    qwen3_next.linear_attn_tp_size = lambda: case["tp_size"]
    configurator = SimpleNamespace(
        mambaish_config=config,
        pp_size=1,
        fused_entry_bytes=lambda name: None,
        spec_algorithm=SpeculativeAlgorithm.from_string(case["speculative_algorithm"]),
        hybrid_gdn_config=None,
        hybrid_kda_config=None,
        attn_dp_size=case["attn_dp_size"],
        extra_mamba_cache_bytes_per_req=0,
    )
    configurator._calculate_mamba_ratio = lambda: KVCacheConfigurator._calculate_mamba_ratio(configurator)
    try:
        left = KVCacheConfigurator._handle_max_mamba_cache(configurator, case["available_bytes"] / 2**30)
    except RuntimeError as error:
        if "Not enough GPU memory" not in str(error):
            raise
        return {"refused": True}
    slots = get_schedule().max_mamba_cache_size
    return {
        "slots": slots,
        "left": int(left * (1 << 30)),
        "per_request": KVCacheConfigurator._calculate_mamba_ratio(configurator),
        "kernel_chunk": getattr(config, "mamba_chunk_size", 64),
        "can_track": architecture in overrides._MAMBA_EXTRA_BUFFER_ARCHS,
    }


def main():
    print(json.dumps({"sglang_version": sglang.__version__}), flush=True)
    with open(sys.argv[1], encoding="utf-8") as file:
        for line in file:
            case = json.loads(line)
            names = (
                "mamba_full_memory_ratio", "max_mamba_cache_size", "max_running_requests", "disable_radix_cache",
                "disable_overlap_schedule", "mamba_radix_cache_strategy", "speculative_algorithm",
                "speculative_num_draft_tokens",
            )  # fmt: skip
            override = get_context().override_server_args(device="cpu", **{name: case[name] for name in names})
            override.install()
            try:
                print(json.dumps({"name": case["name"], **pool(case)}), flush=True)
            finally:
                override.restore()


if __name__ == "__main__":
    main()
