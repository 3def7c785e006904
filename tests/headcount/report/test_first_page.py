"""What the first page of a report says of given figures: what to confirm, how sure it is, what a failure leaves."""

import re
from types import SimpleNamespace
from typing import Any

import pytest

import headcount as hc
from headcount.views.summary.confidence import Headroom, combined_sensitivity, confidence_text, top_assumptions
from headcount.views.summary.summary import Bought, Summary, alone_risk
from tests.headcount.conftest import SHORT_ANSWERS


def test_an_assumption_that_costs_no_users_is_not_to_be_confirmed() -> None:
    swings = [
        {"name": name, "value": "50 ms", "less": less, "more": 1.1}
        for name, less in (("TPOT limit", 0.999), ("think time", 0.9))
    ]
    room, details = Headroom(needed=None, low=100, users=110, high=120), {"swing": 0.2, "tornado": swings}
    (told,) = top_assumptions(details, room)
    assert told == (
        "A user's pause before the next message: 50 ms. If only this is 20% shorter: about 90 users instead of 100 "
        "(estimated)."
    )
    assert combined_sensitivity(details, room) == ""


@pytest.mark.parametrize(
    ("needed", "enough"), [(90, "90 users, still enough"), (91, "90 users, too few for the 91 needed")]
)
def test_an_assumption_is_judged_by_what_is_needed(needed: int, enough: str) -> None:
    swings = [{"name": "step times", "value": "as simulated", "less": 1.2, "more": 0.9}]
    room = Headroom(needed=needed, low=100, users=110, high=120)
    (told,) = top_assumptions({"swing": 0.2, "tornado": swings}, room)
    assert enough in told and "If only this is 20% slower" in told


def test_assumptions_come_by_what_they_cost_and_together_they_cost_more() -> None:
    """What nobody judged comes first and takes the place of a swing; the product is that of the swings shown."""
    costs = {"context length": 0.9, "length of answers": 0.75, "think time": 0.5, "step times": 0.25}
    swings = [{"name": name, "value": "2", "less": 1.1, "more": left} for name, left in costs.items()]
    room, details = Headroom(needed=10, low=100, users=110, high=120), {"swing": 0.2, "tornado": swings}
    assert [int(re.findall(r"(\d+) users", told)[0]) for told in top_assumptions(details, room)] == [25, 50, 75]
    assert (
        combined_sensitivity(details, room)
        == "All 3 changes of 20% together: about 9 users, too few for the 10 needed (estimated)."
    )
    assert top_assumptions(details, room, ["Quality: not judged."])[0] == "Quality: not judged."
    left = combined_sensitivity(details, room, ["Quality: not judged."])
    told = top_assumptions(details, room, ["Quality: not judged."], leads="think time")
    assert [each.partition(":")[0] for each in told] == [
        "A user's pause before the next message", "Quality", "Speed of the servers",
    ]  # fmt: skip
    assert left.startswith("Both changes of 20% together: about 12 users")


@pytest.mark.parametrize(
    ("needed", "more"),
    [(None, ""), (90, "That is 10 more than the 90 needed."), (101, "That is fewer than the 101 asked for.")],
)
def test_how_sure_it_is_does_not_speak_of_the_share_that_the_promise_allows(needed: float | None, more: str) -> None:
    said = confidence_text(Headroom(needed=needed, low=100, users=110, high=120))
    assert more in said and "answers" not in said


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
        (4, 75, "the others serve about 75 users, still enough"),
        (4, 76, "75 users, of the 76 needed"),
        (4, None, "the others serve about 75 users."),
    ],
)
def test_a_fleet_without_a_spare_server_says_what_a_failure_leaves(
    servers: int, needed: float | None, told: str
) -> None:
    assert told in alone_risk(servers, 100, needed)


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ([1, 3], "There is only one server for prompts: while it is down, nobody is served."),
        ([1, 1], "There is only one server for prompts and one for answers: while"),
        ([2, 4], "There is no spare server: while one is down, the others serve at least about 50 users."),
    ],
)
def test_servers_that_depend_on_each_other_fail_by_their_part(counts: list[int], told: str) -> None:
    gpu = hc.find_gpu("h100-sxm")
    bought = Bought(gpu=gpu, gpus=8, servers=sum(counts), users_low=100, parts=tuple((count, 2) for count in counts))
    assert bought.failure.startswith(told)
    assert "network" in bought.failure


@pytest.mark.parametrize(("ttft_error", "is_said"), [(0.36, True), (None, False)])
def test_where_ttft_s_own_error_matters_the_page_says_that_it_is_covered(
    ttft_error: float | None, is_said: bool
) -> None:
    row: Any = SimpleNamespace(step_time_error=0.15, ttft_error=ttft_error, users_at_kv_cache_low=None, plan=None)
    said = confidence_text(Headroom(needed=None, low=100, users=110, high=120), row)
    assert ("and the error of the time to first token (another ±36%)" in said) == is_said


def test_the_costliest_changes_are_simulated() -> None:
    asked: dict[str, Any] = {
        "workload": SHORT_ANSWERS, "latency_model": "constant", "gpus": [1], "max_num_seqs": 4, "max_model_len": 4096,
        "replications": 4, "store": False,
    }  # fmt: skip
    found = hc.capacity("qwen3-0.6b", "h100-sxm", **asked, step_s=0.01).complete()
    swings = sorted(found.evidence["tornado"], key=lambda each: min(each["less"], each["more"]))
    lost = [each for each in swings[:3] if min(each["less"], each["more"]) < 0.995]
    assert lost and all("simulated" in each for each in lost)
    slower = hc.capacity("qwen3-0.6b", "h100-sxm", **asked, step_s=0.012)
    (steps,) = (each for each in swings if each["name"] == "step times")
    assert steps["simulated"] == "more"
    assert steps["more"] == pytest.approx(slower.users_low / found.users_low, rel=0.05)
    room = Headroom(needed=None, low=found.users_low, users=found.users, high=found.users_high)
    assert any("(simulated)" in told for told in top_assumptions(found.evidence, room))
