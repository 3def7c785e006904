"""Fleets that change, as a question: what is answered, refused, and told."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

import headcount as hc
from headcount.cli.commands import simulate
from headcount.queries.autoscaling.confidence import judge_of
from headcount.queries.autoscaling.over_time import AutoscalingResult
from headcount.queries.autoscaling.targets import SHARES
from headcount.views.shown import summary
from simulator.fleet.scaler import SCALERS, find_scaler, goal_of
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
    rows = [row for row in answer.figures()["fleets"] if row["tuned_from"] is None]
    fixed = {n: asked(replicas=n, **LIMITS).figures()["fleets"][0]["attainment"] for n in (1, 2, 3)}
    fewest = min(n for n, met in fixed.items() if met >= 0.95)
    assert fewest > 1, "one replica misses the SLO here"
    assert [row["fleet"] for row in rows] == [
        "hpa:target_average_value=1", "knative-kpa", "fixed at 4", f"fixed at {fewest}",
    ]  # fmt: skip
    assert rows[-1]["attainment"] == fixed[fewest]
    assert rows[-2]["gpu_hours"] == pytest.approx(4 * 900 / 3600)
    assert all(row["gpu_hours"] <= rows[-2]["gpu_hours"] for row in rows)
    assert [row["meets_slo"] for row in rows] == [row["attainment"] >= 0.95 for row in rows]
    cheapest = min((row for row in answer.rows() if row["meets_slo"]), key=lambda row: row["gpu_hours"])
    said = " ".join(str(answer).split())
    assert f"The cheapest fleet that meets the SLO: {cheapest['fleet']}, " in said
    assert "hpa:target_average_value=1 aims at 1 requests in flight per replica (target_average_value)" in said
    assert "knative-kpa aims at 70 requests in flight per replica (container_concurrency_target_default)" in said
    table = str(answer).splitlines()
    for row in rows:
        line = next(line for line in table if line.startswith(f"{row['fleet']}  "))
        assert ("missed" in line.split()) == (row["attainment"] < 0.95)
    for row in rows:
        history = [*row["replicas_over_time"], {"time_s": 900.0}]
        held_s = sum(
            (later["time_s"] - count["time_s"]) * (count["ready"] + count["starting"] + count["draining"])
            for count, later in pairwise(history)
        )
        assert row["gpu_hours"] == pytest.approx(held_s / 3600)
        assert row["usd_per_day"] == pytest.approx(row["usd"] * 86_400 / 900)


@pytest.mark.slow
def test_the_headline_says_which_fixed_fleet_is_sure_to_meet_the_slo() -> None:
    """With steps, and with TTFT, as long as 95 % of servers have at most: the fewest replicas that meet both."""
    given: dict[str, Any] = {"latency_model": None, "step_s": None, "users": 3000, "duration_s": 600.0, "ttft_s": 0.039}
    answer = asked(autoscaler="hpa", min_replicas=1, max_replicas=8, **given)
    sure, fewest = answer.sure, answer.fleets[-1].shown.most_replicas
    assert sure is not None and sure.replicas is not None and fewest < sure.replicas < 8
    assert sure.step_error > 0.02 and sure.ttft_error > 0.05
    slower = replace(answer.question, plan=answer.question.plan.with_step_times(1 + sure.step_error))
    later = replace(answer.question, slo=replace(answer.question.slo, ttft_s=0.039 / (1 + sure.ttft_error)))

    def meets(replicas: int) -> bool:
        fleets = (each.fixed_at(replicas).fleet(0, answer.load) for each in (slower, later))
        return all(fleet.shown.attainment >= 0.95 for fleet in fleets)

    assert meets(sure.replicas) and not meets(sure.replicas - 1)
    rows = {row["fleet"]: row for row in answer.rows()}
    assert rows[f"fixed at {sure.replicas}"]["meets_slo_at_95_percent_confidence"] is True
    assert answer.rows()[-1]["meets_slo_at_95_percent_confidence"] is False, "the smallest by mean step times"
    best = answer.rows()[answer.best]
    assert best["meets_slo_at_95_percent_confidence"] is True
    said = " ".join(str(answer).split())
    assert f"The cheapest fleet that meets the SLO at 95 % confidence: {best['fleet']}, " in said
    assert answer.figures()["fixed_at_95_percent_confidence"]["replicas"] == sure.replicas
    begins = replace(answer.question, initial_replicas=8)
    judge = judge_of(begins, answer.load, answer.fleets[-1].shown, lambda _: None)
    assert judge is not None and judge.smallest_fixed(answer.fleets[-1].shown) == sure
    for target, is_sure in ((1, True), (1000, False)):  # all replicas stay, or all but one go
        scaler = f"hpa:target_average_value={target}"
        held_s = judge.held_s(scaler, lambda one, scaler=scaler: replace(one, autoscalers=(scaler,)))  # type: ignore[misc]
        assert (held_s is not None) is is_sure
    assert all(
        row["gpu_hours"] >= best["gpu_hours"] for row in rows.values() if row["meets_slo_at_95_percent_confidence"]
    )
    fewer = asked(autoscaler="hpa", min_replicas=1, max_replicas=fewest, **given)
    assert f"fixed at {fewest} misses it: raise --max-replicas" in " ".join(str(fewer).split())
    assert asked(autoscaler="hpa", min_replicas=1, max_replicas=4, **LIMITS).sure is None


def test_where_even_the_largest_fleet_misses_the_slo_the_headline_says_so() -> None:
    answer = asked(autoscaler="hpa", min_replicas=1, max_replicas=2, ttft_s=0.04)
    assert [row["fleet"] for row in answer.figures()["fleets"]] == ["hpa", "fixed at 2"]
    said = " ".join(str(answer).split())
    assert "No fleet meets the SLO for 95 % of requests" in said and "Raise --max-replicas" in said
    alone = " ".join(str(asked(replicas=2, ttft_s=0.04)).split())
    assert "which misses the 95 % asked for: raise --max-replicas" in alone


def test_the_cheapest_fleet_that_meets_the_slo_is_the_headline_wherever_it_stands() -> None:
    """A target that is met with more replicas stands first, one that misses second, a better one last."""
    names = ["hpa:target_average_value=0.3", "hpa:target_average_value=40", "hpa:target_average_value=1"]
    answer = asked(autoscaler=names, min_replicas=1, max_replicas=6, initial_replicas=6, **LIMITS)
    rows = answer.rows()
    wasteful, missing, _ = rows[:3]
    assert wasteful["meets_slo"] and not missing["meets_slo"]
    assert missing["gpu_hours"] < rows[answer.best]["gpu_hours"] < wasteful["gpu_hours"]
    assert rows[answer.best]["meets_slo"]
    assert answer.best == min(
        (number for number, row in enumerate(rows) if row["meets_slo"]), key=lambda number: rows[number]["gpu_hours"]
    )
    page = summary(answer)
    assert page.answer.startswith(f"The cheapest fleet that meets the SLO: {rows[answer.best]['fleet']}, ")
    assert ("GPU-hours", f"{rows[answer.best]['gpu_hours']:,.1f}") in page.figures


def test_where_no_autoscaler_meets_the_slo_the_answer_names_the_setting_to_change() -> None:
    answer = asked(autoscaler="llm-d-wva", min_replicas=1, max_replicas=4, **LIMITS)
    assert [row["meets_slo"] for row in answer.rows()][:2] == [False, True]
    said = " ".join(str(answer).split())
    assert "No autoscaler meets it with these settings. llm-d-wva comes closest" in said
    assert "For more replicas, give a higher kv_spare_trigger" in said
    assert "llm-d-wva has no target per replica to try" in said


def test_every_autoscaler_is_tried_with_the_same_targets_and_the_first_that_meets_the_slo_is_shown() -> None:
    hours = ",".join(["0.1"] * 8 + ["1"] * 8 + ["0.1"] * 8)
    given: dict[str, Any] = {"min_replicas": 1, "max_replicas": 6, "startup": "node=0s,image=0s,process=5s", **LIMITS}
    given |= {"users": 40, "daily_profile": hours, "duration_s": None}
    names = ["hpa:target_average_value=0.2", "knative-kpa", "ray-serve", "aibrix-apa", "llm-d-wva"]
    answer = asked(autoscaler=names, **given)
    rows, carried = answer.rows(), answer.in_flight_at_peak
    assert [row["fleet"] for row in rows if row["autoscaler"] and row["tuned_from"] is None] == names
    tuned = [row for row in rows if row["tuned_from"]]
    assert len(tuned) >= 3
    for before, row in pairwise(rows):
        if row["tuned_from"]:
            assert row["tuned_from"] == before["fleet"], "beside the one it was made of"
            assert row["meets_slo"]
            assert not before["meets_slo"] or row["gpu_hours"] < before["gpu_hours"]
    for row in tuned:
        target = getattr(goal_of(row["fleet"]), "in_flight", None)
        assert target is None or min(abs(target / carried - share) for share in SHARES) < 0.06  # two digits
    alone = asked(autoscaler="ray-serve", **given)
    assert [row["fleet"] for row in alone.rows() if row["tuned_from"]] == [
        row["fleet"] for row in tuned if row["tuned_from"] == "ray-serve"
    ], "whoever it is compared with"


def test_what_a_start_costs_is_counted_and_headroom_is_for_the_growth_within_one() -> None:
    hours = ",".join(["0.1"] * 8 + ["1"] * 8 + ["0.1"] * 8)
    given: dict[str, Any] = {"min_replicas": 1, "max_replicas": 6, "daily_profile": hours, "duration_s": None, **LIMITS}
    answer = asked(
        users=40, autoscaler="hpa:target_average_value=1.5", startup="node=0s,image=0s,process=600s", **given
    )
    room, starts = answer.headroom, answer.fleets[0].shown.starts
    assert room is not None and room.start_s > 600
    assert room.target_in_flight == pytest.approx(answer.in_flight_at_peak / room.growth)
    shown = answer.fleets[0].shown
    total = answer.rows()[0]["num_requests"]
    assert 0 < starts.num_requests < total and starts.num_starts >= 1
    assert starts.attainment is not None and starts.attainment_else is not None
    met = starts.attainment * starts.num_requests + starts.attainment_else * (total - starts.num_requests)
    assert met / total == pytest.approx(shown.attainment, rel=1e-3)  # a few arrive after the end
    said = " ".join(str(answer).split())
    grows = f"{100 * (room.growth - 1):.0f} %"
    assert f"the load grows by at most {grows}; a target of up to {room.target_in_flight:,.3g}" in said


def test_replicas_stand_below_their_hours() -> None:
    answer = asked(replicas=2, duration_s=3 * 3600.0)
    lines = str(answer).splitlines()
    above = next(number for number, line in enumerate(lines) if line.startswith("replicas by hour of the day"))
    assert lines[above + 1].split() == ["0", "1", "2"]
    assert lines[above + 2].split() == ["2.0", "2.0", "2.0"]


@pytest.mark.parametrize(
    ("given", "text", "in_flight"),
    [
        ("hpa", "16 requests in flight per replica (target_average_value)", 16),
        ("hpa:metric=kv_usage,target_average_value=0.6", "0.6 of the KV cache in use per replica", None),
        ("keda", "5 waiting requests per replica (threshold)", None),
        ("knative-kpa", "70 requests in flight per replica", 70),
        ("ray-serve:target_ongoing_requests=30", "30 ongoing requests per replica", 30),
        ("aibrix-apa", "0.5 of the KV cache in use per replica (target_value)", None),
        ("llm-d-wva", "10% of the KV cache spare below 80% (kv_spare_trigger)", None),
        ("dynamo-planner", "60% to 100% of the KV cache held or queued for", None),
        ("dynamo-planner:mode=throughput,engine_rps=3", "3 requests per second per replica (engine_rps)", None),
        ("schedule:0h=2,8h=10", "2 from 0h 10 from 8h", None),
    ],
)
def test_every_autoscaler_says_what_it_aims_at(given: str, text: str, in_flight: float | None) -> None:
    goal = goal_of(given)
    assert goal is not None
    assert goal.text.startswith(text)
    assert goal.in_flight == in_flight
    assert goal_of(find_scaler("hpa")) is None


def test_headroom_is_measured_from_what_a_replica_of_the_fixed_fleet_carries() -> None:
    answer = asked(autoscaler="hpa:target_average_value=1", min_replicas=1, max_replicas=4, **LIMITS)
    peak, shown = answer.in_flight_at_peak, answer.fleets[-1].shown
    assert peak == pytest.approx(shown.in_flight.sum(axis=1).mean() / shown.most_replicas)  # of 15 minutes, all
    line = " ".join(str(answer).split()).rpartition("hpa:target_average_value=1 aims at ")[2]
    room = "no headroom" if peak <= 1 else f"{1 - 1 / peak:.0%} headroom"
    assert f": {room} below the {peak:,.3g} that each replica of {answer.fleets[-1].name} has" in line


def test_a_target_that_saves_gpu_hours_is_tried_where_the_default_does_not() -> None:
    hours = ",".join(["0.1"] * 8 + ["1"] * 8 + ["0.1"] * 8)
    given: dict[str, Any] = {"min_replicas": 1, "max_replicas": 6, "startup": "node=0s,image=0s,process=5s", **LIMITS}
    given |= {"users": 40, "daily_profile": hours, "duration_s": None}
    answer = asked(autoscaler="hpa:target_average_value=0.2,tolerance=0.05", **given)
    rows = answer.rows()
    (suggested,) = [row for row in rows if row["fleet"] == answer.suggested]
    assert suggested["fleet"].startswith("hpa:tolerance=0.05,target_average_value=")
    assert suggested["meets_slo"] and rows[answer.best] is not None
    assert all(suggested["gpu_hours"] < row["gpu_hours"] for row in rows if row is not suggested and row["meets_slo"])
    goal = goal_of(suggested["fleet"])
    assert goal is not None and goal.in_flight is not None
    assert 0.5 < goal.in_flight / answer.in_flight_at_peak < 1
    said = " ".join(str(answer).split())
    assert f"The cheapest fleet that meets the SLO: {suggested['fleet']}, " in said
    assert "hpa:target_average_value=0.2,tolerance=0.05 also ran with targets of 90, 75 and 60 %" in said
    assert answer.figures()["suggested"] == suggested["fleet"]
    assert suggested["tuned_from"] == "hpa:target_average_value=0.2,tolerance=0.05"
    again = asked(autoscaler=suggested["fleet"], **given)
    assert again.suggested is None, "what is the cheapest needs no other"
    same = next(row for row in again.rows() if row["fleet"] == suggested["fleet"])
    assert same | {"tuned_from": None} == suggested | {"tuned_from": None}


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
