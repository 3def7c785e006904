"""What latency is good enough, and whose is not."""

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from files.errors import HeadcountError
from simulator.core import layout
from simulator.study.replication import Replication, waits_of
from simulator.study.slo import PRESETS, SLO, find_slo
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


@given(
    ttft_s=st.floats(0.005, 2.0),
    tpot_s=st.none() | st.floats(0.001, 0.5),
    attainment=st.floats(0.5, 0.99),
    token_s=st.just(0.0) | st.floats(1e-6, 1e-2),
)
def test_one_simulation_says_what_each_slo_would_have_shown(
    ttft_s: float, tpot_s: float | None, attainment: float, token_s: float
) -> None:
    slo = SLO(ttft_s=ttft_s, tpot_s=tpot_s, attainment=attainment, ttft_token_s=token_s)
    judged_at_once = small_task(slo=slo, size=20.0).run().replication
    assert shown(simulated().under(slo)) == shown(judged_at_once)


@given(cached=st.integers(-1, 900), prompt=st.integers(901, 5000), token_s=st.floats(0, 1e-2), over=st.booleans())
def test_a_limit_may_grow_with_the_tokens_that_no_cache_has(
    cached: int, prompt: int, token_s: float, over: bool
) -> None:
    """Of a request that was never admitted (-1) all tokens are new."""
    new = prompt - max(cached, 0)
    first_s = (1.0 + token_s * new) * (1.001 if over else 0.999)
    record = request(arrival_s=0, first_s=first_s, finish_s=first_s + 1.0)
    record["prompt"], record["cached_tokens"] = prompt, cached
    assert fate(record, SLO(ttft_s=1.0, ttft_token_s=token_s)) == (over, False, True)


@given(ttft_ms=st.integers(1, 9999), more_ms=st.integers(0, 999), factor=st.sampled_from((0.5, 1.0, 2.0, 4.0)))
def test_a_limit_is_read_as_it_is_said(ttft_ms: int, more_ms: int, factor: float) -> None:
    given_text = f"{ttft_ms}ms + {more_ms / 1000}s/1K" if more_ms else f"{ttft_ms}ms"
    slo = find_slo(ttft_s=given_text).with_ttft(factor)
    again = find_slo(ttft_s=slo.ttft_option.strip("'"))
    assert again.ttft_s == pytest.approx(factor * ttft_ms / 1e3, rel=1e-3)
    assert again.ttft_token_s == pytest.approx(factor * more_ms / 1e6, rel=1e-3)
    assert f"TTFT ≤ {slo.ttft_text}" in str(slo)


@pytest.mark.parametrize(
    "text", ["1s +", "1s + 0.1s", "1s + 0.1s/2K", "+ 1s/1K", "1s + x/1K", "1 + 1s/1K", "1s+-1s/1K"]
)
def test_a_limit_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(HeadcountError, match="such as"):
        find_slo(ttft_s=text)


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
        {"ttft_token_s": -1e-3}, {"ttft_token_s": math.nan}, {"ttft_s": None, "ttft_token_s": 1e-3},
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
