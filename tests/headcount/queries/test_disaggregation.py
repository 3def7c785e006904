"""Users of engines that compute prompts and engines that compute answers."""

import pytest

import headcount as hc
from tests.headcount.conftest import FOUR_AT_ONCE
from tests.headcount.told import summary_of


@pytest.mark.slow
def test_more_engines_that_compute_answers_serve_more_users_where_answers_bind() -> None:
    pools = [{"prefill": "1", "decode": count} for count in ("1", "2")]
    one, two = (hc.disaggregated_capacity("llama-3.1-8b", "h100-sxm", each, **FOUR_AT_ONCE) for each in pools)
    assert 0 < one.users_low <= one.users <= one.users_high
    assert 2 * one.users <= two.users < 3 * one.users  # two queues together waste less than each alone
    assert [row["role"] for row in two.rows()] == ["prefill", "decode"]
    assert two.to_json()["gpus"] == 3
    page = summary_of(two)
    assert page.answer == f"{two.users_low:,} users at once on 3 × NVIDIA H100 SXM"
    assert dict(page.figures)["servers"] == "1 with 1 GPU for prompts, 2 with 1 GPU each for answers, no spare"
    assert len(page.confirm) == 3 and page.confirm_together
    assert page.risk.startswith("There is only one server for prompts: while it is down, nobody is served.")
    assert two.usd_per_month == pytest.approx(1.5 * one.usd_per_month)  # type: ignore[operator]


def test_nobody_served_is_a_target_missed() -> None:
    answer = hc.disaggregated_capacity(
        "llama-3.1-8b", "h100-sxm", {"prefill": "1", "decode": "1"}, **FOUR_AT_ONCE | {"step_s": 2.0}
    )
    assert answer.verdict is hc.Verdict.TARGET_MISSED
    assert answer.users_high == 0
    assert not summary_of(answer).is_good
    assert "not even the smallest load" in str(answer)
