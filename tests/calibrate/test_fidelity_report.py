"""The page on fidelity is what the saved results say, and they say enough."""

import json
from pathlib import Path
from typing import Any

import pytest

from calibrate.conformance.fidelity_report import MEANINGS, fidelity_page

ROOT = Path(__file__).parent.parent.parent
RESULTS = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "docs" / "results").glob("*.json"))]
COMPARISONS = [result for result in RESULTS if "pairs" in result]
ENGINES = [result for result in RESULTS if "attention" in result]


def test_the_page_is_written_by_the_tool() -> None:
    page = (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")
    assert page == fidelity_page(COMPARISONS, ENGINES), "run 'headcount calibrate fidelity-report' again"


@pytest.mark.parametrize("result", COMPARISONS, ids=lambda result: result["vllm_version"])
def test_enough_was_compared_in_each_release(result: dict[str, Any]) -> None:
    assert result["differing_cases"] == 0
    assert result["cases"] >= 2000
    assert result["steps"] >= 500_000
    assert result["preemptions"] >= 20_000
    assert result["storms"] >= 400
    assert result["fewest_storm_preemptions"] >= 10
    assert len(result["options"]) == len(MEANINGS)
    assert min(result["options"].values()) >= 50
    assert min(result["pairs"].values()) >= 50


def test_two_releases_and_real_engines_were_compared() -> None:
    assert len({result["vllm_version"] for result in COMPARISONS}) >= 2
    assert {(result["vllm_version"], result["attention"]) for result in ENGINES} >= {
        (release["vllm_version"], attention) for release in COMPARISONS for attention in ("full", "hybrid")
    }
    assert all(result["difference"] is None for result in ENGINES)
    assert all(result["steps"] >= 1000 and result["preemptions"] >= 20 for result in ENGINES)


def test_a_result_with_a_difference_is_not_published() -> None:
    with pytest.raises(ValueError, match=r"vLLM 0\.32\.0 has a difference"):
        fidelity_page([{"vllm_version": "0.32.0", "differing_cases": 1}], [])


def test_an_option_without_a_meaning_is_told() -> None:
    unknown = COMPARISONS[0] | {"options": COMPARISONS[0]["options"] | {"colour: red": 3}}
    with pytest.raises(ValueError, match="colour: red"):
        fidelity_page([unknown], [])
