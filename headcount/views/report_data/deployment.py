"""One server as a report shows it: the line that starts it, its settings."""

from files.documents import Json
from headcount.text.words import kv_cache_text, weights_text
from simulator.deployment import Deployment
from simulator.engines.vllm.engine import EngineConfig


def deployment_json(plan: Deployment, servers: int) -> dict[str, object]:
    """Its settings are those that were simulated, given or assumed."""
    return {
        "gpu": plan.gpu.name,
        "servers": servers,
        "gpus_per_server": plan.gpus,
        "serve_line": plan.serve_line,
        "settings": _of_vllm(plan, plan.engine) if isinstance(plan.engine, EngineConfig) else _of_sglang(plan),
    }


def _of_sglang(plan: Deployment) -> Json:
    settings = plan.settings.items()
    found = {name: ("on" if value else "off") if isinstance(value, bool) else value for name, value in settings}
    formats = {"quantization": weights_text(plan), "kv_cache_dtype": kv_cache_text(plan)}
    args = plan.args
    sizes = {"tp_size": args.tensor_parallel_size, "dp_size": args.num_engines}
    if args.attention_groups > 1:
        sizes["attn_dp_size"] = args.attention_groups
    if args.enable_expert_parallel:
        sizes["ep_size"] = args.tensor_parallel_size
    return found | formats | sizes | {"latency model": plan.latency.name}


def _of_vllm(plan: Deployment, engine: EngineConfig) -> dict[str, object]:
    return {
        "vLLM release": plan.args.vllm_version,
        "weights": weights_text(plan),
        "KV cache": kv_cache_text(plan),
        "tensor parallel size": plan.tensor_parallel_size,
        "pipeline parallel size": plan.pipeline_parallel_size,
        "data parallel size": plan.data_parallel_size,
        "max_model_len": plan.budget.max_model_len,
        "max_num_seqs": plan.budget.max_num_seqs,
        "max_num_batched_tokens": plan.budget.max_num_batched_tokens,
        "gpu_memory_utilization": plan.budget.gpu_memory_utilization,
        "prefix caching": "on" if engine.enable_prefix_caching else "off",
        **_of_host_memory(engine, plan),
        "asynchronous scheduling": "on" if engine.async_scheduling else "off",
        "latency model": plan.latency.name,
    }


def _of_host_memory(engine: EngineConfig, plan: Deployment) -> dict[str, str]:
    if engine.host_tier is None:
        return {}
    if engine.host_tier.is_shared:
        return {"remote KV cache of all servers": f"{plan.args.kv_store_size:g} GiB"}
    held = plan.args.lmcache
    size = (
        f"{plan.args.kv_offloading_size:g} GiB" if held is None else f"LMCache, {held.max_local_cpu_size:g} GiB per GPU"
    )
    return {"CPU KV-cache offloading": size, "eviction policy": engine.host_tier.eviction_policy}
