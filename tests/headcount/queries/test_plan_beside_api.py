"""A plan beside an API's prices; formulas stand in for simulations."""

import math
import re

import pytest

import headcount as hc
from headcount.views.of.plan import details as details_of
from tests.headcount.queries.test_plan import GIVEN, PER_SERVER
from tests.headcount.told import head_of, summary_of
from tests.simulator.study.made_up_fleets import simulate_as
from workloads.daily_profile import MEAN_DAY, ONE_ZONE, WEEK


@pytest.fixture(autouse=True)
def formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_as(monkeypatch, lambda question, servers: PER_SERVER.get(question.gpu.name, 100) * servers)


@pytest.mark.parametrize(("output_price", "verdict"), [(0.01, "the API costs less"), (50.0, "own GPUs cost less")])
def test_where_the_mean_load_is_assumed_the_api_is_compared_at_both(output_price: float, verdict: str) -> None:
    """Of RAGPulse's week and of its mean day, which `simulate --daily-profile` runs; one alone might mislead."""
    prices = {"api_input_price": 0.0}
    answer = hc.plan("llama-3.1-8b", users=500, api_output_price=output_price, **prices, **GIVEN)
    low, high = answer.break_even, answer.break_even_of_mean_day
    assert low is not None and high is not None and answer.break_even_utilization is not None
    assert answer.money.utilization == pytest.approx(WEEK.mean_over_peak(ONE_ZONE), abs=0.001)
    assert answer.money.utilization_of_mean_day == MEAN_DAY.mean_over_peak(ONE_ZONE)
    assert f"; {verdict} (API: $" in str(head_of(answer)[1])
    between = output_price * answer.break_even_utilization / 0.45  # of the peak, where both cost the same
    torn = hc.plan("llama-3.1-8b", users=500, api_output_price=between, **prices, **GIVEN)
    first, second = torn.break_even, torn.break_even_of_mean_day
    assert first is not None and not first.own_is_cheaper
    assert second is not None and second.own_is_cheaper
    bills = f"(API: ${first.api_usd_per_month:,.0f} to ${second.api_usd_per_month:,.0f} a month)"
    assert f"; the API costs less below a mean load of 45 % of the peak {bills}" in str(head_of(torn)[1])
    assert "The mean load is assumed; give --utilization or --daily-profile" in " ".join(str(torn).split())
    assert "below a mean load of 45 % of the peak" in summary_of(torn).answer
    drawn = details_of(torn)["cost"]["break_even"]["usd"]
    assert list(drawn) == ["API, mean load 29 %", "API, mean load 61 %", "own GPUs"]
    assert drawn["API, mean load 61 %"][-1] > drawn["API, mean load 29 %"][-1]
    for profile, own_is_cheaper in (("week", False), ("day", True)):
        known = hc.plan(
            "llama-3.1-8b", users=500, api_output_price=between, daily_profile=profile, **prices, **GIVEN
        ).break_even
        assert known is not None and known.own_is_cheaper is own_is_cheaper


def test_a_mean_load_is_given_once() -> None:
    with pytest.raises(ValueError, match=r"--utilization 0.3 cannot be given beside --daily-profile"):
        hc.plan("llama-3.1-8b", users=500, utilization=0.3, daily_profile="week", **GIVEN)


def test_an_api_is_compared_at_the_same_tokens() -> None:
    prices = {"api_input_price": 0.1, "api_output_price": 0.4}
    answer = hc.plan("llama-3.1-8b", users=500, utilization=0.5, **prices, **GIVEN)
    found = answer.break_even
    assert found is not None
    assert answer.peak is not None
    tokens = answer.peak.input_tokens_per_month * 0.1 + answer.peak.output_tokens_per_month * 0.4
    assert found.api_usd_per_month == pytest.approx(tokens / 1e6)
    assert found.own_usd_per_month == answer.usd_per_month
    assert "The API costs $" in str(answer)
    assert "The mean load is assumed" not in str(answer)
    assert found.load_share is not None
    users = f"{math.ceil(found.load_share * 500):,} users"
    cheaper = "own GPUs cost less" if found.own_is_cheaper else "the API costs less"
    head = "\n".join(map(str, head_of(answer)))
    assert answer.break_even_utilization == pytest.approx(0.5 * found.load_share)
    even = f"{100 * answer.break_even_utilization:.0f} % of the peak"
    if answer.break_even_utilization < 1:
        assert f"The API is cheaper below a mean load of {even}, own GPUs above it: at this load, {cheaper}" in head
    headline, told = head.split("\n")[1], next(line for line in head.split("\n") if line.startswith("The API costs"))
    assert f"; {cheaper} (API: ${found.api_usd_per_month:,.0f} a month)" in headline
    sentences = told.split(". ")
    assert len(sentences) >= 3 and max(len(each.split()) for each in sentences) <= 35
    assert max(each.count(";") for each in sentences) <= 1
    assert users in head
    assert found.users == found.load_share * 500
    tokens = re.search(r"for ([\d,.]+) M input and ([\d,.]+) M output tokens, at a mean load of 50 % of the peak", head)
    assert tokens is not None
    millions = [float(each.replace(",", "")) for each in tokens.groups()]
    assert millions[0] * 0.1 + millions[1] * 0.4 == pytest.approx(found.api_usd_per_month, rel=0.005)
    assert "Discounts for cached input are not counted" in head
    page = summary_of(answer)
    assert f"${found.api_usd_per_month:,.0f}" in page.answer
    assert users in dict(page.figures)["API instead"]
