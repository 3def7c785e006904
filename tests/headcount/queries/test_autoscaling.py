"""Fleets that change, as a question: what is answered, refused, and told."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

import headcount as hc
from headcount.cli.commands import simulate
from headcount.queries.autoscaling.over_time import AutoscalingResult
from simulator.fleet.scaler import SCALERS
from tests.headcount.conftest import SHORT_ANSWERS

Run = Callable[..., Any]
FAST: dict[str, Any] = {"latency_model": "constant", "step_s": 0.05, "max_model_len": 4096, "max_num_seqs": 4}
LIMITS: dict[str, Any] = {"ttft_s": 0.06, "tpot_s": 0.051}
COMMAND = (
    "simulate", "--model", "qwen3-0.6b", "--gpu", "h100-sxm", "--latency-model", "constant", "--step-s", "0.05",
    "--max-model-len", "4096", "--max-num-seqs", "4", "--workload", str(SHORT_ANSWERS), "--users", "6",
)  # fmt: skip


def asked(**given: Any) -> AutoscalingResult:
    values = {"workload": SHORT_ANSWERS, "users": 6, "duration_s": 900.0, **FAST, **given}
    answer: AutoscalingResult = hc.simulate_autoscaling("qwen3-0.6b", "h100-sxm", **values)
    return answer


def test_autoscalers_are_compared_with_the_smallest_fixed_fleet_that_meets_the_slo() -> None:
    answer = asked(autoscaler=["hpa:target_average_value=1", "knative-kpa"], min_replicas=1, max_replicas=4, **LIMITS)
    rows = answer.figures()["fleets"]
    fixed = {n: asked(replicas=n, **LIMITS).figures()["fleets"][0]["attainment"] for n in (1, 2, 3)}
    fewest = min(n for n, met in fixed.items() if met >= 0.95)
    assert fewest > 1, "one replica misses the SLO here"
    assert [row["fleet"] for row in rows] == [
        "hpa:target_average_value=1", "knative-kpa", "fixed at 4", f"fixed at {fewest}",
    ]  # fmt: skip
    assert rows[-1]["attainment"] == fixed[fewest]
    assert rows[-2]["gpu_hours"] == pytest.approx(4 * 900 / 3600)
    assert all(row["gpu_hours"] <= rows[-2]["gpu_hours"] for row in rows)
    cheaper = rows[0]["fleet"] if rows[0]["gpu_hours"] < rows[-1]["gpu_hours"] else "the fixed fleet"
    assert f"In this run {cheaper} is cheaper" in " ".join(str(answer).split())
    for row in rows:
        history = [*row["replicas_over_time"], {"time_s": 900.0}]
        held_s = sum(
            (later["time_s"] - count["time_s"]) * (count["ready"] + count["starting"] + count["draining"])
            for count, later in pairwise(history)
        )
        assert row["gpu_hours"] == pytest.approx(held_s / 3600)
        assert row["usd_per_day"] == pytest.approx(row["usd"] * 86_400 / 900)


def test_where_even_the_largest_fleet_misses_the_slo_the_headline_says_so() -> None:
    answer = asked(autoscaler="hpa", min_replicas=1, max_replicas=2, ttft_s=0.04)
    assert [row["fleet"] for row in answer.figures()["fleets"]] == ["hpa", "fixed at 2"]
    assert "the largest allowed fleet, which misses" in " ".join(str(answer).split())


def test_an_event_is_told_with_what_it_cost() -> None:
    answer = asked(replicas=2, events=["crash@5min"], loses_requests=True, startup="process=100s")
    (row,) = answer.figures()["fleets"]
    (event,) = row["events"]
    assert event["time_s"] == 300
    assert 0 <= event["attainment_lowest_minute"] <= 1
    assert row["requests_lost"] == row["requests_interrupted"]
    assert row["replicas_ready_min"] == 1
    assert "crash at 300 s" in str(answer)
    assert "are lost" in str(answer)


def test_users_come_and_go_by_a_profile() -> None:
    hours = [0.0] * 24
    hours[10] = 1.0
    answer = asked(daily_profile=",".join(map(str, hours)), duration_s=None, replicas=1)
    times = answer.fleets[0].shown.result.times.arrival_s
    assert times.min() > 9.5 * 3600
    assert times.max() < 12 * 3600
    assert "replicas by hour" in str(answer)


def test_the_command_answers_and_reports(headcount: Run, tmp_path: Any) -> None:
    over_time = ("--duration", "10min", "--autoscaler", "hpa,keda:threshold=2", "--max-replicas", "2")
    ran = headcount(*COMMAND, *over_time, "--event", "crash@4min", "--report", str(tmp_path / "r.html"))
    assert ran.code == 0, ran.err
    assert "keda:threshold=2" in ran.out
    page = (tmp_path / "r.html").read_text()
    assert "The fleet over time" in page
    assert "Requests in each replica" in page


def test_the_help_names_every_autoscaler() -> None:
    (option,) = [option for option in simulate.command.params if option.name == "autoscaler"]
    said = getattr(option, "help", "") or ""
    assert all(file.replace("_", "-") in said for file in SCALERS.names())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--autoscaler", "hpx"), "no autoscaler 'hpx'; did you mean 'hpa'"),
        (("--autoscaler", "hpa", "--min-replicas", "3", "--max-replicas", "2"), "min_replicas 3 and max_replicas 2"),
        (("--event", "crash@2h"), "is after the load's end at 3,600 s"),
        (("--event", "crash"), "is no event"),
        (("--daily-profile", "1,2"), "the profile has 2 numbers; give 24"),
        (("--startup", "weights=20", "--duration", "5min"), "'20' is not a time"),
        (("--autoscaler", "schedule"), "write the schedule as"),
        (("--duration", "5min", "--requests-out", "x.csv"), "--requests-out goes with one load"),
        (("--initial-replicas", "4", "--autoscaler", "hpa"), "initial_replicas is 4"),
    ],
)
def test_a_wrong_fleet_is_refused(headcount: Run, given: tuple[str, ...], said: str) -> None:
    ran = headcount(*COMMAND, *given)
    assert ran.code == 2
    assert said in ran.err


def test_a_profile_needs_users(headcount: Run) -> None:
    ran = headcount(
        "simulate", "--model", "qwen3-0.6b", "--gpu", "h100-sxm", "--input-len", "100", "--output-len", "10",
        "--rate", "1", "--num-requests", "10", "--daily-profile", "day",
    )  # fmt: skip
    assert ran.code == 2
    assert "--daily-profile needs --users" in ran.err
