"""Recorded requests that a server refuses are left out, with the turns that would have followed them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.effects import refused_requests, served_requests, traffic_effects
from workloads.requests import NO_PREDECESSOR, RequestTable, Waits, independent_requests, with_waits


@st.composite
def tables(draw: st.DrawFn) -> RequestTable:
    """Requests of which some follow earlier ones, each at most one."""
    count = draw(st.integers(1, 30))
    free, follows = list[int](), list[int]()
    for row in range(count):
        before = draw(st.sampled_from([NO_PREDECESSOR, *free]))
        if before >= 0:
            free.remove(before)
        follows.append(before)
        free.append(row)
    prompts = draw(st.lists(st.integers(1, 100), min_size=count, max_size=count))
    arrival_s = [np.nan if before >= 0 else float(row) for row, before in enumerate(follows)]
    table = independent_requests(
        arrival_s=arrival_s, prompt_tokens=prompts, output_tokens=np.arange(1, count + 1), follows=follows
    )
    return table if draw(st.booleans()) else with_waits(table, waits_of(table))


def waits_of(table: RequestTable) -> Waits:
    """Clients that go on with the next turn where they give one up."""
    count, resumes = table.num_requests, np.full(table.num_requests, -1, np.int32)
    followed = np.flatnonzero(table.follows >= 0)
    resumes[table.follows[followed]] = followed
    return Waits(np.arange(1.0, count + 1), np.full(count, np.inf), np.zeros((1, count)), resumes)


@settings(max_examples=100, deadline=None)
@given(table=tables(), most=st.integers(0, 110))
def test_what_is_served_is_a_whole_table_of_prompts_that_fit(table: RequestTable, most: int) -> None:
    refused = refused_requests(table, most)
    expected = table.prompt_tokens > most
    for row in range(table.num_requests):  # rows follow only earlier rows
        expected[row] |= table.follows[row] >= 0 and expected[table.follows[row]]
    np.testing.assert_array_equal(refused, expected)
    assert traffic_effects(table, most + 1).prompts_refused == pytest.approx(refused.mean())
    served = served_requests(table, most)
    served.validate()
    if not refused.any() or refused.all():
        assert served is table
        return
    assert (served.prompt_tokens <= most).all()
    kept = np.flatnonzero(~refused)
    np.testing.assert_array_equal(served.output_tokens, table.output_tokens[kept])
    chained = served.follows >= 0
    np.testing.assert_array_equal(kept[served.follows[chained]], table.follows[kept][chained])
    assert (table.follows[kept][~chained] == NO_PREDECESSOR).all()
    if served.waits is not None and table.waits is not None:
        goes_on = served.waits.resumes >= 0
        np.testing.assert_array_equal(kept[served.waits.resumes[goes_on]], table.waits.resumes[kept][goes_on])
        np.testing.assert_array_equal(served.waits.patience_s, table.waits.patience_s[kept])
