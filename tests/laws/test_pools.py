"""Pools serve the same users whichever command asks, and whatever else was asked."""

from typing import Any

import pytest

import headcount as hc
from tests.headcount.conftest import FOUR_AT_ONCE

ASKED: dict[str, Any] = FOUR_AT_ONCE | {"seed": 3}
PAIRS = ("prefill=1,decode=1", "prefill=1,decode=2")


def compared(*pools: str) -> dict[str, dict[str, Any]]:
    """Rows of `compare` by their pools."""
    answer = hc.compare("llama-3.1-8b", "h100-sxm", gpus=2, pools=pools, sort="users", **ASKED)
    return {row.get("pools", pools[0]): row for row in answer.to_json()["layouts"]}


def users_of(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["users_low"], row["users"], row["users_high"]


@pytest.mark.slow
def test_one_disaggregated_fleet_has_the_same_users_in_every_command() -> None:
    alone = hc.disaggregated_capacity("llama-3.1-8b", "h100-sxm", PAIRS[1], **ASKED)
    expected = alone.users_low, alone.users, alone.users_high
    assert alone.users_low > 0
    assert users_of(compared(PAIRS[1])[PAIRS[1]]) == expected
    assert users_of(compared(*PAIRS, "together")[PAIRS[1]]) == expected, "the best of several is confirmed"
    plan = hc.plan("llama-3.1-8b", gpu="h100-sxm", users=alone.users_low, pools="prefill=tp1,decode=tp1", **ASKED)
    rows = [row for row in plan.to_json()["fleets"] if row["prefill_tp"] is not None]
    assert [(row["prefill_servers"], row["servers"], row["evidence"]) for row in rows] == [(1, 3, "confirmed")]
    assert users_of(rows[0]) == expected


@pytest.mark.slow
def test_the_order_of_pools_and_the_other_pools_change_no_figure() -> None:
    """A pool alone is what `capacity` says, and a fleet's pools may be named in any order."""
    both = {"h100-sxm": 2, "l40s": 1}
    fleets = [hc.fleet("llama-3.1-8b", dict(pools), **ASKED) for pools in (both.items(), reversed(both.items()))]
    assert fleets[0].users_low == fleets[1].users_low > 0
    for gpu, count in both.items():
        row = hc.capacity("llama-3.1-8b", gpu, gpus=[count], **ASKED).best
        for answer in fleets:
            (alone,) = (each for each in answer.rows() if each["gpu"] == gpu)
            assert (alone["users_alone_low"], alone["users_alone"]) == (row.users_low, row.users)
