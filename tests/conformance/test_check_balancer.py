"""Our balancer of data-parallel engines is compared with vLLM's, and a difference would be seen."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance import balancer
from conformance.balancer import check_balancer, our_choices, random_balancer_case


def test_cases_are_the_same_again_and_reports_are_among_them() -> None:
    assert random_balancer_case(3, 5) == random_balancer_case(3, 5)
    assert random_balancer_case(3, 5) != random_balancer_case(3, 6)
    what = {next(iter(operation)) for operation in random_balancer_case(3, 5)["operations"]}
    assert what == {"send", "end", "report"}


def test_a_choice_that_is_another_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    def almost_ours(_: Path, __: str, cases: list[Any], **___: Any) -> Iterator[dict[str, Any]]:
        yield {"vllm_version": "none"}
        for number, case in enumerate(cases):
            chosen = our_choices(case)
            if number == 1:
                chosen[7] = (chosen[7] + 1) % case["num_engines"]
            yield {"name": case["name"], "chosen": chosen}

    monkeypatch.setattr(balancer, "probe_records", almost_ours)
    found = check_balancer(Path("python"), num_cases=3, seed=1)
    assert (found.cases, len(found.differences)) == (3, 1)
    assert found.differences[0]["request"] == 7
    assert found.choices == sum("send" in each for n in range(3) for each in random_balancer_case(1, n)["operations"])
