"""Changes of one setting that may lift the users, and what their estimates say."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from simulator.deployment import Deployment
from simulator.engines.argument import arguments_of, flag_of
from simulator.engines.engines import ENGINES, TUNINGS, engine_of
from simulator.engines.vllm.defaults import GIB
from simulator.study.candidate import AFFINITY
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_row import CapacityRow
from simulator.study.traffic import traffic_of
from simulator.study.variations.variation import Variation, screen

MISSED_SHARE: Final = 0.05  # of prompt tokens: with fewer misses than that a larger cache does not pay
_CHANGES_POOL: Final = (
    "quantization", "kv_cache_dtype", "gpu_memory_utilization", "mem_fraction_static", "tensor_parallel_size",
)  # fmt: skip


def change_text(argument: str, value: object) -> str:
    """As the command line takes it, such as `--kv-cache-dtype fp8`."""
    known = [described for kind in ENGINES.values() if (described := arguments_of(kind).get(argument)) is not None]
    flag = f"--{flag_of(argument, known[0]) if known else argument}"
    return flag if value is True else f"{flag} {value}"


def screen_change(here: CapacityQuestion, argument: str, value: Any) -> Variation | None:
    """The estimate with that change; None where it does not run."""
    try:
        if argument == "router":
            looked = screen(replace(here, router=value))
        else:
            looked = screen(replace(here, args=replace(here.args, **{argument: value})))
    except ValueError:
        return None
    return None if looked.plan is None else looked


def candidates(asked: CapacityQuestion, base: CapacityRow, plan: Deployment) -> Iterator[tuple[str, Any]]:
    """Settings that may help; KV blocks that were given hold for the settings beside them alone."""
    if base.replicas > 1 and asked.router not in (None, AFFINITY):
        yield "router", AFFINITY
    if _lacks_host_memory(plan) and _misses_prefixes(asked, base, plan):
        yield "kv_offloading_size", _host_gib(plan)
    is_size_given = asked.args.tensor_parallel_size is not None
    own = TUNINGS[engine_of(plan.args)].changes(plan.args, plan.budget, base.binding or "")
    for name, value in (*own, *(_sizes(base, asked.args.attention_groups) if is_size_given else ())):
        if asked.args.num_gpu_blocks_override is None or name not in _CHANGES_POOL:
            yield name, value


def _lacks_host_memory(plan: Deployment) -> bool:
    """Whether KV could be kept in host memory, and is not."""
    can_be = "kv_offloading_size" in arguments_of(type(plan.args)) and plan.vllm_engine.enable_prefix_caching
    return can_be and plan.budget.host is None


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


def _sizes(base: CapacityRow, groups: int) -> Iterator[tuple[str, object]]:
    """Where one was asked for; else the base has the best of all."""
    yield "tensor_parallel_size", 2 * base.tp * groups
    yield "tensor_parallel_size", base.tp // 2 * groups
