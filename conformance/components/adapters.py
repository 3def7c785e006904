"""Our LoRA slots of one rank compared with those that vLLM's own layers allocate."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from conformance.components.cases.adapter_cases import AdapterCase
from conformance.components.probes import FOLDER
from conformance.probing import Record, answers
from files.errors import HeadcountError
from kvcache.memory.adapters import check_split, slots_bytes
from kvcache.models.config.reader import from_config
from kvcache.parallelism import Parallelism


@dataclass(frozen=True)
class _Settings:
    max_loras: int
    max_lora_rank: int
    fully_sharded_loras: bool
    specialize_active_lora: bool = False
    lora_dtype: str = "auto"


@dataclass(kw_only=True)
class AdapterComparison:
    """What was compared; `differences` holds name → (our bytes or reason, vLLM's)."""

    vllm_version: str = ""
    equal: list[str] = field(default_factory=list)
    refused_by_both: list[str] = field(default_factory=list)
    differences: dict[str, tuple[int | str, int | str]] = field(default_factory=dict)


def check_adapters(python: Path, cases: Iterable[AdapterCase]) -> AdapterComparison:
    """Count every case's slots here, and in the layers that the vLLM of `python` wraps.

    Raises HeadcountError where vLLM cannot be run there.
    """
    found, listed = AdapterComparison(), list(cases)
    lines = [case.to_json() for case in listed]
    theirs = answers(python, "adapters_probe", lines, failure="vLLM could not allocate slots", folder=FOLDER)
    for case, answer in zip(listed, theirs, strict=True):
        compare(found, case, answer)
    return found


def compare(found: AdapterComparison, case: AdapterCase, theirs: Record) -> None:
    """Enter one case with what the probe says of it."""
    found.vllm_version = theirs["vllm"]
    ours = _slots(case)
    if isinstance(ours, str) and "refused" in theirs:
        found.refused_by_both.append(case.name)
    elif ours == theirs.get("bytes"):
        found.equal.append(case.name)
    else:
        found.differences[case.name] = (ours, theirs.get("bytes", theirs.get("refused")))


def _slots(case: AdapterCase) -> int | str:
    """Bytes, or why not."""
    settings = _Settings(case.max_loras, case.max_lora_rank, case.fully_sharded_loras)
    try:
        parallelism = Parallelism(
            tensor_parallel_size=case.tensor_parallel_size, enable_expert_parallel=case.enable_expert_parallel
        )
        arch = from_config(case.config, name=case.name)
        check_split(arch, parallelism, settings)
        return slots_bytes(arch, parallelism, 0, settings)
    except HeadcountError as error:
        return str(error)
