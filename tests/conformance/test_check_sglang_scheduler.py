"""Our SGLang scheduler is compared with SGLang's, and a difference would be seen."""

import json
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from conformance import sglang_scheduler
from conformance.cases.radix_cases import PAGE_SIZES
from conformance.cases.sglang_cases import STORM_EVERY, random_sglang_case
from conformance.sglang_scheduler import case_options, check_sglang_scheduler, our_batches
from simulator.engines.sglang.engine import SCHEDULE_POLICIES


def test_a_case_is_decided_by_its_seed_and_number_alone() -> None:
    one, again, other = random_sglang_case(3, 5), random_sglang_case(3, 5), random_sglang_case(3, 6)
    assert json.dumps(one.to_json()) == json.dumps(again.to_json()) != json.dumps(other.to_json())


def test_every_policy_meets_every_page_size_in_storms_and_without() -> None:
    cases = [random_sglang_case(0, number) for number in range(len(PAGE_SIZES) * len(SCHEDULE_POLICIES) * STORM_EVERY)]
    met = Counter((case.engine.schedule_policy, case.engine.page_size) for case in cases)
    assert len(met) == len(PAGE_SIZES) * len(SCHEDULE_POLICIES)
    assert set(met.values()) == {STORM_EVERY}
    options = Counter(option for case in cases for option in case_options(case))
    assert len(options) == 3 + len(SCHEDULE_POLICIES) + 5 + 4
    assert min(options.values()) >= 3, options


PLANTED = ("mode", "scheduled", "prefixes", "retracted", "aborted", "running", "waiting", "free", "evictable", "ratio",
           "free_in_windows", "evictable_in_windows", "finished", "extra", "crashed")  # fmt: skip


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_difference_is_found(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang's side is our own with one thing changed."""

    def altered(_python: Path, _probe: str, _cases: Iterator[dict[str, Any]], **_: Any) -> Iterator[dict[str, Any]]:
        yield {"sglang_version": "0"}
        batches = deepcopy(batches_of_one_case())
        change(batches, planted)
        yield {"name": "4/0", "crashed": planted == "crashed", "records": batches}

    monkeypatch.setattr(sglang_scheduler, "probe_records", altered)
    found = check_sglang_scheduler(Path("unused"), num_cases=1, seed=4)
    assert len(found.differences) == 1
    told = json.loads(json.dumps(found.to_json()))
    assert told["differing_cases"] == 1
    assert told["options"]["page_size: 1"] == 1


def change(batches: list[dict[str, Any]], planted: str) -> None:
    if planted == "extra":
        batches.append(batches[-1])
    elif planted != "crashed":
        was = batches[20][planted]
        pair = [7, 7] if planted in {"scheduled", "prefixes"} else 7
        batches[20][planted] = [*was, pair] if isinstance(was, list) else -1


@cache
def batches_of_one_case() -> list[dict[str, Any]]:
    return our_batches(random_sglang_case(4, 0))[0]


def test_storms_retract() -> None:
    batches = [batch for number in (0, 3, 6) for batch in our_batches(random_sglang_case(4, number))[0]]
    assert sum(len(batch["retracted"]) for batch in batches) > 5


def test_an_interpreter_without_sglang_is_one_clear_error(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 'ModuleNotFoundError: No module named sglang' >&2\nexit 1\n", encoding="utf-8")
    fake.chmod(0o755)
    with pytest.raises(
        ValueError, match=r"could not be driven by .*python: ModuleNotFoundError: No module named sglang"
    ):
        check_sglang_scheduler(fake, num_cases=1, seed=0)
