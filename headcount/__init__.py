"""How many people can these GPUs serve at once, and how many GPUs do these people need?"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvcache.memory.budget import memory_budget as memory_budget
    from kvcache.models.catalog import find_gpu as find_gpu
    from kvcache.models.catalog import load_model as load_model
    from simulator.deployment import plan_replica as plan_replica
    from simulator.engines.vllm.engine import EngineOptions as EngineOptions
    from simulator.fleet.fleet import Fleet as Fleet
    from simulator.fleet.simpy_fleet import ReplicaLoad as ReplicaLoad
    from simulator.fleet.simpy_fleet import least_outstanding as least_outstanding
    from simulator.fleet.simpy_fleet import run_simpy_fleet as run_simpy_fleet
    from simulator.results import Result as Result
    from simulator.results import request_times as request_times
    from simulator.results import whole_run as whole_run
    from simulator.simulation import Simulation as Simulation
    from simulator.study.capacity_table import CapacityQuestion as CapacityQuestion
    from simulator.study.capacity_table import CapacityRow as CapacityRow
    from simulator.study.capacity_table import capacity_rows as capacity_rows
    from simulator.study.slo import SLO as SLO
    from workloads.load import load_workload as load_workload
    from workloads.synthetic import closed_load as closed_load
    from workloads.synthetic import open_load as open_load

__version__ = "0.1.0"

_HOMES = {
    "find_gpu": "kvcache.models.catalog",
    "load_model": "kvcache.models.catalog",
    "memory_budget": "kvcache.memory.budget",
    "CapacityQuestion": "simulator.study.capacity_table",
    "CapacityRow": "simulator.study.capacity_table",
    "capacity_rows": "simulator.study.capacity_table",
    "EngineOptions": "simulator.engines.vllm.engine",
    "plan_replica": "simulator.deployment",
    "Result": "simulator.results",
    "request_times": "simulator.results",
    "whole_run": "simulator.results",
    "ReplicaLoad": "simulator.fleet.simpy_fleet",
    "least_outstanding": "simulator.fleet.simpy_fleet",
    "run_simpy_fleet": "simulator.fleet.simpy_fleet",
    "Fleet": "simulator.simulation",
    "Simulation": "simulator.simulation",
    "SLO": "simulator.study.slo",
    "load_workload": "workloads.load",
    "closed_load": "workloads.synthetic",
    "open_load": "workloads.synthetic",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Public names are imported when first used, so that `headcount --help` answers at once."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'headcount' has no attribute '{name}'")
