"""Whether our deployments start where a real vLLM's own configuration code starts them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conformance.components.cases.start_cases import StartCase
from conformance.components.probes import FOLDER
from conformance.probing import Record, answers
from files.errors import HeadcountError
from kvcache.memory.budget import MemoryBudget
from kvcache.models.catalog import find_gpu, load_model
from simulator.deployment import resolve
from simulator.engines.engines import engine_args
from simulator.engines.memory import memory_budget

SETTINGS: Final = (
    "max_model_len", "max_num_batched_tokens", "max_num_seqs", "async_scheduling", "enable_prefix_caching",
)  # fmt: skip
_ANY_RATE: Final = 0.5  # vLLM is not told how many drafts will be accepted


@dataclass(frozen=True, kw_only=True)
class StartComparison:
    """One deployment; a reason is None where it starts."""

    name: str
    vllm_version: str
    ours: str | None
    theirs: str | None
    settings: tuple[tuple[str, object, object], ...]  # those that differ where both start: name, ours, vLLM's

    @property
    def differs(self) -> bool:
        """Whether one starts and the other does not, or both start otherwise."""
        return (self.ours is None) != (self.theirs is None) or bool(self.settings)


def check_starts(python: Path, cases: Sequence[StartCase]) -> list[StartComparison]:
    """Every case here, and by the vLLM of `python`. Raises HeadcountError where vLLM cannot be run there."""
    lines = [case.to_json(_budget(case)) for case in cases]
    said = answers(python, "start_probe", lines, failure="vLLM could not be run", folder=FOLDER)
    return [compare(case, theirs) for case, theirs in zip(cases, said, strict=True)]


def compare(case: StartCase, theirs: Record) -> StartComparison:
    """One case with what the probe says of it."""
    ours = our_start(case, theirs["vllm_version"])
    both_start = ours["refused"] is None and theirs["refused"] is None
    return StartComparison(
        name=case.name,
        vllm_version=theirs["vllm_version"],
        ours=ours["refused"],
        theirs=theirs["refused"],
        settings=tuple(
            (name, ours[name], theirs[name]) for name in SETTINGS if both_start and ours[name] != theirs[name]
        ),
    )


def our_start(case: StartCase, vllm_version: str) -> Record:
    """What the probe would say if vLLM agreed with us."""
    try:
        plan = resolve(load_model(case.model), find_gpu(case.gpu), engine_args(_asked(case, vllm_version)))
    except HeadcountError as error:
        return {"refused": str(error)}
    return {"refused": None} | {name: getattr(plan.args, name) for name in SETTINGS}


def _budget(case: StartCase) -> MemoryBudget | None:
    """None where the arguments are refused before memory is counted."""
    try:
        return memory_budget(load_model(case.model), find_gpu(case.gpu), engine_args(_asked(case, None)))
    except HeadcountError:
        return None


def _asked(case: StartCase, vllm_version: str | None) -> Record:
    asked = {"vllm_version": vllm_version, **case.args}
    drafts = asked.pop("speculative_config", None)
    if drafts is not None:
        asked["speculation"] = {**drafts, "acceptance_rate": _ANY_RATE}
    return {name: value for name, value in asked.items() if value is not None}
