"""The arrays of LoRA adapters before a run."""

from typing import Any

import numpy as np

from simulator.core.vllm.layout import ADAPTER, ADAPTERS, IN_CPU_MEMORY, ON_GPU
from simulator.engines.vllm.adapter_use import adapters_of, apart_by_adapter
from simulator.engines.vllm.adapters import Adapters
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.fleet import Fleet
from workloads.requests import Int32Array, RequestTable


def of_requests(fleet: Fleet, table: RequestTable, seed: int) -> tuple[RequestTable, Int32Array]:
    """The table with prefixes apart by adapter, and which one each request uses; none of a fleet without any."""
    found = fleet.adapters
    if found is None:
        return table, np.zeros(0, np.int32)
    of = adapters_of(table, found, seed)
    return apart_by_adapter(table, of), of


def adapter_arrays(fleet: Fleet, of: Int32Array, rows: int, sequences: int) -> dict[str, Any]:
    """At the start each engine holds the most popular adapters: on the GPU, and in CPU memory."""
    found = fleet.adapters
    if found is None:
        return {
            "adapter_of": of, "adapters": np.zeros((0, 1), ADAPTER), "adapter_states": np.zeros(0, ADAPTERS),
            "idle_adapters": np.zeros((0, 1), np.int32),
        }  # fmt: skip
    adapters = np.zeros((fleet.num_engines, found.num_adapters), ADAPTER)
    states, engine = np.zeros(fleet.num_engines, ADAPTERS), 0
    for pool in fleet.pools:
        engines, own = slice(engine, engine + pool.num_engines), _adapters(pool.engine)
        assert own is not None, "all pools of a fleet have adapters, or none has"
        adapters["place"][engines, : own.max_cpu_loras] = IN_CPU_MEMORY
        adapters["place"][engines, : own.max_loras] = ON_GPU
        states["num_on_gpu"][engines] = min(own.max_loras, found.num_adapters)
        states["num_in_memory"][engines] = min(own.max_cpu_loras, found.num_adapters)
        engine += pool.num_engines
    idle = np.zeros((fleet.num_engines, sequences), np.int32)
    return {"adapter_of": np.tile(of, rows), "adapters": adapters, "adapter_states": states, "idle_adapters": idle}


def fill_slots(values: Any, engine: EngineConfig) -> None:
    """Of a pool: how many adapters its GPUs, and the memory beside them, hold; 0 without LoRA."""
    if engine.adapters is not None:
        values["max_loras"], values["max_cpu_loras"] = engine.adapters.max_loras, engine.adapters.max_cpu_loras


def _adapters(engine: object) -> Adapters | None:
    return engine.adapters if isinstance(engine, EngineConfig) else None
