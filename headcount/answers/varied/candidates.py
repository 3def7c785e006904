"""Changes of one setting that may lift the users, and what their estimates say."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from simulator.deployment import Deployment
from simulator.engines.argument import arguments_of, flag_of
from simulator.engines.engines import ENGINES
from simulator.engines.sglang.arguments import NO_CHUNKS, SGLangArgs
from simulator.engines.sglang.engine import EngineConfig as SGLangConfig
from simulator.engines.vllm.arguments import GIB
from simulator.study.capacity_table import CapacityQuestion, CapacityRow
from simulator.study.traffic import traffic_of
from simulator.study.variations.variation import Look, look

MOST_MEMORY: Final = 0.95  # of a GPU; beyond it vLLM often runs out of memory
MISSED_SHARE: Final = 0.05  # of prompt tokens: with fewer misses than that a larger cache does not pay
_CHANGES_POOL: Final = ("quantization", "kv_cache_dtype", "gpu_memory_utilization", "tensor_parallel_size")


def change_text(argument: str, value: Any) -> str:
    """As the command line takes it, such as `--kv-cache-dtype fp8`."""
    known = [described for kind in ENGINES.values() if (described := arguments_of(kind).get(argument)) is not None]
    flag = f"--{flag_of(argument, known[0]) if known else argument}"
    return flag if value is True else f"{flag} {value}"


def look_at(here: CapacityQuestion, argument: str, value: Any) -> Look | None:
    """The estimate with that change; None where it does not run."""
    try:
        if argument == "router":
            looked = look(replace(here, router=value))
        else:
            looked = look(replace(here, args=replace(here.args, **{argument: value})))
    except ValueError:
        return None
    return None if looked.plan is None else looked


def candidates(asked: CapacityQuestion, base: CapacityRow, plan: Deployment) -> Iterator[tuple[str, Any]]:
    """Settings that may help; KV blocks that were given hold for the settings beside them alone."""
    if base.replicas > 1 and asked.router != "session-affinity":
        yield "router", "session-affinity"
    if _lacks_host_memory(plan) and _misses_prefixes(asked, base, plan):
        yield "kv_offloading_size", _host_gib(plan)
    is_size_given = asked.args.tensor_parallel_size is not None
    own = _of_sglang(plan, plan.args) if isinstance(plan.args, SGLangArgs) else _settings(base, plan)
    for name, value in (*own, *(_sizes(base) if is_size_given else ())):
        if asked.args.num_gpu_blocks_override is None or name not in _CHANGES_POOL:
            yield name, value


def _lacks_host_memory(plan: Deployment) -> bool:
    """Whether KV could be kept in host memory, and is not."""
    is_simulated = not isinstance(plan.engine, SGLangConfig) and plan.engine.enable_prefix_caching
    return is_simulated and plan.args.kv_offloading_size is None


def _misses_prefixes(asked: CapacityQuestion, base: CapacityRow, plan: Deployment) -> bool:
    """Whether a larger cache would find more of the prompts than was found."""
    if base.point is None:
        return False
    traffic = traffic_of(asked.load(plan), base.replicas * plan.data_parallel_size)
    most = float(traffic.cache.tokens[-1].sum() / traffic.prompt.sum())
    return most - base.point.mean("prefix_hit_rate") > MISSED_SHARE


def _host_gib(plan: Deployment) -> int:
    """Twice the memory of the engine's GPUs, in GiB: at least so much host memory is advised for them."""
    return int(2 ** math.floor(math.log2(2 * plan.gpu.memory_bytes / GIB))) * plan.tensor_parallel_size


def _settings(base: CapacityRow, plan: Deployment) -> Iterator[tuple[str, Any]]:
    args, binding = plan.args, base.binding or ""
    if not plan.budget.kv_cache_dtype.startswith("fp8"):
        yield "kv_cache_dtype", "fp8"
    if plan.budget.quantization == "none":
        yield "quantization", "fp8"
    yield "max_num_batched_tokens", 2 * args.max_num_batched_tokens
    yield "max_num_batched_tokens", args.max_num_batched_tokens // 2
    if "KV blocks" in binding and args.gpu_memory_utilization < MOST_MEMORY:
        yield "gpu_memory_utilization", MOST_MEMORY
    if "max_num_seqs" in binding:
        yield "max_num_seqs", 2 * args.max_num_seqs


def _of_sglang(plan: Deployment, args: SGLangArgs) -> Iterator[tuple[str, Any]]:
    if not plan.budget.kv_cache_dtype.startswith("fp8"):
        yield "kv_cache_dtype", "fp8_e4m3"
    if plan.budget.quantization == "none":
        yield "quantization", "fp8"
    if args.chunked_prefill_size != NO_CHUNKS:
        yield "chunked_prefill_size", 2 * args.chunked_prefill_size
        yield "chunked_prefill_size", args.chunked_prefill_size // 2
        if not args.enable_mixed_chunk:
            yield "enable_mixed_chunk", True
    if args.schedule_policy == "fcfs" and not args.disable_radix_cache:
        yield "schedule_policy", "lpm"


def _sizes(base: CapacityRow) -> Iterator[tuple[str, Any]]:
    """Where one was asked for; else the base has the best of all."""
    yield "tensor_parallel_size", 2 * base.tp
    yield "tensor_parallel_size", base.tp // 2
