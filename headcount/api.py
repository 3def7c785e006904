"""The questions as Python functions; `import headcount as hc` offers the same names.

    import headcount as hc
    answer = hc.capacity("llama-3.1-8b", "h100-sxm", gpus=[1, 2])
    answer.users_low, answer.diagnostics
    answer.to_frame()
    answer.report("answer.html")

Each function is the one that the command of the same name calls. Engine arguments have vLLM's names, values without a
unit in their name have none, times are in seconds.
"""

from functools import cache
from typing import Any

from calibrate.readers.parsing.startup_log import StartupLog, read_startup_log
from files.arguments import checked
from files.errors import HeadcountError
from files.limits import limits_raised
from headcount.diagnostics import Diagnostic, RefusedError, Severity
from headcount.inputs.autoscaling import AutoscalingInput
from headcount.inputs.disaggregation import ComparedPoolsInput, LinkInput
from headcount.inputs.engine import EngineInput, TrainingInput
from headcount.inputs.load import LoadInput
from headcount.inputs.measured import MeasuredInput
from headcount.inputs.people import PeopleInput
from headcount.inputs.prices import GPUPriceInput, PriceInput
from headcount.inputs.routing import DeployedInput, ReplicasInput, RoutingInput
from headcount.inputs.run import RunInput, SeedInput
from headcount.inputs.run_files import OutputsInput
from headcount.inputs.search import (
    CapacitySearch,
    CompareSearch,
    HeterogeneousSearch,
    OptimizeSearch,
    PlanSearch,
    PoolsSearch,
    SweepInput,
)
from headcount.inputs.slo import SLOInput
from headcount.inputs.traffic import TrafficInput
from headcount.notebook import sliders
from headcount.queries.autoscaling.over_time import AutoscalingResult, simulate_autoscaling
from headcount.queries.calibrate.check import CheckResult, StepsCheckResult, check
from headcount.queries.calibrate.fit import FitResult, fit
from headcount.queries.calibrate.read import ReadResult, read
from headcount.queries.capacity import CapacityResult, capacity
from headcount.queries.compare import CompareResult, compare
from headcount.queries.diff import DiffResult, diff
from headcount.queries.disaggregation import DisaggregationResult, disaggregated_capacity
from headcount.queries.heterogeneous_fleet import FleetResult, fleet
from headcount.queries.memory import MemoryComparison, MemoryResult, memory, memory_comparison
from headcount.queries.optimize import OptimizeResult, optimize
from headcount.queries.plan import PlanResult, plan
from headcount.queries.result import Progress, Result, Verdict
from headcount.queries.simulate import SimulateResult, simulate
from headcount.queries.training_memory import TrainingMemoryResult, training_memory
from headcount.queries.whatif import WhatifResult, whatif
from headcount.queries.workloads.describe import DescribeResult, describe
from headcount.queries.workloads.fit import FitTraceResult, fit_trace
from kvcache.gpus.gpu import GPU, find_gpu, gpu_names
from kvcache.models.catalog import load_model, model_names
from kvcache.shape.architecture import Architecture
from simulator.deployment import Deployment, resolve
from simulator.engines.memory import memory_budget
from simulator.engines.vllm.arguments import EngineArgs
from simulator.fleet.fleet import Fleet, Pool
from simulator.fleet.view import View
from simulator.results import SimulationResult, request_times, whole_run
from simulator.simulation import Simulation
from simulator.study.slo import SLO
from workloads.load import load_workload, preset_names
from workloads.synthetic import closed_load, open_load
from workloads.traces.trace_file import TraceFile

__all__ = [
    "SLO",
    "AutoscalingInput",
    "AutoscalingResult",
    "CapacityResult",
    "CapacitySearch",
    "CheckResult",
    "CompareResult",
    "CompareSearch",
    "ComparedPoolsInput",
    "DeployedInput",
    "Deployment",
    "DescribeResult",
    "Diagnostic",
    "DiffResult",
    "DisaggregationResult",
    "EngineArgs",
    "EngineInput",
    "FitResult",
    "FitTraceResult",
    "Fleet",
    "FleetResult",
    "GPUPriceInput",
    "HeadcountError",
    "HeterogeneousSearch",
    "LinkInput",
    "LoadInput",
    "MeasuredInput",
    "MemoryComparison",
    "MemoryResult",
    "OptimizeResult",
    "OptimizeSearch",
    "OutputsInput",
    "PeopleInput",
    "PlanResult",
    "PlanSearch",
    "Pool",
    "PoolsSearch",
    "PriceInput",
    "Progress",
    "ReadResult",
    "RefusedError",
    "ReplicasInput",
    "Result",
    "RoutingInput",
    "RunInput",
    "SLOInput",
    "SeedInput",
    "Severity",
    "SimulateResult",
    "Simulation",
    "SimulationResult",
    "StepsCheckResult",
    "SweepInput",
    "TraceFile",
    "TrafficInput",
    "TrainingInput",
    "TrainingMemoryResult",
    "Verdict",
    "View",
    "WhatifResult",
    "capacity",
    "check",
    "closed_load",
    "compare",
    "describe",
    "diff",
    "disaggregated_capacity",
    "find_gpu",
    "fit",
    "fit_trace",
    "fleet",
    "gpu_names",
    "limits_raised",
    "load_model",
    "load_workload",
    "memory",
    "memory_budget",
    "memory_comparison",
    "model_names",
    "open_load",
    "optimize",
    "plan",
    "preset_names",
    "read",
    "read_startup_log",
    "request_times",
    "resolve",
    "simulate",
    "simulate_autoscaling",
    "sliders",
    "training_memory",
    "whatif",
    "whole_run",
]  # fmt: skip

ANNOTATIONS = {"StartupLog": StartupLog, "Architecture": Architecture, "GPU": GPU}  # names that signatures use


@cache
def public(name: str) -> Any:
    """One of the public names; a function looks at the types of its arguments first."""
    found = globals()[name]
    is_plain = isinstance(found, type) or vars(found).get("checks_arguments")
    return found if is_plain else checked(found, ANNOTATIONS)
