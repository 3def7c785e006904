"""From people to sessions: laws of the chain."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.reading import InputError
from simulator.engines.values import Share
from workloads.demand import CHAINS, LINKS, MOST_PEOPLE, StandIn, demand

TYPICAL = {
    "employees": 2000.0, "active_share": 0.25, "peak_share": 0.1, "users": 50.0, "requests_per_s": 0.5,
    "tokens_per_day": 2e7, "peak_hour_share": 0.14, "tokens_per_request": 1500.0, "think_time_s": 80.0,
    "response_time_s": 10.0, "time_zones": 0.4,
}  # fmt: skip
STARTS = sorted(CHAINS)


def chain(start: str, **changed: float) -> dict[str, float]:
    return {name: changed.get(name, TYPICAL[name]) for name in (start, *CHAINS[start])}


def test_users_are_the_product_of_people_and_shares() -> None:
    assert demand(**chain("employees")).users == pytest.approx(2000 * 0.25 * 0.1 * 0.4)


def test_users_of_a_rate_follow_little_s_law() -> None:
    assert demand(**chain("requests_per_s")).users == pytest.approx(0.5 * (80 + 10))


def test_a_day_s_tokens_are_those_of_its_requests() -> None:
    found = demand(**chain("tokens_per_day"))
    per_hour = 2e7 * 0.14 * 0.4 / 1500
    assert found.users == pytest.approx(per_hour / 3600 * 90)
    assert found.users == pytest.approx(demand(**chain("requests_per_s", requests_per_s=per_hour / 3600)).users)


@pytest.mark.parametrize("start", STARTS)
@given(factor=st.floats(1.001, 2.0))
def test_users_rise_with_every_link_but_the_tokens_of_a_request(start: str, factor: float) -> None:
    before = demand(**chain(start)).users
    for name in (start, *CHAINS[start]):
        after = demand(**chain(start, **{name: TYPICAL[name] * factor})).users
        assert after < before if name == "tokens_per_request" else after > before


@given(users=st.integers(1, MOST_PEOPLE))
def test_sessions_are_whole_and_never_fewer_than_the_users(users: int) -> None:
    assert demand(users=users).sessions == users
    assert demand(requests_per_s=users / 90, think_time_s=80, response_time_s=10).sessions - users in (0, 1)


def test_each_link_says_whether_it_was_given_measured_or_assumed_and_by_whom() -> None:
    found = demand(employees=2000, active_share=0.34)
    kinds = {link.name: link.kind for link in found.links}
    assert kinds == {
        "employees": "given", "active_share": "given", "peak_share": "assumed", "time_zones": "assumed"
    }  # fmt: skip
    found = demand(employees=2000, peak_share=0.2)
    lines = found.lines()
    assert lines[0] == "registered people: 2,000 people (given)"
    assert lines[1] == "share of people who use it on a working day: 34 % (measured; --active-share)"
    assert lines[2].endswith(": 20 % (given)")
    assert lines[-1] == "sessions open at the peak: 136 users"
    assert demand(users=7).lines() == ["sessions open at the peak: 7 users"]
    assert demand(users=1_000_000).lines() == ["sessions open at the peak: 1,000,000 users"]
    assert all(link["source"] for link in found.to_json()["links"] if link["assumed"])


def test_the_caller_s_stand_in_stands_before_the_default() -> None:
    known = {"think_time_s": StandIn(84, "preset chat", "measured"), "response_time_s": StandIn(6, "the SLO")}
    found = demand(requests_per_s=1, stand_ins=known)
    assert found.users == 90
    assert [link.kind for link in found.links] == ["given", "measured", "assumed"]
    assert str(found.links[1]) == "mean think time Z: 84 s (measured; --think-time)"


@pytest.mark.parametrize(
    "name", [name for name, kind in LINKS.items() if kind.default is not None and name != "time_zones"]
)  # all in one
def test_every_default_has_a_source_that_says_where_it_was_published(name: str) -> None:
    default = LINKS[name].default
    assert default is not None and re.search(r"20[12]\d-\d\d|arXiv \d{4}\.\d{5}", default.source)


@pytest.mark.parametrize("name", sorted(LINKS))
@pytest.mark.parametrize("wrong", [-1, math.nan, math.inf, 1e18, True, "many"])
def test_a_wrong_link_is_told_by_name_with_what_is_allowed(name: str, wrong: float) -> None:
    start = name if name in CHAINS else next(start for start in STARTS if name in CHAINS[start])
    flag = name.replace("_time_s", "_time").replace("_", "-")
    with pytest.raises(InputError, match=rf"^--{flag} is .*; the .* must be a number .* (from|at most|to) ?"):
        demand(**chain(start, **{name: wrong}))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "nothing says how many people there are; give one of --employees, --users, --requests-per-s"),
        ({"users": 0}, "--users is 0; the sessions open at the peak must be a number above 0, at most 100,000,000"),
        ({"employees": 1e9}, "--employees is 1000000000.0; the registered people must be a number above 0"),
        ({"employees": 10, "active_share": 1.5}, "--active-share is 1.5; .* above 0, at most 100 %"),
        ({"employees": 10, "users": 5}, "--employees and --users are given; give one of"),
        ({"users": 5, "active_share": 0.5}, "--active-share does not belong to --users; leave out one or the other"),
        ({"requests_per_s": 5, "think_time_s": 60}, "--response-time is missing: the mean response time R; give it"),
        ({"employee": 5}, "no link 'employee'; did you mean 'employees'"),
        ({"requests_per_s": 1e7, "think_time_s": 3600, "response_time_s": 1}, "the number of users that follows from"),
        ({"requests_per_s": 1, "think_time_s": 0, "response_time_s": 0}, "the number of users that follows from"),
    ],
)  # fmt: skip
def test_a_wrong_chain_is_one_clear_error(asked: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        demand(**asked)


@given(percent=st.integers(1, 100))
def test_a_share_reads_alike_in_percent_and_as_a_number(percent: int) -> None:
    assert Share().read(f"{percent}%") == pytest.approx(Share().read(str(percent / 100)))
    assert Share().read(Share().read(f"{percent} %")) == percent / 100


@pytest.mark.parametrize(
    "wrong", [1.5, 0.0, math.nan, "0", "0%", "-5%", "101%", "1.01", "25", "", "%", "a third", "nan", "1e-2", "5%,10%"]
)
def test_what_is_no_share_is_refused(wrong: str | float) -> None:
    with pytest.raises(ValueError, match=r"is not a share; give one above 0, at most 100%|is a list"):
        Share().read(wrong)
