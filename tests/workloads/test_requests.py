"""The request table's laws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from files.reading import InputError
from workloads.requests import NEXT_FREE, OPEN_END, RequestTable, independent_requests


def make_table(**changes: Any) -> RequestTable:
    """Two conversations of two turns each behind one shared system prompt of 100 tokens, with columns changed."""
    nan = np.nan
    table = RequestTable(
        arrival_s=np.array([0.0, nan, 5.0, nan]),
        follows=np.array([-1, 0, -1, 2]),
        think_s=np.array([0.0, 3.0, 0.0, 4.0]),
        prompt_tokens=np.array([110, 150, 120, 160], np.int32),
        output_tokens=np.array([20, 30, 10, 5], np.int32),
        priority=np.zeros(4, np.int32),
        span_start=np.array([0, 0, 2, 2]),
        span_count=np.full(4, 2, np.int32),
        span_content=np.array([0, 1, 0, 2]),
        span_end=np.array([100, OPEN_END, 100, OPEN_END], np.int32),
    )
    return replace(table, **{name: np.asarray(v, getattr(table, name).dtype) for name, v in changes.items()})


def test_a_well_formed_table_is_accepted() -> None:
    make_table().validate()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt_tokens": [110, -3, 120, 160]}, "row 1: prompt_tokens is -3; it must be at least 1"),
        ({"output_tokens": [20, 30, 0, 5]}, "row 2: output_tokens is 0; it must be at least 1"),
        ({"prompt_tokens": [110, 2**31 - 20, 120, 160]}, "row 1: prompt_tokens"),
        ({"arrival_s": [np.nan, np.nan, 5, np.nan]}, "row 0: arrival_s is nan; it must be a finite"),
        ({"arrival_s": [0, np.nan, -1, np.nan]}, "row 2: arrival_s is -1.0"),
        ({"arrival_s": [0, 7, 5, np.nan]}, "row 1: arrival_s is 7.0; it must be NaN"),
        ({"think_s": [0, np.inf, 0, 4]}, "row 1: think_s is inf"),
        ({"think_s": [1, 3, 0, 4]}, "row 0: think_s is 1.0; it must be 0 where no turn is followed"),
        ({"follows": [-1, 1, -1, 2]}, "row 1: follows is 1; it must be an earlier row"),
        ({"follows": [-1, 2, -1, 2]}, "row 1: follows is 2; it must be an earlier row"),
        ({"follows": [-1, -3, -1, 2]}, "row 1: follows is -3"),
        ({"follows": [-1, 0, -1, 0]}, "row 0: the number of rows that follow it is 2"),
        ({"span_start": [0, 0, 3, 2]}, "row 2: span_start is 3"),
        ({"span_count": [2, 2, 0, 2]}, "row 2: span_start is 2"),
        ({"span_end": [100, 200, 100, OPEN_END]}, "row 0: the end of the last span is 200; it must be OPEN_END"),
        ({"span_end": [100, OPEN_END, OPEN_END, OPEN_END]}, "row 2: the number of spans that end no later"),
        ({"span_end": [0, OPEN_END, 100, OPEN_END]}, "row 0: the end of the first span is 0"),
        ({"span_content": [0, 1, -4, 2]}, "span 2: its content id is negative"),
        ({"priority": [0, 0, 0]}, "column priority is int32 of shape"),
    ],
)
def test_each_broken_law_is_told_with_its_row(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        make_table(**changes).validate()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_table_where_everyone_waits_for_another_is_refused() -> None:
    table = independent_requests(arrival_s=[np.nan], prompt_tokens=[1], output_tokens=[1], follows=[NEXT_FREE])
    with pytest.raises(InputError, match="every row waits for another"):
        table.validate()


def test_an_empty_table_is_well_formed() -> None:
    independent_requests(arrival_s=[], prompt_tokens=[], output_tokens=[]).validate()


def test_the_head_of_a_table_is_well_formed() -> None:
    for num_requests in range(5):
        head = make_table().head(num_requests)
        head.validate()
        assert head.num_requests == num_requests


def test_scaling_arrivals_divides_times_only() -> None:
    table = make_table()
    faster = table.scaled_arrivals(2.5)
    assert faster.arrival_s[2] == 2.0
    assert np.isnan(faster.arrival_s[1])
    np.testing.assert_array_equal(faster.think_s, table.think_s)


@pytest.mark.parametrize("factor", [0, -1, np.nan, np.inf])
def test_scaling_by_nonsense_is_refused(factor: float) -> None:
    with pytest.raises(InputError, match="above 0"):
        make_table().scaled_arrivals(factor)


@pytest.mark.parametrize("length", [5_000_000_000, 1e30, float(OPEN_END), np.nan])
def test_a_length_that_no_table_holds_is_refused_not_cut(length: float) -> None:
    with pytest.raises(InputError, match=r"row 1: prompt_tokens is .*; it must stay below"):
        independent_requests(arrival_s=[0.0, 0.0], prompt_tokens=[5, length], output_tokens=[1, 1])
    with pytest.raises(InputError, match="output_tokens"):
        independent_requests(arrival_s=[0.0, 0.0], prompt_tokens=[5, 5], output_tokens=[1, length])
