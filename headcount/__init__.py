"""How many people can these GPUs serve at once, and how many GPUs do these people need?"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvcache.catalog import find_gpu as find_gpu
    from kvcache.catalog import load_model as load_model
    from kvcache.memory import memory_budget as memory_budget
    from simulator.capacity_table import CapacityQuestion as CapacityQuestion
    from simulator.capacity_table import CapacityRow as CapacityRow
    from simulator.capacity_table import capacity_rows as capacity_rows
    from simulator.deployment import plan_replica as plan_replica
    from simulator.engine import EngineOptions as EngineOptions
    from simulator.fleet import Fleet as Fleet
    from simulator.results import Result as Result
    from simulator.results import request_times as request_times
    from simulator.results import whole_run as whole_run
    from simulator.simpy_fleet import ReplicaLoad as ReplicaLoad
    from simulator.simpy_fleet import least_outstanding as least_outstanding
    from simulator.simpy_fleet import run_simpy_fleet as run_simpy_fleet
    from simulator.simulation import Simulation as Simulation
    from simulator.slo import SLO as SLO
    from workloads.load import load_workload as load_workload
    from workloads.synthetic import closed_load as closed_load
    from workloads.synthetic import open_load as open_load

__version__ = "0.1.0"

_HOMES = {
    "find_gpu": "kvcache.catalog",
    "load_model": "kvcache.catalog",
    "memory_budget": "kvcache.memory",
    "CapacityQuestion": "simulator.capacity_table",
    "CapacityRow": "simulator.capacity_table",
    "capacity_rows": "simulator.capacity_table",
    "EngineOptions": "simulator.engine",
    "plan_replica": "simulator.deployment",
    "Result": "simulator.results",
    "request_times": "simulator.results",
    "whole_run": "simulator.results",
    "ReplicaLoad": "simulator.simpy_fleet",
    "least_outstanding": "simulator.simpy_fleet",
    "run_simpy_fleet": "simulator.simpy_fleet",
    "Fleet": "simulator.simulation",
    "Simulation": "simulator.simulation",
    "SLO": "simulator.slo",
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
