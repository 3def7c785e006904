"""Published runs with drafts, simulated under today's constants."""

from pathlib import Path

from validation.accuracy.drafts import drafts


def test_published_tpots_with_drafts_are_near_and_the_best_number_of_drafts_is_the_measured_one() -> None:
    found = drafts(Path())
    assert found["worst"] < 7
    assert found["best"] == {
        name: {"measured": best, "simulated": best} for name, best in (("eagle", 3), ("eagle3", 4))
    }
