"""What a handover takes, beside measurements."""

import pytest

from simulator.disaggregation import DISPATCH_S
from simulator.fleet.fleet import Handover
from validation.kv_transfer import HANDOVER_S, STEP_S, handover_s, transfers


def test_transfers_take_what_mooncake_measured_within_10_percent() -> None:
    rows = transfers()
    assert len(rows) == 4
    assert {row.what: row.error for row in rows} == {row.what: pytest.approx(0, abs=0.1) for row in rows}


def test_a_handover_takes_197_ms_within_30_percent() -> None:
    assert handover_s(Handover(dispatch_s=DISPATCH_S)) == pytest.approx(HANDOVER_S, rel=0.3)


def test_a_push_saves_the_dispatch_and_costs_up_to_a_step() -> None:
    pushed_s, undispatched_s = handover_s(Handover(pushes=True)), handover_s(Handover())
    assert undispatched_s < pushed_s < undispatched_s + STEP_S
