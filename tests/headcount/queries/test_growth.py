"""Users who grow over months, GPUs that are reserved: what fleets cost in all. Formulas stand in for simulations."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headcount as hc
from files.errors import HeadcountError
from headcount.inputs.growth import Period
from headcount.inputs.people import PeopleInput
from headcount.queries.growth import OfferCost
from headcount.queries.money import HOURS_PER_MONTH
from headcount.views.of.plan_over_time import over_time_table, over_time_text
from simulator.study.capacity_question import CapacityQuestion
from tests.simulator.study.made_up_fleets import simulate_as

PER_SERVER = {"h100-sxm": 200, "h200-sxm": 400}
GIVEN: dict[str, Any] = {
    "latency_model": "constant", "step_s": 0.02, "max_num_seqs": 32, "tensor_parallel_size": 1,
    "gpu": ["h100-sxm", "h200-sxm"], "price": {"h100-sxm": 2.0, "h200-sxm": 5.0},
}  # fmt: skip


def _only(gpu: str) -> dict[str, Any]:
    return GIVEN | {"gpu": gpu, "price": GIVEN["price"][gpu]}


@pytest.fixture
def formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    def linear(question: CapacityQuestion, servers: int) -> int:
        return PER_SERVER[question.gpu.name] * servers

    simulate_as(monkeypatch, linear)


@given(share=st.floats(0.0, 0.5), period=st.sampled_from(["month", "quarter", "year"]), months=st.integers(1, 48))
def test_periods_fill_the_months_and_users_compound(share: float, period: str, months: int) -> None:
    people = PeopleInput(users=100, growth=f"{100 * share:.6f}%/{period}", months=months)
    found = people.periods()
    assert sum(each.months for each in found) == months
    assert [each.start_month for each in found] == sorted({each.start_month for each in found})
    step = {"month": 1, "quarter": 3, "year": 12}[period]
    for each in found:
        assert each.factor == pytest.approx((1 + share) ** (each.start_month / step), rel=1e-5)
    assert people.factor == 1.0, "growth that is followed is not planned for at once, too"


@given(needed=st.lists(st.integers(1, 50), min_size=1, max_size=8), reserved=st.integers(0, 60), usd=st.floats(0.1, 9))
def test_reserved_gpus_are_paid_for_and_others_as_long_as_they_are_needed(
    needed: list[int], reserved: int, usd: float
) -> None:
    offer = OfferCost(
        kind="h100-sxm", reserved=reserved, needed=tuple(needed), usd_per_gpu_hour=usd, months=(3,) * len(needed)
    )
    hours = sum(3 * HOURS_PER_MONTH * max(count, reserved) for count in needed)
    assert offer.usd == pytest.approx(hours * usd)
    assert offer.usd >= reserved * usd * HOURS_PER_MONTH * 3 * len(needed) * (1 - 1e-9)


def test_what_does_not_serve_the_users_of_every_period_has_no_cost() -> None:
    offer = OfferCost(kind="h100-sxm", reserved=0, needed=(1, None), usd_per_gpu_hour=2.0, months=(3, 3))
    assert offer.usd is None


@pytest.mark.usefixtures("formulas")
def test_each_period_buys_what_a_plan_for_its_users_buys() -> None:
    answer = hc.plan("llama-3.1-8b", users=500, growth="30%/quarter", reserved={"h200-sxm": 3}, **GIVEN)
    assert [round(each.users) for each in answer.stages] == [500, 650, 845, 1098]
    by_kind = {each.kind: each for each in answer.over_time}
    for gpu in PER_SERVER:
        alone = [hc.plan("llama-3.1-8b", users=round(each.users + 0.49), **_only(gpu)) for each in answer.stages]
        assert by_kind[gpu].needed == tuple(plan.gpus for plan in alone), gpu
    h100, h200 = by_kind["h100-sxm"], by_kind["h200-sxm"]
    assert (h100.needed, h200.needed) == ((3, 4, 5, 6), (2, 2, 3, 3))
    assert h200.paid == (3, 3, 3, 3)
    assert h200.usd == pytest.approx(3 * 5.0 * 12 * HOURS_PER_MONTH)
    assert [each.kind for each in answer.over_time] == ["h100-sxm", "h200-sxm"], "the cheapest comes first"
    said = over_time_text(answer)
    assert "over 12 months, growing 30 % a quarter: h100-sxm, $78,840; h200-sxm, 3 of them reserved" in said
    table, meaning = over_time_table(answer)[:2]
    assert "2 (+1)" in str(table) and "3 (+0)" not in str(table)
    assert "in brackets" in str(meaning)


@pytest.mark.usefixtures("formulas")
def test_without_growth_that_is_followed_nothing_is_added() -> None:
    answer = hc.plan("llama-3.1-8b", users=500, growth=0.3, **GIVEN)
    assert answer.stages == () and answer.over_time == ()
    assert answer.users_to_serve == pytest.approx(650)
    assert over_time_text(answer) == ""
    assert answer.figures()["over_time"] == []


@pytest.mark.usefixtures("formulas")
def test_what_is_reserved_is_followed_without_growth_too() -> None:
    answer = hc.plan("llama-3.1-8b", users=500, reserved={"h200-sxm": 8}, months=6, **GIVEN)
    assert [each.period for each in answer.stages] == [Period(start_month=0, months=6, factor=1.0)]
    (h200,) = (each for each in answer.over_time if each.kind == "h200-sxm")
    assert h200.usd == pytest.approx(8 * 5.0 * 6 * HOURS_PER_MONTH)


@pytest.mark.usefixtures("formulas")
def test_the_bill_of_what_is_reserved_stands_beside_that_of_what_is_needed() -> None:
    answer = hc.plan("llama-3.1-8b", users=500, reserved={"h200-sxm": 8}, **_only("h200-sxm"))
    assert answer.gpus == 2
    said = str(answer)
    assert f"${8 * 5.0 * HOURS_PER_MONTH:,.0f} a month for the 8 reserved, of which 6 are not needed" in said
    assert "1–12" in said
    enough = hc.plan("llama-3.1-8b", users=500, reserved={"h200-sxm": 2}, **_only("h200-sxm"))
    assert "reserved, of which" not in str(enough)


@pytest.mark.parametrize(
    ("given_wrong", "told"),
    [
        ({"growth": "30%/week"}, "no period; give month, quarter, year"),
        ({"growth": "x/month"}, "is not a share"),
        ({"months": 3}, "--months is for --growth per month"),
        ({"reserved": {"b200-sxm": 3}}, "no GPU of the plan 'b200-sxm'"),
        ({"growth": "900%/month", "months": 60}, "plan for at most"),
        ({"growth": "20000%/year"}, "give a share from 0%"),
    ],
)
def test_what_cannot_be_followed_is_refused(given_wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(HeadcountError, match=told):
        hc.plan("llama-3.1-8b", users=500, **GIVEN | given_wrong)


@pytest.mark.usefixtures("formulas")
def test_the_command_takes_growth_by_the_quarter(headcount: Callable[..., Any]) -> None:
    done = headcount(
        "plan", "--model", "llama-3.1-8b", "--users", 500, "--growth", "30%/quarter", "--months", 6, "--gpu",
        "h100-sxm,h200-sxm", "--price", "h100-sxm=2,h200-sxm=5", "--reserved", "h200-sxm=3", "-tp", 1,
        "--latency-model", "constant", "--step-s", "0.02", "--max-num-seqs", 32, "--no-store",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "over 6 months, growing 30 % a quarter" in done.out
    assert "4–6" in done.out
