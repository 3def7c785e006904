"""Our schedule compared with that of a real engine at inference, step by step."""

from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from conformance.cases.scheduler_case import SchedulerCase
from conformance.components.cases.engine_cases import EngineCase, engine_case
from conformance.components.probes import FOLDER
from conformance.our_steps import core_steps, readable_steps
from conformance.probing import Record, probe_records
from conformance.step_records import Difference, first_difference, num_prefix_hits, read_record
from files.errors import HeadcountError
from simulator.engines.vllm.defaults import default_retention_interval
from simulator.engines.vllm.engine import with_release_rules


@dataclass(kw_only=True)
class EngineComparison:
    """What was compared, with the first difference if there is one."""

    seed: int
    attention: str
    vllm_version: str = ""
    settings: dict[str, Any] = field(default_factory=dict)  # as the engine ran with them
    kv_cache_groups: list[dict[str, Any]] = field(default_factory=list)  # as vLLM formed them
    steps: int = 0
    preemptions: int = 0
    prefix_hits: int = 0
    finished: int = 0
    difference: Difference | None = None

    def to_json(self) -> dict[str, Any]:
        return self.__dict__ | {"difference": asdict(self.difference) if self.difference else None}


def check_engine(python: Path, *, seed: int, attention: str = "full") -> EngineComparison:
    """Run a seed's load through real inference on the CPU under `python`, and through the compiled core.

    Raises HeadcountError where the engine cannot be run there, or runs with other settings than the case's.
    """
    case = engine_case(seed, attention)
    found = EngineComparison(seed=seed, attention=attention)
    failure = "vLLM's engine could not be run"
    lines = probe_records(python, "engine_probe", [case.to_json()], failure=failure, folder=FOLDER)
    with closing(lines):
        _take_start(found, case, next(lines, {}), python)
        theirs = [read_record(line) for line in lines if "case" not in line]
    found.steps = len(theirs)
    found.preemptions = sum(len(record["preempted"]) for record in theirs)
    found.prefix_hits = num_prefix_hits(theirs)
    found.finished = sum(len(record["finished"]) for record in theirs)
    ours = _of_release(case, found.vllm_version)
    found.difference = first_difference(
        ours.engine, readable_steps(ours), theirs, of="readable scheduler"
    ) or first_difference(ours.engine, core_steps(ours), theirs, of="compiled core")
    return found


def _take_start(found: EngineComparison, case: EngineCase, start: Record, python: Path) -> None:
    """Note what the engine is; ValueError unless it is the case's."""
    if "settings" not in start:
        raise HeadcountError(f"vLLM's engine could not be run by {python}: it printed nothing")
    found.vllm_version, found.settings = start["vllm_version"], start["settings"]
    found.kv_cache_groups = start["kv_cache_groups"]
    wanted = case.scheduler.engine.__dict__
    others = [
        f"{name} is {value}, not {wanted[name]}" for name, value in found.settings.items() if value != wanted[name]
    ]
    formed = [group["sliding_window"] for group in found.kv_cache_groups]
    windows = [group.window for group in case.scheduler.engine.kv_groups]
    if formed != windows:
        others.append(f"its layer groups have the windows {formed}, not {windows}")
    if others:
        raise HeadcountError(
            f"the engine of vLLM {found.vllm_version} runs with settings of its own: {'; '.join(others)}"
        )


def _of_release(case: EngineCase, vllm_version: str) -> SchedulerCase:
    engine = replace(
        with_release_rules(case.scheduler.engine, vllm_version),
        prefix_cache_retention_interval=default_retention_interval(vllm_version),
    )
    return replace(case.scheduler, engine=engine)
