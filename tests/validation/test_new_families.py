"""Public figures of the families of 2025 and 2026 have sources, and sizes stay as they were compared."""

import json
import tomllib

import pandas as pd
import pytest

from kvcache.models.catalog import load_model
from validation import cookbook, new_families

FACTS = tomllib.loads(new_families.FACTS.read_text(encoding="utf-8"))
FOUND = json.loads(new_families.RESULT.read_text(encoding="utf-8"))


def test_every_fact_has_a_source_and_a_known_model() -> None:
    for row in [*FACTS["sizes"], *FACTS["runs"]]:
        assert row["source"] in FACTS["sources"] and row["file"]
    words = [run["arguments"].split() for run in FACTS["runs"]]
    for name in [*(row["model"] for row in FACTS["sizes"]), *(each[each.index("--model") + 1] for each in words)]:
        load_model(name)
    assert len(FOUND["runs"]) == sum(len(run["loads"]) for run in FACTS["runs"])


@pytest.mark.parametrize("place", range(len(FACTS["sizes"])))
def test_sizes_are_within_3_percent_but_one(place: int) -> None:
    row, stored = FACTS["sizes"][place], FOUND["sizes"][place]
    measured = new_families._size(row)
    assert measured["ours_gib"] == stored["ours_gib"]
    assert abs(measured["error_percent"]) <= (7.1 if row["model"] == "moonshotai/Kimi-K3" else 3)


def test_every_run_of_the_cookbook_was_compared_and_says_where_it_is_from() -> None:
    facts = pd.read_csv(cookbook.FACTS).fillna({"arguments": ""})
    assert facts[["release", "file", "version"]].notna().all(axis=None)
    assert set(facts["statistic"]) == {"P50", "mean"}
    stored = json.loads(cookbook.RESULT.read_text(encoding="utf-8"))["runs"]
    assert len(stored) == len(facts) and not any("refused" in run for run in stored)
    few = facts[facts["clients"] == 1].iloc[::20]
    assert cookbook.measure(few) == [stored[place] for place in few.index]
