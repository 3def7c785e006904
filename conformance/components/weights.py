"""Our weights of one rank compared with those that vLLM's own model code builds."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from conformance.components.cases.weight_cases import WeightCase
from conformance.components.probes import FOLDER
from conformance.probing import Record, answers
from kvcache.errors import SplitError
from kvcache.models.config.reader import from_config
from kvcache.parallelism import Parallelism
from kvcache.shape.parameters import stage_tensors
from kvcache.shape.tensors import Tensor

BF16_BYTES = 2


@dataclass(kw_only=True)
class WeightComparison:
    """What was compared; `differences` holds name → (our elements, vLLM's, our bytes, vLLM's)."""

    vllm_version: str = ""
    equal: list[str] = field(default_factory=list)
    refused_by_both: list[str] = field(default_factory=list)
    refused_by_vllm: dict[str, str] = field(default_factory=dict)  # why; ours builds it
    refused_by_us: dict[str, str] = field(default_factory=dict)
    differences: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)

    @property
    def num_different(self) -> int:
        """Cases that are not as vLLM has them."""
        return len(self.differences) + len(self.refused_by_us) + len(self.refused_by_vllm)


def check_weights(python: Path, cases: Iterable[WeightCase]) -> WeightComparison:
    """Count every case's weights here, and in the modules that the vLLM of `python` builds.

    Raises HeadcountError where vLLM cannot be run there.
    """
    found, listed = WeightComparison(), list(cases)
    lines = [case.to_json() for case in listed]
    theirs = answers(python, "weights_probe", lines, failure="vLLM could not build models", folder=FOLDER)
    for case, answer in zip(listed, theirs, strict=True):
        compare(found, case, answer)
    return found


def compare(found: WeightComparison, case: WeightCase, theirs: Record) -> None:
    """Enter one case with what the probe says of it."""
    found.vllm_version = theirs["vllm"]
    try:
        tensors = _tensors(case)
    except SplitError as error:
        if "refused" in theirs:
            found.refused_by_both.append(case.name)
        else:
            found.refused_by_us[case.name] = str(error)
        return
    if "refused" in theirs:
        found.refused_by_vllm[case.name] = theirs["refused"]
        return
    elements = sum(tensor.elements for tensor in tensors)
    size_bytes = sum(tensor.elements * (tensor.element_bytes or BF16_BYTES) for tensor in tensors)
    if (elements, size_bytes) == (theirs["elements"], theirs["bytes"]):
        found.equal.append(case.name)
    else:
        found.differences[case.name] = (elements, theirs["elements"], size_bytes, theirs["bytes"])


def _tensors(case: WeightCase) -> list[Tensor]:
    parallelism = Parallelism(
        tensor_parallel_size=case.tensor_parallel_size,
        data_parallel_size=case.data_parallel_size,
        enable_expert_parallel=case.enable_expert_parallel,
    )
    tensors = stage_tensors(from_config(case.config, name=case.name), parallelism, 0)
    # Gemma 4's scalar of each layer is a buffer to vLLM, whose parameters are compared.
    return [tensor for tensor in tensors if (tensor.component, tensor.elements) != ("residual", 1)]
