"""Our ranks of an SGLang server are compared with SGLang's, and a difference would be seen."""

import json
import secrets
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from conformance import sglang_ranks
from conformance.sglang_ranks import OF_CASES, OurServer, check_ranks, ranks_case


def test_a_case_is_decided_by_its_seed_and_number_alone() -> None:
    one, again, other = ranks_case(3, 5), ranks_case(3, 5), ranks_case(3, 6)
    assert json.dumps(one.to_json()) == json.dumps(again.to_json()) != json.dumps(other.to_json())


def test_every_kind_of_case_meets_every_number_of_ranks() -> None:
    cases = [ranks_case(0, number) for number in range(12 * len(OF_CASES))]
    met = {(OF_CASES[number % len(OF_CASES)], case.ranks) for number, case in enumerate(cases)}
    assert met == {(about, ranks) for about in OF_CASES for ranks in (2, 3, 4)}


@pytest.mark.parametrize(
    "planted", ["scheduled", "running", "waiting", "free", "ratio", "finished", "extra", "crashed"]
)
def test_a_planted_difference_is_found(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang's side is our own with one thing of a rank changed."""

    def altered(_python: Path, _probe: str, lines: Iterator[dict[str, Any]], **_: Any) -> Iterator[dict[str, Any]]:
        yield {"sglang_version": "0"}
        for number, line in enumerate(lines):
            server = OurServer(ranks_case(4, number))
            server.run()
            records = [deepcopy(batch) | {"rank": rank} for rank, of in enumerate(server.records) for batch in of]
            if number == 1 and planted == "extra":
                records.append(records[-1])
            elif number == 1 and planted != "crashed":
                was = records[-1][planted]
                records[-1][planted] = [*was, [7, 7]] if isinstance(was, list) else -1
            yield {"name": line["name"], "crashed": (number == 1 and planted == "crashed"), "records": records}

    monkeypatch.setattr(sglang_ranks, "probe_records", altered)
    found = check_ranks(Path("unused"), num_cases=2, seed=4)
    assert [each["case"] for each in found.differences] == ["4/1"]
    assert json.loads(json.dumps(found.to_json()))["differing_cases"] == 1


@pytest.mark.slow
def test_ranks_decide_as_sglang_s_own_schedulers(sglang_python: Path) -> None:
    found = check_ranks(sglang_python, num_cases=40, seed=secrets.randbelow(2**31))
    assert found.differences == []
    assert found.waited > 0
