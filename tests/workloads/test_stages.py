"""Stages of rates, and prompts that share prefixes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.reading import InputError
from workloads.arrivals import Diurnal, GammaGaps
from workloads.requests import OPEN_END
from workloads.stages import SharedPrefixes, Stages
from workloads.synthetic import open_load, staged_load

RATES = st.lists(st.floats(0.0, 50.0), min_size=1, max_size=6).filter(lambda rates: sum(rates) > 0.1)


@given(RATES, st.floats(1.0, 300.0), st.integers(0, 100))
def test_each_stage_has_as_many_arrivals_as_its_rate_says(rates: list[float], length_s: float, seed: int) -> None:
    stages = Stages(tuple(rates), length_s)
    found = stages.times(seed)
    assert (np.diff(found) >= 0).all() and (found >= 0).all() and (found <= length_s * len(rates)).all()
    counts = np.bincount(stages.of(found), minlength=len(rates))
    expected = np.array(rates) * length_s
    assert (np.abs(counts - expected) <= 6 * np.sqrt(expected) + 6).all()


def test_a_stage_without_arrivals_is_empty() -> None:
    stages = Stages((5.0, 0.0, 5.0), 60.0)
    assert np.bincount(stages.of(stages.times(0)), minlength=3)[1] == 0


def test_more_stages_leave_the_first_ones_as_they_are() -> None:
    few, many = (Stages(rates, 30.0).times(3, GammaGaps(cv=2.0)) for rates in ((4.0, 8.0), (4.0, 8.0, 2.0)))
    np.testing.assert_allclose(many[: len(few)], few)


@pytest.mark.parametrize(
    ("rates", "length_s"),
    [((), 1.0), ((-1.0,), 1.0), ((float("inf"),), 1.0), ((0.0, 0.0), 1.0), ((1.0,), 0.0)],
)
def test_a_ladder_that_is_none_is_refused(rates: tuple[float, ...], length_s: float) -> None:
    with pytest.raises(InputError, match="stage"):
        Stages(rates, length_s)


def test_stages_in_which_nothing_arrives_are_refused() -> None:
    with pytest.raises(InputError, match="no request arrives"):
        staged_load(Stages((1e-6,), 1.0), input_len=8, output_len=8)


@given(st.integers(1, 5), st.none() | st.integers(1, 4), st.integers(0, 50))
def test_prompts_share_their_prefix_and_as_many_as_asked_are_alike(
    num_prefixes: int, prompts_per_prefix: int | None, seed: int
) -> None:
    plain = open_load(
        rate_per_s=5.0, num_requests=40, input_len=50, output_len=10, length_spread=0.5, arrivals=Diurnal(peak=1.5)
    )
    found = SharedPrefixes(100, num_prefixes, prompts_per_prefix).before(plain, seed)
    spans, ends = found.span_content.reshape(40, -1), found.span_end.reshape(40, -1)
    assert (ends[:, 0] == 100).all() and (ends[:, -1] == OPEN_END).all() and (np.diff(ends) > 0).all()
    assert len(set(spans[:, 0].tolist())) <= num_prefixes
    assert len(set(spans[:, -1].tolist())) == 40  # answers are each request's own
    if prompts_per_prefix is None:
        np.testing.assert_array_equal(found.prompt_tokens, plain.prompt_tokens + 100)
        return
    assert len(set(map(tuple, spans[:, :2].tolist()))) <= num_prefixes * prompts_per_prefix
    for content in set(spans[:, 1].tolist()):  # the same prompt is as long, behind the same prefix
        same = spans[:, 1] == content
        assert len(set(found.prompt_tokens[same].tolist())) == len(set(spans[same, 0].tolist())) == 1
        assert (ends[same, 1] == found.prompt_tokens[same]).all()
