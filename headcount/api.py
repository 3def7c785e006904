"""The questions as Python functions; `import headcount as hc` offers the same names.

    import headcount as hc
    answer = hc.capacity("llama-3.1-8b", "h100-sxm", gpus=[1, 2])
    answer.users_low, answer.notes
    answer.to_frame()
    answer.report("answer.html")

Each function is the one that the command of the same name calls. Engine arguments have vLLM's names, values without a
unit in their name have none, times are in seconds.
"""

from calibrate.readers.parsing.startup_log import StartupLog, read_startup_log
from files.arguments import checked
from files.limits import limits_raised
from headcount.answers.answer import Answer, Progress, Verdict
from headcount.answers.autoscaling.disaggregation import DisaggregationAnswer, disaggregated_capacity
from headcount.answers.autoscaling.heterogeneous_fleet import FleetAnswer, fleet
from headcount.answers.autoscaling.over_time import OverTimeAnswer, simulate_over_time
from headcount.answers.capacity import CapacityAnswer, capacity
from headcount.answers.check import CheckAnswer, check
from headcount.answers.check_steps import StepsCheckAnswer
from headcount.answers.fit import FitAnswer, fit
from headcount.answers.memory import MemoryAnswer, memory
from headcount.answers.memory_comparison import MemoryComparison, memory_comparison
from headcount.answers.notes import Note, RefusedError, Severity
from headcount.answers.plan import PlanAnswer, plan
from headcount.answers.read import ReadAnswer, read
from headcount.answers.simulate import SimulateAnswer, simulate
from headcount.answers.sweeps.compare import CompareAnswer, compare
from headcount.answers.sweeps.diff import DiffAnswer, diff
from headcount.answers.sweeps.optimize import OptimizeAnswer, optimize
from headcount.answers.sweeps.whatif import WhatifAnswer, whatif
from headcount.answers.training_memory import TrainingMemoryAnswer, training_memory
from headcount.answers.workloads.describe import DescribeAnswer, describe
from headcount.answers.workloads.fit import FitTraceAnswer, fit_trace
from kvcache.gpus.gpu import GPU, find_gpu, gpu_names
from kvcache.models.catalog import load_model, model_names
from kvcache.shape.architecture import Architecture
from simulator.deployment import Deployment, resolve
from simulator.engines.memory import memory_budget
from simulator.engines.vllm.arguments import EngineArgs
from simulator.fleet.fleet import Fleet, Pool
from simulator.fleet.view import View
from simulator.results import Result, request_times, whole_run
from simulator.simulation import Simulation
from simulator.study.slo import SLO
from workloads.load import load_workload, preset_names
from workloads.synthetic import closed_load, open_load
from workloads.traces.trace_file import TraceFile

__all__ = [
    "SLO",
    "Answer",
    "CapacityAnswer",
    "CheckAnswer",
    "CompareAnswer",
    "Deployment",
    "DescribeAnswer",
    "DiffAnswer",
    "DisaggregationAnswer",
    "EngineArgs",
    "FitAnswer",
    "FitTraceAnswer",
    "Fleet",
    "FleetAnswer",
    "MemoryAnswer",
    "MemoryComparison",
    "Note",
    "OptimizeAnswer",
    "OverTimeAnswer",
    "PlanAnswer",
    "Pool",
    "Progress",
    "ReadAnswer",
    "RefusedError",
    "Result",
    "Severity",
    "SimulateAnswer",
    "Simulation",
    "StepsCheckAnswer",
    "TraceFile",
    "TrainingMemoryAnswer",
    "Verdict",
    "View",
    "WhatifAnswer",
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
    "simulate_over_time",
    "training_memory",
    "whatif",
    "whole_run",
]  # fmt: skip

_NAMES = {"StartupLog": StartupLog, "Architecture": Architecture, "GPU": GPU}
globals().update({name: checked(found, _NAMES) for name in __all__ if not isinstance(found := globals()[name], type)})
