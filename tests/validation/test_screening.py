"""The comparison of estimates with searches."""

import json

import pytest

from validation.screening.__main__ import STORED, compare, ranking
from validation.screening.cases import cases

SEARCHED = json.loads(STORED.read_text(encoding="utf-8"))


def test_every_layout_was_searched() -> None:
    assert [case.name for case in cases()] == list(SEARCHED)


@pytest.mark.slow
def test_four_estimates_in_five_come_within_a_quarter_and_rank_layouts_rightly() -> None:
    compared = [compare(case, SEARCHED[case.name]) for case in cases()]
    ratios = [found.ratio for found in compared if found.ratio is not None]
    assert sum(0.75 <= ratio <= 1.25 for ratio in ratios) >= 0.8 * len(ratios)
    assert sum(1 / 1.6 <= ratio <= 1.6 for ratio in ratios) >= 0.95 * len(ratios)
    right, ranked = ranking(compared)
    assert right >= 0.9 * ranked > 0
