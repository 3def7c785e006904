"""Spare servers are tried: they fail in a simulation."""

import pytest

import headcount as hc
from tests.headcount.conftest import SHORT_ANSWERS
from tests.simulator.study.made_up_fleets import simulate_as


def planned(monkeypatch: pytest.MonkeyPatch, *, spare: int) -> hc.PlanResult:
    simulate_as(monkeypatch, lambda _, servers: 10 * servers)
    answer: hc.PlanResult = hc.plan(
        "llama-3.1-8b", users=20, gpu="h100-sxm", workload=SHORT_ANSWERS, spare=spare, latency_model="constant",
        step_s=0.02, max_model_len=4096,
    )  # fmt: skip
    return answer


def test_a_plan_with_a_spare_server_says_how_its_failure_went(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = planned(monkeypatch, spare=1)
    tried = answer.spare_tried
    assert tried is not None
    assert tried.failed_servers == 1
    assert tried.servers == answer.best.servers  # type: ignore[union-attr]
    assert tried.recovered_after_s == 0
    assert tried.attainment > 0.95
    assert "simulated: 1 of" in str(answer)
    assert answer.to_json()["spare_tried"]["restarted_after_s"] > 100


def test_without_a_spare_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = planned(monkeypatch, spare=0)
    assert answer.spare_tried is None
    assert "simulated: 1 of" not in str(answer)
    assert answer.to_json()["spare_tried"] is None
