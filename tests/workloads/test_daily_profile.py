"""The peak of people in several time zones: laws, and inputs that are none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.reading import InputError
from headcount.inputs.autoscaling import AutoscalingInput
from headcount.inputs.people import PeopleInput
from simulator.study.fleets.traffic import Request
from simulator.study.slo import SLO
from workloads.daily_profile import MEAN_DAY, ONE_ZONE, WEEK, Profile, read_profile, read_zones
from workloads.demand import PEAK_HOUR_SHARE, StandIn

profiles = st.lists(st.floats(0.0, 1e6), min_size=24, max_size=24).filter(lambda hours: max(hours) > 1e-3)
offsets = st.integers(-48, 56).map(lambda quarters: quarters / 4)
splits = st.dictionaries(offsets, st.floats(0.01, 1.0), min_size=1, max_size=5).map(
    lambda zones: {ahead: share / sum(zones.values()) for ahead, share in zones.items()}
)


@given(hours=profiles, ahead=offsets)
def test_people_of_one_time_zone_peak_as_they_are(hours: list[float], ahead: float) -> None:
    assert Profile(hours=tuple(hours)).peak({ahead: 1.0})[0] == pytest.approx(1)


@given(hours=profiles, zones=splits)
def test_the_peak_of_several_zones_lies_between_the_largest_one_s_and_that_of_all_in_one(
    hours: list[float], zones: dict[float, float]
) -> None:
    found = Profile(hours=tuple(hours)).peak(zones)[0]
    assert max(zones.values()) - 1e-9 <= found <= 1 + 1e-9


@given(hours=profiles, zones=splits)
def test_a_week_of_equal_days_is_a_day(hours: list[float], zones: dict[float, float]) -> None:
    day, week = Profile(hours=tuple(hours)), Profile(hours=tuple(hours) * 7)
    assert week.busiest_hour_share == pytest.approx(day.busiest_hour_share)
    assert week.peak(zones)[0] == pytest.approx(day.peak(zones)[0])
    assert week.mean_over_peak(zones) == pytest.approx(day.mean_over_peak(zones))


def test_opposite_zones_halve_the_peak_of_a_short_day() -> None:
    short = Profile(hours=tuple(float(8 <= hour < 12) for hour in range(24)))
    factor, _ = short.peak({0: 0.5, 12: 0.5})
    assert factor == pytest.approx(0.5)
    assert short.mean_over_peak({0: 0.5, 12: 0.5}) == pytest.approx(2 * short.mean_over_peak(ONE_ZONE))


def test_the_peak_comes_when_the_busiest_zone_is_in_its_busiest_hour() -> None:
    at_ten = Profile(hours=tuple(1.0 + (hour == 10) for hour in range(24)))
    assert at_ten.peak({0: 1.0})[1] == pytest.approx(10.5)
    assert at_ten.peak({5.5: 0.9, -8: 0.1})[1] == pytest.approx(5.0)


def test_the_shipped_day_sums_to_the_published_mean_day() -> None:
    assert sum(MEAN_DAY.hours) == 7106
    assert np.argmax(MEAN_DAY.hours) == 15


def test_the_shipped_week_has_the_published_busiest_hour() -> None:
    """146 of 1,015 requests on a mean day, on Wednesday, 13:00 to 14:00."""
    assert sum(WEEK.hours) == 7106 and max(WEEK.hours) == 146
    assert WEEK.busiest_hour_share == pytest.approx(PEAK_HOUR_SHARE.value, abs=5e-4)
    assert WEEK.day_of(float(np.argmax(WEEK.hours))) == "Wednesday" and np.argmax(WEEK.hours) % 24 == 13
    each = [Profile(hours=WEEK.hours[24 * day : 24 * day + 24]).mean_over_peak(ONE_ZONE) for day in range(7)]
    assert WEEK.mean_over_peak(ONE_ZONE) < min(each) < max(each) < MEAN_DAY.mean_over_peak(ONE_ZONE)


def test_the_days_that_have_a_name_are_read() -> None:
    assert read_profile("day") is MEAN_DAY
    assert read_profile(" Week ") is WEEK
    assert PeopleInput(users=1, daily_profile="day").profile is AutoscalingInput(daily_profile="day").profile


@given(hours=st.none() | profiles, share=st.none() | st.floats(1 / 24, 1.0), zones=st.none() | splits)
def test_a_month_has_the_tokens_of_its_days(
    hours: list[float] | None, share: float | None, zones: dict[float, float] | None
) -> None:
    """The mean load is that of the chain: from tokens per day to the peak and back."""
    profile = None if hours is None else Profile(hours=tuple(hours))
    share = share if profile is None else None
    people = PeopleInput(tokens_per_day=1e8, daily_profile=profile, peak_hour_share=share, time_zones=zones)
    cycle_s, tokens = 90.0, 1000.0
    users = people.chain(
        think_time=StandIn(80.0, "", "given"),
        tokens=lambda _: StandIn(tokens, "", "given"),
        slo=SLO(),
        request=lambda: Request(input_tokens=900.0, output_tokens=100.0, response_time_s=10.0, layout=""),
    ).users
    mean = people.mean_over_peak
    assert 0 < mean.value <= 1
    if mean.value < 1:
        assert users / cycle_s * tokens * mean.value * 86_400 == pytest.approx(1e8, rel=1e-6)
    assert (mean.of_mean_day is None) == (profile is not None or share is not None)


def test_time_zones_and_a_profile_change_the_chain() -> None:
    def users(**given: object) -> float:
        people = PeopleInput(**given)  # type: ignore[arg-type]
        return people.chain(
            think_time=StandIn(80.0, "", "given"),
            tokens=lambda _: pytest.fail("not needed"),
            slo=SLO(),
            request=lambda: pytest.fail("not needed"),
        ).users

    zones = read_zones("+1=50%,-8=50%")
    factor, _ = MEAN_DAY.peak(zones)
    assert users(employees=10_000, time_zones=zones) == pytest.approx(factor * users(employees=10_000))
    flat = Profile(hours=(1.0,) * 24)
    by_tokens = {"tokens_per_day": 1e8, "tokens_per_request": 1000.0, "response_time_s": 10.0}
    assert users(**by_tokens, daily_profile=flat) == pytest.approx(users(**by_tokens, peak_hour_share=1 / 24))
    with pytest.raises(ValueError, match="--time-zones does not belong to --users; leave out one or the other"):
        users(users=100, time_zones=zones)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("1,2,3", "has 3 numbers; give 24, of a day, or 168, of a week"),
        ("x", "is no profile; give day, week, or 24 or 168 numbers"),
        (",".join(["0"] * 24), "is all 0"),
        (",".join(["-1"] * 24), "below 0"),
        (",".join(["nan"] * 24), "below 0"),
    ],
)
def test_a_wrong_profile_is_told(given: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_profile(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("berlin=100%", "is no time zone with its share; give hours ahead of UTC"),
        ("+1=60", "is no time zone with its share"),
        ("+15=100%", "is no time zone with its share"),
        ("+1=60%,-5=30%", "sum to 90 %; make it 100 %"),
        ("", "is no time zone with its share"),
    ],
)
def test_wrong_time_zones_are_told(given: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_zones(given)


def test_zones_of_half_hours_and_of_utc_by_name_are_read() -> None:
    assert read_zones("UTC+5:30=50%, UTC0=30%, -03:30=20%") == {5.5: 0.5, 0.0: 0.3, -3.5: 0.2}
