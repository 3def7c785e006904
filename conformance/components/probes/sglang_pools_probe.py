"""How SGLang's own code divides memory between the KV pools of a model. Run by an interpreter that has SGLang."""

import importlib
import json
import sys
from types import SimpleNamespace

import sglang
import torch
from sglang.srt.arg_groups.model_overrides import gemma2_gemma3
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.mem_cache import kv_cache_configurator, memory_pool
from sglang.srt.mem_cache.kv_cache_configurator import KVCacheConfigurator
from sglang.srt.model_executor import pool_configurator
from sglang.srt.model_executor.model_runner_components.layer_setup import ModelLayerInfo
from sglang.srt.model_executor.model_runner_components.load_model_utils import resolve_sliding_window_size
from sglang.srt.runtime_context import get_context, override_platform
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.utils.hf_transformers.config import _apply_gemma4_attention_overrides
from transformers import Gemma4Config

CLASSES = {  # by model type: the architecture as checkpoints name it, and its module
    "deepseek_v32": ("DeepseekV32ForCausalLM", "deepseek_v2"),
    "glm_moe_dsa": ("GlmMoeDsaForCausalLM", "deepseek_v2"),
    "minimax_m3": ("MiniMaxM3SparseForCausalLM", "minimax_m3"),
    "afmoe": ("AfmoeForCausalLM", "afmoe"),
    "gemma2": ("Gemma2ForCausalLM", "gemma2"),
    "gemma3_text": ("Gemma3ForCausalLM", "gemma3_causal"),
    "gemma4_text": ("Gemma4ForCausalLM", "gemma4_causal"),
    "gpt_oss": ("GptOssForCausalLM", "gpt_oss"),
    "laguna": ("LagunaForCausalLM", "laguna"),
    "llama4_text": ("Llama4ForConditionalGeneration", "mllama4"),
    "mellum": ("MellumForCausalLM", "mellum"),
    "mimo_v2": ("MiMoV2ForCausalLM", "mimo_v2"),
    "mimo_v2_flash": ("MiMoV2FlashForCausalLM", "mimo_v2"),
    "muse_glimmer_text": ("MuseGlimmerForCausalLM", "muse_glimmer"),
    "step3p5": ("Step3p5ForCausalLM", "step3p5"),
}


SPARSE = ("deepseek_v32", "glm_moe_dsa", "minimax_m3")


def model_config(case):
    """SGLang's view of a model, as far as its pools depend on it."""
    architecture, _ = CLASSES[case["model_type"]]
    text = SimpleNamespace(**case["config"])
    if case["model_type"] == "gemma4_text":
        whole = Gemma4Config(text_config=case["config"])
        _apply_gemma4_attention_overrides(whole)
        text = whole.text_config
    found = object.__new__(ModelConfig)
    found.hf_text_config = text
    found.hf_config = SimpleNamespace(
        architectures=[architecture], model_type=case["model_type"], get_text_config=lambda: text
    )
    if case["model_type"] in SPARSE:
        vars(text).update(architectures=[architecture], rope_scaling=None, get_text_config=lambda: text)
        found.hf_config = text
    found.quantization = None
    found.is_draft_model, found.context_len = False, case["context_length"]
    found.attention_chunk_size = getattr(text, "attention_chunk_size", None)
    disabled = case["disable_hybrid_swa_memory"]
    if architecture.startswith(("Gemma2", "Gemma3")):
        disabled = gemma2_gemma3._gemma2_gemma3_overrides(None, found.hf_config)["disable_hybrid_swa_memory"]
    found.disable_hybrid_swa_memory = disabled
    found.sliding_window_size = found._get_sliding_window_size()
    found._derive_hybrid_model()
    found._derive_model_shapes()
    return found


def window_of(case, config):
    """What its model class says that it attends to at most."""
    if case["model_type"] in SPARSE:
        return None
    architecture, module = CLASSES[case["model_type"]]
    model_class = getattr(importlib.import_module(f"sglang.srt.models.{module}"), architecture)
    model = object.__new__(model_class)
    vars(model)["config"] = config.hf_text_config
    return resolve_sliding_window_size(model, config)


def pools(case):
    config = model_config(case)
    count = config.num_hidden_layers
    configurator = SimpleNamespace(
        kv_cache_dtype=getattr(torch, case["kv_dtype"]), kv_cache_dtype_str=case["kv_dtype"], model_config=config,
        layer_info=ModelLayerInfo(
            start_layer=0, end_layer=count, num_effective_layers=count,
            swa_attention_layer_ids=config.swa_attention_layer_ids,
            full_attention_layer_ids=config.full_attention_layer_ids,
        ),
        sliding_window_size=window_of(case, config), page_size=case["page_size"], is_draft_worker=False,
        is_hybrid_swa=config.is_hybrid_swa, use_mla_backend=case["is_mla"], mambaish_config=None,
        model_dtype=torch.bfloat16,
        spec_algorithm=SpeculativeAlgorithm.from_string("EAGLE" if case["draft_layers"] else None),
        spec_aux_config=SimpleNamespace(eagle_draft_num_layers=case["draft_layers"], eagle_draft_swa_num_layers=None),
        server_args=SimpleNamespace(
            enable_hisparse=False, kv_cache_dtype="auto", attention_backend="fa3", enable_dsa_cache_layer_split=False,
        ), attn_dp_size=1, fused_entry_bytes=lambda name: None,
    )  # fmt: skip
    configurator._apply_token_constraints = lambda tokens: KVCacheConfigurator._apply_token_constraints(
        configurator, tokens
    )
    try:
        found = KVCacheConfigurator.config_from_budget(configurator, case["available_bytes"])
    except (ValueError, RuntimeError) as error:
        if "cannot hold even one request" not in str(error) and "Not enough memory" not in str(error):
            raise
        return {"refused": True}
    own = {"window": configurator.sliding_window_size} if config.is_hybrid_swa else {}
    tokens = (found.max_total_num_tokens, found.swa_max_total_num_tokens)
    return {"max_total_num_tokens": tokens[0], "window_kv_tokens": tokens[1], **own}


def main():
    print(json.dumps({"sglang_version": sglang.__version__}), flush=True)
    for module in (pool_configurator, kv_cache_configurator):
        module.compute_page_shard_scratch_bytes = lambda *given, **named: 0
    memory_pool._is_cuda = True
    override_platform(is_sm90=True, is_sm100=False, is_blackwell=False).install()
    with open(sys.argv[1], encoding="utf-8") as file:
        for line in file:
            case = json.loads(line)
            parallel = SimpleNamespace(attn_tp_size=case["tp_size"], attn_dcp_size=1, pp_size=1)
            for module in (pool_configurator, kv_cache_configurator):
                module.get_parallel = lambda parallel=parallel: parallel
            override = get_context().override_server_args(
                device="cpu",
                **{name: case[name] for name in ("page_size", "swa_full_tokens_ratio", "max_total_tokens")},
            )
            override.install()
            try:
                print(json.dumps({"name": case["name"], **pools(case)}), flush=True)
            finally:
                override.restore()


if __name__ == "__main__":
    main()
