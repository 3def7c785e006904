"""What SGLang's own code makes of arguments on GPUs of any size. Run by an interpreter that has SGLang."""

import json
import sys
from types import SimpleNamespace

import sglang
from sglang.srt.arg_groups import cuda_graph_hook, memory_hook, parallel_hook
from sglang.srt.arg_groups.model_overrides import qwen3_vl
from sglang.srt.mem_cache import kv_cache_configurator
from sglang.srt.model_executor.cuda_graph_config import Backend, default_cuda_graph_config

BASE = {
    "device": "cuda", "pp_size": 1, "max_prefill_tokens": 16384, "max_running_requests": None,
    "max_total_tokens": None, "mem_fraction_static": None, "chunked_prefill_size": None, "model_path": "model",
    "speculative_algorithm": None, "speculative_num_draft_tokens": None, "disable_cuda_graph_padding": False,
    "disaggregation_mode": "null", "moe_a2a_backend": "none", "dp_size": 1, "enable_symm_mem": False,
    "language_only": False, "language_model_only": False, "mm_enable_dp_encoder": False,
}  # fmt: skip


def resolved(case):
    """The arguments after `handle_gpu_memory_settings`, on a GPU that is not there."""
    given = {name: value for name, value in case["args"].items() if name not in ("cuda_graph_max_bs", "no_graphs")}
    sizes = {name: case[name] for name in ("tp_size", "attn_dp_size", "schedule_conservativeness")}
    args = SimpleNamespace(**BASE | given | sizes, _cuda_graph_config_locked=set())
    args.cuda_graph_config = default_cuda_graph_config()
    args.cuda_graph_config.prefill.backend = Backend.BREAKABLE  # as on CUDA, which is not there
    args.cuda_graph_config.decode.max_bs = case["args"].get("cuda_graph_max_bs")
    if case["args"].get("no_graphs"):
        for phase in (args.cuda_graph_config.decode, args.cuda_graph_config.prefill):
            phase.backend = Backend.DISABLED
    for module in (memory_hook, cuda_graph_hook, parallel_hook):
        module.resolving_view = module.resolved_view = lambda found: found
    memory_hook.get_device_memory_capacity = lambda device: case["memory_mib"]
    for module in (memory_hook, parallel_hook):
        module.declare_resolution = lambda found, by, **values: vars(found).update(values)
        module.attn_dp_enabled_of = lambda found: found.attn_dp_size > 1
    parallel_hook.run_post_process_pass = lambda *_: None
    parallel_hook._graph_may_capture_collectives = lambda found: False
    memory_hook.model_config_of = lambda found: SimpleNamespace(is_multimodal=False)
    memory_hook.use_mla_backend = lambda found: case["is_mla"]
    memory_hook.post_capture_kv_sizing_planned = lambda found: False
    memory_hook.get_platform = lambda: SimpleNamespace(is_xpu=False)
    qwen3_vl.expand_multimodal_decode_graph_to_running_limit = lambda *given: None
    memory_hook.handle_gpu_memory_settings(args)
    whole, graphs = args.chunked_prefill_size, args.cuda_graph_config.prefill.bs
    parallel_hook.handle_data_parallelism(args)
    return {
        "chunked_prefill_size": whole,
        "chunk_of_rank": args.chunked_prefill_size,
        "conservativeness_of_rank": args.schedule_conservativeness,
        "cuda_graph_max_bs_decode": args.cuda_graph_config.decode.max_bs,
        "mem_fraction_static": args.mem_fraction_static,
        "prefill_graphs": graphs,
    }


def running_requests(case):
    """What `resolve_max_num_reqs` says of a pool."""
    schedule = SimpleNamespace(max_running_requests=case["args"].get("max_running_requests"))
    kv_cache_configurator.get_schedule = lambda: schedule
    owner = SimpleNamespace(
        model_config=SimpleNamespace(context_len=case["context_length"]),
        attn_dp_size=case["attn_dp_size"],
        mambaish_config=None,
    )
    return kv_cache_configurator.KVCacheConfigurator.resolve_max_num_reqs(owner, case["kv_tokens"])


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        for line in file:
            case = json.loads(line)
            found = resolved(case) | {"max_running_requests": running_requests(case)}
            print(json.dumps({"name": case["name"], "sglang_version": sglang.__version__} | found), flush=True)


if __name__ == "__main__":
    main()
