"""What latency is good enough, and whose is not."""

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from simulator.core import layout
from simulator.study.replication import Replication, waits_of
from simulator.study.slo import PRESETS, SLO
from tests.simulator.study.study_tasks import shown, small_task

NOW_S = 100.0
CHAT = SLO(ttft_s=1.0, tpot_s=0.05)


@cache
def simulated() -> Replication:
    return small_task(size=20.0).run().replication


def request(
    *, arrival_s: float, first_s: float = math.nan, finish_s: float = math.nan, tokens: int = 101
) -> NDArray[np.void]:
    """One request's record; NaN for what has not happened by NOW_S."""
    record = np.zeros(1, layout.REQUEST)
    record["arrival_s"], record["first_token_s"], record["finish_s"] = arrival_s, first_s, finish_s
    record["max_tokens"] = tokens
    record["status"] = layout.RUNNING if math.isnan(finish_s) else layout.FINISHED
    return record


def fate(record: NDArray[np.void], slo: SLO = CHAT) -> tuple[bool, bool, bool]:
    """Missed the TTFT limit, missed the TPOT limit, counts."""
    ttft, tpot, decided = (bool(array[0]) for array in waits_of(record, NOW_S).missed(slo))
    return ttft, tpot, decided


def test_a_finished_request_is_held_to_both_limits() -> None:
    assert fate(request(arrival_s=0, first_s=0.5, finish_s=5.5)) == (False, False, True)  # 50 ms a token
    assert fate(request(arrival_s=0, first_s=0.5, finish_s=5.6)) == (False, True, True)
    assert fate(request(arrival_s=0, first_s=1.5, finish_s=6.5)) == (True, False, True)
    assert fate(request(arrival_s=0, first_s=1.5, finish_s=7.0)) == (True, True, True)


@given(st.floats(1e-6, 10.0), st.floats(0.0, 1.0))
def test_an_answer_of_one_token_meets_any_tpot_limit(tpot_s: float, first_s: float) -> None:
    record = request(arrival_s=0, first_s=first_s, finish_s=first_s, tokens=1)
    assert fate(record, SLO(ttft_s=1.0, tpot_s=tpot_s)) == (False, False, True)


def test_an_unfinished_request_counts_once_it_has_missed() -> None:
    waits_since = {"long ago": NOW_S - 1.1, "just now": NOW_S - 0.9}
    assert fate(request(arrival_s=waits_since["long ago"])) == (True, False, True)
    assert fate(request(arrival_s=waits_since["just now"])) == (False, False, False)
    slow = request(arrival_s=90, first_s=90.5)  # 100 tokens in 9.5 s or more
    assert fate(slow) == (False, True, True)
    in_time = request(arrival_s=96, first_s=96.5)  # 3.5 s so far: it may still finish by 5 s
    assert fate(in_time) == (False, False, False)


@given(ttft_s=st.floats(0.005, 2.0), tpot_s=st.none() | st.floats(0.001, 0.5), attainment=st.floats(0.5, 0.99))
def test_one_simulation_says_what_each_slo_would_have_shown(
    ttft_s: float, tpot_s: float | None, attainment: float
) -> None:
    slo = SLO(ttft_s=ttft_s, tpot_s=tpot_s, attainment=attainment)
    judged_at_once = small_task(slo=slo, size=20.0).run().replication
    assert shown(simulated().under(slo)) == shown(judged_at_once)


@pytest.mark.parametrize("status", [layout.ABANDONED, layout.TIMED_OUT])
def test_a_cancelled_request_has_missed_and_counts(status: int) -> None:
    """On TTFT before the first token, on TPOT after it: those that were served alone would look too good."""
    waiting, answering = request(arrival_s=0, finish_s=0.3), request(arrival_s=0, first_s=0.1, finish_s=0.3)
    for record in (waiting, answering):
        record["status"] = status
    assert fate(waiting) == (True, False, True)
    assert fate(answering) == (False, True, True)
    assert fate(answering, SLO(ttft_s=1.0, tpot_s=None)) == (False, True, True)


def test_a_limit_that_is_absent_is_missed_by_nobody() -> None:
    late = request(arrival_s=0, first_s=50, finish_s=90)
    assert fate(late, SLO(ttft_s=None, tpot_s=0.05)) == (False, True, True)
    assert fate(late, SLO(ttft_s=1.0, tpot_s=None)) == (True, False, True)


@pytest.mark.parametrize(
    "limits",
    [
        {"ttft_s": 0.0}, {"ttft_s": -1.0}, {"ttft_s": math.nan}, {"tpot_s": math.inf}, {"ttft_s": None, "tpot_s": None},
        {"attainment": 0.0}, {"attainment": 1.0}, {"attainment": 2.0}, {"attainment": math.nan},
    ],
    ids=str,
)  # fmt: skip
def test_a_target_that_nothing_or_everything_meets_is_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must|needs"):
        SLO(**limits)


def test_every_named_slo_has_a_source() -> None:
    assert PRESETS["chat"][0] == SLO()
    assert all(source for _, source in PRESETS.values())
