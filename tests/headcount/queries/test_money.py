"""Laws of money: what is missing stays missing, what is paid is what tokens and users pay together."""

import math
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headcount as hc
from files.errors import HeadcountError
from headcount.queries.money import (
    HOURS_PER_MONTH,
    Traffic,
    break_even,
    costs,
    usd_per_month,
    usd_per_user_month,
)
from kvcache.gpus.gpu import find_gpu, gpu_names
from workloads.daily_profile import ONE_ZONE, Profile

FEW: dict[str, Any] = {"gpus": 1, "replications": 2, "precision": 0.9, "store": False}
LOAD = Traffic(users=500, input_tokens_per_s=20_000, output_tokens_per_s=3_000)
prices = st.floats(0.01, 100)
gpu_counts = st.integers(1, 512)
shares = st.floats(0.01, 1)


@given(gpus=gpu_counts, price=prices, share=shares)
def test_users_and_tokens_together_pay_exactly_the_month(gpus: int, price: float, share: float) -> None:
    load = replace(LOAD, utilization=share)
    found = costs(gpus, price, load)
    assert found.usd_per_month == pytest.approx(gpus * price * 730)
    assert found.usd_per_hour == pytest.approx(gpus * price)
    assert found.usd_per_asked_user_month is not None
    assert found.usd_per_asked_user_month * load.users == pytest.approx(found.usd_per_month)
    for paid, tokens in (
        (found.usd_per_million_input_tokens, load.input_tokens_per_month),
        (found.usd_per_million_output_tokens, load.output_tokens_per_month),
        (found.usd_per_million_tokens, load.input_tokens_per_month + load.output_tokens_per_month),
    ):
        assert paid is not None
        assert paid * tokens / 1e6 == pytest.approx(found.usd_per_month)


def test_a_worked_month() -> None:
    found = costs(2, 4.0, LOAD)
    assert found.usd_per_month == 5840
    assert found.usd_per_asked_user_month == 11.68
    assert found.usd_per_million_output_tokens == pytest.approx(5840 / (3000 * 730 * 3600 / 1e6))


@given(share=shares)
def test_idle_hours_make_tokens_dearer_and_users_not(share: float) -> None:
    full, part = costs(1, 2.0, LOAD), costs(1, 2.0, replace(LOAD, utilization=share))
    assert part.usd_per_month == full.usd_per_month
    assert part.usd_per_million_tokens == pytest.approx((full.usd_per_million_tokens or 0) / share)


def test_a_gpu_without_a_price_costs_none_and_never_0() -> None:
    assert set(asdict(costs(8, None, LOAD)).values()) == {None}
    assert usd_per_month(8, None) is None
    assert break_even(None, LOAD, api_usd_per_million_input_tokens=1, api_usd_per_million_output_tokens=2) is None
    assert usd_per_user_month(100.0, 0) is None
    assert costs(1, 2.0, Traffic(users=0, input_tokens_per_s=0, output_tokens_per_s=0)).usd_per_million_tokens is None


def test_utilization_is_the_mean_of_a_day_s_hours() -> None:
    assert Profile(hours=(1.0,) * 24).mean_over_peak(ONE_ZONE) == 1
    assert Profile(hours=(0.0,) * 12 + (7.0,) * 12).mean_over_peak(ONE_ZONE) == 0.5


@given(price=prices, factor=st.floats(1.01, 10))
def test_break_even_rises_with_the_own_price_and_falls_with_the_api_s(price: float, factor: float) -> None:
    api = {"api_usd_per_million_input_tokens": 0.5, "api_usd_per_million_output_tokens": 1.5}
    own = usd_per_month(4, price)
    base = break_even(own, LOAD, **api)
    dearer = break_even(usd_per_month(4, price * factor), LOAD, **api)
    cheaper = break_even(own, LOAD, **{name: value * factor for name, value in api.items()})
    assert base and dearer and cheaper
    assert base.load_share and dearer.load_share and cheaper.load_share
    assert cheaper.load_share < base.load_share < dearer.load_share
    assert base.own_is_cheaper == (base.load_share < 1)


def test_at_the_break_even_load_both_cost_the_same() -> None:
    own = usd_per_month(1, 4.0)
    api = {"api_usd_per_million_input_tokens": 0.1, "api_usd_per_million_output_tokens": 0.4}
    found = break_even(own, LOAD, **api)
    assert found is not None
    assert found.load_share is not None and found.users is not None
    assert found.users == pytest.approx(found.load_share * 500)
    there = break_even(own, replace(LOAD, utilization=found.load_share), **api)
    assert there is not None
    assert there.api_usd_per_month == pytest.approx(own)


def test_break_even_beyond_the_load_is_told_in_users_too_and_a_free_api_has_none() -> None:
    found = break_even(1e9, LOAD, api_usd_per_million_input_tokens=0.1, api_usd_per_million_output_tokens=0.4)
    assert found is not None
    assert not found.own_is_cheaper
    assert found.load_share is not None and found.load_share > 1
    assert found.users == pytest.approx(found.load_share * LOAD.users)
    free = break_even(10.0, LOAD, api_usd_per_million_input_tokens=0, api_usd_per_million_output_tokens=0)
    assert free is not None
    assert (free.load_share, free.users) == (None, None)


@pytest.mark.parametrize("name", gpu_names())
def test_optional_figures_of_a_gpu_have_sources_and_are_plausible(name: str) -> None:
    gpu = find_gpu(name)
    for field in ("usd_per_hour", "tdp_watts", "idle_watts"):
        assert (getattr(gpu, field) is None) == (field not in gpu.source)
    assert gpu.tdp_watts is None or 50 <= gpu.tdp_watts <= 2000
    assert "stands in" not in gpu.source.get("usd_per_hour", "")


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: usd_per_month(1, 0), "the price per GPU and hour is 0; it must be above 0, at most 1,000,000"),
        (lambda: usd_per_month(1, -3), "the price per GPU and hour is -3"),
        (lambda: usd_per_month(1, math.nan), "the price per GPU and hour is nan"),
        (lambda: replace(LOAD, utilization=0), "utilization is 0; it must be above 0, at most 1"),
        (lambda: replace(LOAD, utilization=1.2), r"utilization is 1.2"),
        (lambda: replace(LOAD, users=-1), "users is -1; it must be from 0"),
        (
            lambda: break_even(1.0, LOAD, api_usd_per_million_input_tokens=-1, api_usd_per_million_output_tokens=1),
            "the API's price of input tokens is -1; it must be from 0",
        ),
    ],
)
def test_an_impossible_figure_is_one_clear_error(ask: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ask()


def test_a_price_of_the_user_s_counts_wherever_gpus_cost_something() -> None:
    model = "llama-3.2-1b"
    asked = {**FEW, "gpus": [1], "max_model_len": 4096}
    listed, own = (hc.capacity(model, "h100-sxm", **asked, price=usd) for usd in (None, 2.0))
    assert (own.best.users_low, own.rows()[0]["usd_per_month"]) == (listed.best.users_low, 2.0 * HOURS_PER_MONTH)
    assert "by the price that was given" in str(replace(own, explain=True))
    gpus = ["h100-sxm", "l40s"]
    for usd, cheapest in ((0.01, "l40s"), (100.0, "h100-sxm")):
        best = hc.compare(model, gpus, **FEW, max_model_len=4096, price={"l40s": usd}).best
        assert best is not None and best.asked is not None and best.asked.gpu.name == cheapest
    (cell,) = hc.whatif(model, "h100-sxm", **FEW, max_model_len=4096, vary={"output": ["x1"]}, price=2.0).cells
    assert cell.usd_per_month == 2.0 * HOURS_PER_MONTH
    with pytest.raises(HeadcountError, match="no GPU of the question 'a30'; known: h100-sxm, l40s"):
        hc.compare(model, gpus, **FEW, price={"a30": 1.0})
    with pytest.raises(HeadcountError, match="--price is 0 USD"):
        hc.capacity(model, "h100-sxm", **asked, price=0.0)
