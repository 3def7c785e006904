"""How many people can these GPUs serve at once, and how many GPUs do these people need?"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headcount.api import *

__version__ = "0.1.0"

__all__ = [
    "SLO",
    "Answer",
    "CapacityAnswer",
    "CheckAnswer",
    "Deployment",
    "EngineArgs",
    "FitAnswer",
    "Fleet",
    "MemoryAnswer",
    "MemoryComparison",
    "Note",
    "Pool",
    "Progress",
    "ReadAnswer",
    "RefusedError",
    "Result",
    "Severity",
    "SimulateAnswer",
    "Simulation",
    "TrainingMemoryAnswer",
    "Verdict",
    "View",
    "capacity",
    "check",
    "closed_load",
    "find_gpu",
    "fit",
    "gpu_names",
    "load_model",
    "load_workload",
    "memory",
    "memory_budget",
    "memory_comparison",
    "model_names",
    "open_load",
    "preset_names",
    "read",
    "read_startup_log",
    "request_times",
    "resolve",
    "simulate",
    "training_memory",
    "whole_run",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Public names are imported when first used, so that `headcount --help` answers at once."""
    if name in __all__:
        return getattr(import_module("headcount.api"), name)
    raise AttributeError(f"module 'headcount' has no attribute '{name}'")


def __dir__() -> list[str]:
    """The public names alone, for tab completion."""
    return sorted(__all__)
