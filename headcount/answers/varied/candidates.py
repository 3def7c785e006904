"""Changes of one setting that may lift the users, and what their estimates say."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from simulator.deployment import Deployment
from simulator.engines.argument import arguments_of, flag_of
from simulator.engines.vllm.arguments import EngineArgs
from simulator.study.capacity_table import CapacityQuestion, CapacityRow
from simulator.study.variations.variation import Look, look

MOST_MEMORY: Final = 0.95  # of a GPU; beyond it vLLM often runs out of memory
_CHANGES_POOL: Final = ("quantization", "kv_cache_dtype", "gpu_memory_utilization", "tensor_parallel_size")


def change_text(argument: str, value: Any) -> str:
    """As the command line takes it, such as `--kv-cache-dtype fp8`."""
    described = arguments_of(EngineArgs).get(argument)
    return f"--{flag_of(argument, described) if described else argument} {value}"


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
    for name, value in _settings(base, plan, is_size_given=asked.args.tensor_parallel_size is not None):
        if asked.args.num_gpu_blocks_override is None or name not in _CHANGES_POOL:
            yield name, value


def _settings(base: CapacityRow, plan: Deployment, *, is_size_given: bool) -> Iterator[tuple[str, Any]]:
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
    if is_size_given:  # else the base has the best of all
        yield "tensor_parallel_size", 2 * base.tp
        yield "tensor_parallel_size", base.tp // 2
