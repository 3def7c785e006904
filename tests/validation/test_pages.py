"""Pages made from code or from stored results are current, and the results say enough."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from calibrate.interpreters.recipe import find_recipe
from validation.accuracy import page as accuracy_page
from validation.accuracy.__main__ import RESULTS as ACCURACY
from validation.markdown import DOCS, filled
from validation.pages.__main__ import outdated
from validation.pages.fidelity import MEANINGS, fidelity_tables

RESULTS = [
    json.loads(path.read_text(encoding="utf-8")) for path in sorted((DOCS / "measurements" / "results").glob("*.json"))
]
STATES = [result for result in RESULTS if result.get("about") == "states"]
COMPARISONS = [result for result in RESULTS if "pairs" in result and result not in STATES]
ENGINES = [result for result in RESULTS if "attention" in result]


def test_pages_are_what_the_code_says() -> None:
    assert outdated(write=False) == [], "run 'python -m validation.pages'"


def test_a_page_and_its_tables_have_the_same_names() -> None:
    page = "<!-- generated: one -->\nold\n<!-- end -->\n"
    assert filled(page, {"one": lambda: "new"}) == page.replace("old", "new")
    with pytest.raises(ValueError, match="disagree about two"):
        filled(page, {"one": str, "two": str})


def test_the_readme_of_validation_names_every_command_of_it() -> None:
    folder = DOCS.parent / "validation"
    runnable = {
        ".".join(path.relative_to(DOCS.parent).with_suffix("").parts).removesuffix(".__main__")
        for path in folder.rglob("*.py")
        if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")
    }
    named = set(re.findall(r"python -m (validation[\w.]*)", (folder / "README.md").read_text(encoding="utf-8")))
    assert len(runnable) >= 20
    assert named == runnable


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


def test_enough_was_compared_with_states_in_the_prefix_cache() -> None:
    assert {"0.32.0", "0.33.0"} <= {result["vllm_version"] for result in STATES}
    assert all(result["differing_cases"] == 0 and result["cases"] >= 1000 for result in STATES)
    assert all(result["steps"] >= 500_000 and result["prefix_hits"] >= 5000 for result in STATES)
    assert all(result["options"]["states: cached"] == result["cases"] for result in STATES)


def test_two_releases_and_real_engines_were_compared() -> None:
    assert len({result["vllm_version"] for result in COMPARISONS}) >= 2
    whole = [release["vllm_version"] for release in COMPARISONS if not find_recipe(release["vllm_version"]).limit]
    assert len(whole) >= 2
    assert {(result["vllm_version"], result["attention"]) for result in ENGINES} >= {
        (version, attention) for version in whole for attention in ("full", "hybrid")
    }
    assert all(result["difference"] is None for result in ENGINES)
    assert all(result["steps"] >= 1000 and result["preemptions"] >= 20 for result in ENGINES)


def test_a_result_with_a_difference_is_not_published(tmp_path: Path) -> None:
    result = {"vllm_version": "0.32.0", "differing_cases": 1, "pairs": {}}
    (tmp_path / "result.json").write_text(json.dumps(result), encoding="utf-8")
    with pytest.raises(ValueError, match=r"in result\.json has a difference"):
        fidelity_tables(tmp_path)


def test_an_option_without_a_meaning_is_told(tmp_path: Path) -> None:
    unknown = COMPARISONS[0] | {"options": COMPARISONS[0]["options"] | {"colour: red": 3}}
    (tmp_path / "result.json").write_text(json.dumps(unknown), encoding="utf-8")
    with pytest.raises(ValueError, match="colour: red"):
        fidelity_tables(tmp_path)["options"]()


@pytest.mark.parametrize("path", accuracy_page.PAGES, ids=lambda path: path.name)
def test_the_tables_of_accuracy_are_those_of_the_stored_figures(path: Path) -> None:
    results = json.loads(ACCURACY.read_text(encoding="utf-8"))
    text = path.read_text(encoding="utf-8")
    assert accuracy_page.filled(text, results) == text, "run python -m validation.accuracy --pages"
