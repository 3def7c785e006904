"""Our radix tree is compared with SGLang's, and a difference would be seen."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance import radix_tree
from conformance.cases.radix_cases import PAGE_SIZES, random_radix_case
from conformance.radix_tree import OurTree, check_radix_tree
from simulator.engines.sglang.eviction import EVICTION_POLICIES

EVERY_PAIR = len(PAGE_SIZES) * len(EVICTION_POLICIES)


def test_a_case_is_decided_by_its_seed_and_number_alone() -> None:
    one, again, other = random_radix_case(3, 5), random_radix_case(3, 5), random_radix_case(3, 6)
    assert json.dumps(one.to_json("rust")) == json.dumps(again.to_json("rust")) != json.dumps(other.to_json("rust"))


def test_every_policy_meets_every_page_size() -> None:
    cases = [random_radix_case(0, number) for number in range(EVERY_PAIR)]
    assert len({(case.page_size, case.radix_eviction_policy) for case in cases}) == EVERY_PAIR


@pytest.mark.parametrize("place", range(4))
def test_a_planted_difference_is_found(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang's side is our own with one figure changed."""

    def altered(_python: Path, _probe: str, cases: Iterator[dict[str, Any]], **_: Any) -> Iterator[dict[str, Any]]:
        yield {"sglang_version": "0"}
        for number, _case in enumerate(cases):
            answers = OurTree(random_radix_case(1, number // 2)).answers()
            answers[40][place] = -1
            yield {"answers": answers}

    monkeypatch.setattr(radix_tree, "probe_records", altered)
    found = check_radix_tree(Path("unused"), num_cases=1, seed=1)
    assert [each["number"] for each in found.differences] == [40, 40]
