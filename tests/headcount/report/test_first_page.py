"""What the first page of a report says of given figures: what to confirm, how sure it is, what a failure leaves."""

import re
from types import SimpleNamespace
from typing import Any

import pytest

import headcount as hc
from headcount.views.summary.confidence import Headroom, combined_sensitivity, confidence_text, top_assumptions
from headcount.views.summary.summary import Bought, Summary, alone_risk


def test_an_assumption_that_costs_no_users_is_not_to_be_confirmed() -> None:
    swings = [
        {"name": name, "value": "50 ms", "less": less, "more": 1.1}
        for name, less in (("TPOT limit", 0.999), ("think time", 0.9))
    ]
    room, details = Headroom(needed=None, low=100, users=110, high=120), {"swing": 0.2, "tornado": swings}
    (told,) = top_assumptions(details, room)
    assert told == (
        "A user's pause before the next message: 50 ms. If this alone is 20% shorter: 90 users instead of 100."
    )
    assert combined_sensitivity(details, room) == ""


@pytest.mark.parametrize(("needed", "enough"), [(90, "90 users, still enough"), (91, "90 users, too few for 91")])
def test_an_assumption_is_judged_by_what_is_needed(needed: int, enough: str) -> None:
    swings = [{"name": "step times", "value": "as simulated", "less": 1.2, "more": 0.9}]
    room = Headroom(needed=needed, low=100, users=110, high=120)
    (told,) = top_assumptions({"swing": 0.2, "tornado": swings}, room)
    assert enough in told and "If this alone is 20% slower" in told


def test_assumptions_come_by_what_they_cost_and_together_they_cost_more() -> None:
    """What nobody judged comes first and takes the place of a swing; the product is that of the swings shown."""
    costs = {"context length": 0.9, "length of answers": 0.75, "think time": 0.5, "step times": 0.25}
    swings = [{"name": name, "value": "2", "less": 1.1, "more": left} for name, left in costs.items()]
    room, details = Headroom(needed=10, low=100, users=110, high=120), {"swing": 0.2, "tornado": swings}
    assert [int(re.findall(r"(\d+) users", told)[0]) for told in top_assumptions(details, room)] == [25, 50, 75]
    assert (
        combined_sensitivity(details, room)
        == "All 3 changes of 20% at once, by estimate: about 9 users, too few for 10."
    )
    assert top_assumptions(details, room, ["Quality: not judged."])[0] == "Quality: not judged."
    left = combined_sensitivity(details, room, ["Quality: not judged."])
    told = top_assumptions(details, room, ["Quality: not judged."], leads="think time")
    assert [each.partition(":")[0] for each in told] == [
        "A user's pause before the next message", "Quality", "Speed of the servers",
    ]  # fmt: skip
    assert left.startswith("Both changes of 20% at once, by estimate: about 12 users")


@pytest.mark.parametrize(
    ("needed", "more"),
    [(None, ""), (90, "That is 10 more than the 90 needed."), (101, "That is too few for the 101 asked for.")],
)
def test_how_sure_it_is_does_not_speak_of_the_share_that_the_promise_allows(needed: float | None, more: str) -> None:
    said = confidence_text(Headroom(needed=needed, low=100, users=110, high=120))
    assert more in said and "%" not in said


def test_words_that_the_page_does_not_use_are_not_explained() -> None:
    page = Summary(
        question="How many users?",
        answer="10 users",
        words=(("user", "somebody"), ("token", "a piece of text"), ("16-bit, fp8, users", "one of several")),
    )
    assert [word for word, _ in page.to_json()["words"]] == ["user", "16-bit, fp8, users"]


@pytest.mark.parametrize(
    ("servers", "needed", "told"),
    [
        (1, 90, "nobody is served"),
        (4, 75, "about 75 users are safe to promise: still enough"),
        (4, 76, "75 users are safe to promise of the 76 needed"),
        (4, None, "75 users are safe to promise."),
    ],
)
def test_a_fleet_without_a_spare_server_says_what_a_failure_leaves(
    servers: int, needed: float | None, told: str
) -> None:
    assert told in alone_risk(servers, 100, needed)


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ([1, 3], "There is one server for prompts, and no spare: while it is down, nobody is served."),
        ([1, 1], "There is one server for prompts and one for answers, and no spare"),
        ([2, 4], "No server is spare: while one is down, at least about 50 users are safe to promise."),
    ],
)
def test_servers_that_depend_on_each_other_fail_by_their_part(counts: list[int], told: str) -> None:
    gpu = hc.find_gpu("h100-sxm")
    bought = Bought(gpu=gpu, gpus=8, servers=sum(counts), parts=tuple((count, 2) for count in counts))
    assert bought.failure(100).startswith(told)
    assert "network" in bought.failure(100)


@pytest.mark.parametrize(("ttft_error", "is_said"), [(0.36, True), (None, False)])
def test_where_ttft_s_own_error_matters_the_page_says_that_it_is_covered(
    ttft_error: float | None, is_said: bool
) -> None:
    row: Any = SimpleNamespace(step_time_error=0.15, ttft_error=ttft_error, users_at_kv_cache_low=None, plan=None)
    said = confidence_text(Headroom(needed=None, low=100, users=110, high=120), row)
    assert ("and that of how soon answers begin (another ±36%)" in said) == is_said
