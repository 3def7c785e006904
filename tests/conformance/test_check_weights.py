"""Our weights of one rank are compared with vLLM's own modules, and a difference would be seen."""

from pathlib import Path

import pytest

from conformance.components.cases.weight_cases import WeightCase, weight_cases
from conformance.components.weights import WeightComparison, check_weights, compare
from kvcache.models.config.reader import from_config
from kvcache.parallelism import Parallelism
from kvcache.shape.parameters import stage_tensors

LLAMA = next(iter(weight_cases()))
FALCON = next(case for case in weight_cases() if case.name == "falcon_h1 TP 4")


def built(case: WeightCase, more_elements: int = 0, more_bytes: int = 0) -> dict[str, object]:
    """What the probe would say if vLLM agreed with us, and a bit more."""
    tensors = stage_tensors(from_config(case.config, name=case.name), Parallelism(), 0)
    elements = sum(tensor.elements for tensor in tensors)
    return {
        "name": case.name,
        "vllm": "0.32.0",
        "elements": elements + more_elements,
        "bytes": 2 * (elements + more_elements) + more_bytes,
    }


def compared(case: WeightCase, theirs: dict[str, object]) -> WeightComparison:
    found = WeightComparison()
    compare(found, case, theirs)
    return found


def test_equal_weights_are_no_difference() -> None:
    assert compared(LLAMA, built(LLAMA)).equal == [LLAMA.name]


@pytest.mark.parametrize("more", [(1, 0), (0, 2)])
def test_one_element_or_one_wider_number_is_a_difference(more: tuple[int, int]) -> None:
    found = compared(LLAMA, built(LLAMA, *more))
    assert (found.equal, list(found.differences)) == ([], [LLAMA.name])


def test_a_split_that_both_refuse_is_agreement_and_one_alone_is_not() -> None:
    refused = {"name": FALCON.name, "vllm": "0.32.0", "refused": "AssertionError: groups"}
    assert compared(FALCON, refused).refused_by_both == [FALCON.name]
    alone = {"name": FALCON.name, "vllm": "0.32.0", "elements": 1, "bytes": 2}
    assert "2 state-space groups" in compared(FALCON, alone).refused_by_us[FALCON.name]
    assert compared(LLAMA, {**refused, "name": LLAMA.name}).refused_by_vllm == {LLAMA.name: "AssertionError: groups"}


@pytest.mark.slow
def test_every_split_has_vllm_s_weights_to_the_last_byte(vllm_python: Path) -> None:
    found = check_weights(vllm_python, weight_cases())
    assert (found.num_different, found.differences, found.refused_by_us, found.refused_by_vllm) == (0, {}, {}, {})
    assert found.refused_by_both == [FALCON.name, "bailing_hybrid 2.6 TP 4"]
    assert len(found.equal) >= 80
