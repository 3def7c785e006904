"""Small numbers for large ids."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workloads.numbering import numbered

IDS = st.integers(0, 2**63 - 1) | st.integers(0, 50) | st.integers(0, 20).map(lambda n: n << 40)


@given(st.lists(IDS, max_size=200))
def test_equal_ids_have_equal_numbers_in_order_of_appearance(ids: list[int]) -> None:
    known: dict[int, int] = {}
    expected = [known.setdefault(each, len(known)) for each in ids]
    assert numbered(np.array(ids, np.int64)).tolist() == expected
