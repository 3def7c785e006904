"""Our LoRA slots are compared with those that vLLM's layers allocate, and a difference would be seen."""

from pathlib import Path
from typing import Any

import pytest

from conformance.components.adapters import AdapterComparison, check_adapters, compare
from conformance.components.cases.adapter_cases import AdapterCase, adapter_cases

CASES = {case.name: case for case in adapter_cases()}
LLAMA = CASES["llama TP 2"]
SLOTS_BYTES = 806_400  # of vLLM 0.33
REFUSED = CASES["qwen3_moe TP 2 DP 1 EP fully sharded"]


def compared(case: AdapterCase, **theirs: Any) -> AdapterComparison:
    found = AdapterComparison()
    compare(found, case, {"name": case.name, "vllm": "0.33.0", **theirs})
    return found


def test_equal_slots_are_no_difference_and_one_number_more_is() -> None:
    assert compared(LLAMA, bytes=SLOTS_BYTES).equal == [LLAMA.name]
    assert compared(LLAMA, bytes=SLOTS_BYTES + 2).differences == {LLAMA.name: (SLOTS_BYTES, SLOTS_BYTES + 2)}


def test_what_both_refuse_is_agreement_and_what_one_alone_refuses_is_not() -> None:
    assert compared(REFUSED, refused="AssertionError: EP").refused_by_both == [REFUSED.name]
    assert REFUSED.name in compared(REFUSED, bytes=1).differences
    assert LLAMA.name in compared(LLAMA, refused="RuntimeError: no").differences


@pytest.mark.slow
def test_every_split_has_vllm_s_slots_to_the_last_byte(vllm_python: Path) -> None:
    found = check_adapters(vllm_python, CASES.values())
    assert found.differences == {}
    assert found.refused_by_both == [name for name in CASES if name.endswith("EP fully sharded")]
    assert len(found.equal) >= 90
