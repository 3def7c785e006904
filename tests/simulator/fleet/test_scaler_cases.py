"""Autoscalers on the originals' own cases."""

from collections.abc import Callable
from typing import Any

import pytest

from simulator.fleet.scaler import find_scaler
from simulator.fleet.scalers import aibrix_apa, dynamo_planner, hpa, keda, knative_kpa, llm_d_wva, ray_serve
from tests.simulator.fleet.observed_fleets import observed

# -- Kubernetes: TestReplicaCalc* of replica_calculator_test.go, metrics of pods


@pytest.mark.parametrize(
    ("values", "target", "replicas", "desired_replicas"),
    [
        ((300, 500, 700), 300, 3, 5),  # ScaleUp, a utilization of 50 where 30 is the target
        ((20_000, 10_000, 30_000), 15_000, 3, 4),  # ScaleUpCM
        ((8_600,), 4_400, 1, 2),  # ScaleUpCMExternal
        ((100, 300, 500, 250, 250), 500, 5, 3),  # ScaleDown, 28 of 50
        ((12_000,) * 5, 20_000, 5, 3),  # ScaleDownCM
        ((8_600,), 14_334, 5, 5),  # one of five reports: the others may be on target
        ((20_000, 10_000, 1_000), 10_333, 3, 3),  # within the tolerance
    ],
)
def test_hpa_decides_as_kubernetes_own_cases(
    values: tuple[float, ...], target: float, replicas: int, desired_replicas: int
) -> None:
    assert hpa.replicas_for(values, target, replicas, 0.1) == desired_replicas


@pytest.mark.parametrize(
    ("total", "target", "replicas", "desired_replicas"),
    [(8_600, 2_150, 3, 4), (8_600, 2_867, 5, 3), (20_000, 5_000, 3, 4), (6_000, 2_000, 5, 3), (8_600, 2_867, 3, 3)],
)
def test_hpa_of_a_fleet_s_metric_decides_as_kubernetes_own_cases(
    total: float, target: float, replicas: int, desired_replicas: int
) -> None:
    """PerPodCMExternal and PerPodCMObject, up and down."""
    assert hpa.replicas_for_total(total, target, replicas, 0.1) == desired_replicas


@pytest.mark.parametrize(
    ("before", "proposed", "stabilized"),
    [
        ([], 5, 5),
        ([(-120, 4), (-60, 5)], 3, 5),
        ([(-120, 1), (-60, 2)], 3, 3),
        ([(-600, 10), (-540, 9)], 3, 3),
        ([(-600, 10), (-540, 9), (-120, 5), (-60, 4)], 3, 5),
    ],
)
def test_hpa_scales_down_to_the_most_of_five_minutes(
    before: list[tuple[float, int]], proposed: int, stabilized: int
) -> None:
    """TestNormalizeDesiredReplicas of horizontal_test.go, from a fleet as large as what it wished for."""
    behavior = hpa.Behavior(hpa.Settings())
    for time_s, count in before:
        behavior.limited(count, observed(time_s=time_s, replicas=10))
    assert behavior.limited(proposed, observed(replicas=max(stabilized, proposed))) == stabilized


def test_hpa_adds_four_replicas_or_as_many_as_there_are_in_15_s() -> None:
    scaler = find_scaler("hpa")()
    assert scaler.desired_replicas(observed(replicas=2, running=1000)) == 6
    assert scaler.desired_replicas(observed(time_s=15, replicas=6, running=1000)) == 12
    assert scaler.desired_replicas(observed(time_s=15, replicas=12, running=1000, most=100)) == 12, (
        "all of this period is used"
    )
    assert scaler.desired_replicas(observed(time_s=30, replicas=12, running=1000, most=20)) == 20


def test_replicas_that_start_count_as_idle_for_hpa() -> None:
    assert hpa.replicas_for((30.0, 30.0), 15, 2, 0.1) == 4
    assert hpa.replicas_for((30.0, 30.0), 15, 4, 0.1) == 4


# -- KEDA


def test_keda_wakes_a_fleet_at_its_poll_and_lets_it_sleep_after_the_cooldown() -> None:
    scaler = find_scaler("keda")()
    asleep = [
        scaler.desired_replicas(observed(time_s=time_s, replicas=0, ready=0, held=time_s >= 15))
        for time_s in (0, 15, 30)
    ]
    assert asleep == [0, 0, 1]
    idle = [scaler.desired_replicas(observed(time_s=time_s, replicas=1)) for time_s in range(45, 391, 15)]
    assert idle.index(0) == (360 - 45) // 15, "the last active poll was at 30 s, 330 s later the cooldown is over"


def test_keda_wants_one_replica_for_each_threshold_of_the_queue() -> None:
    assert keda.Scaler(keda.Settings()).desired_replicas(observed(replicas=3, waiting=7)) == 5  # 21 wait, 5 for each


# -- Knative: TestAutoscalerScale and others of autoscaler_test.go, with rates of 10 and a target of its own


def decider(target: float, ready: int, **more: float) -> knative_kpa.Decider:
    given = {"max_scale_up_rate": 10.0, "max_scale_down_rate": 10.0} | more
    settings = knative_kpa.Settings(
        container_concurrency_target_default=target, container_concurrency_target_percentage=100.0, **given
    )
    return knative_kpa.Decider(settings, ready=min(ready, 1), now_s=0.0)


@pytest.mark.parametrize(
    ("target", "ready", "averages", "desired_replicas"),
    [
        (10, 1, (0, 0), 0),
        (181, 1, (21, 26), 1),
        (10, 1, (50, 49), 5),
        (10, 5, (50, 50), 5),
        (10, 1, (50, 100), 10),
        (10, 1, (1000, 1001), 10),
        (10, 10, (1000, 1001), 100),
        (10, 100, (1, 1), 10),
        (10, 10, (1, 1), 1),
        (10, 0, (1000, 888), 10),
        (10, 1, (1, 0), 1),
    ],
)
def test_kpa_decides_as_knative_s_own_cases(
    target: float, ready: int, averages: tuple[float, float], desired_replicas: int
) -> None:
    assert decider(target, ready).desired(*averages, ready=ready, now_s=100.0) == desired_replicas


def test_kpa_with_small_rates_moves_by_one_at_least() -> None:
    assert decider(1, 2, max_scale_up_rate=1.1).desired(3, 3.1, ready=2, now_s=100.0) == 3
    assert decider(10, 100, max_scale_down_rate=1.1).desired(1, 1, ready=100, now_s=100.0) == 90


@pytest.mark.parametrize(("stable", "panic", "desired_replicas"), [(50, 30, 50), (20, 30, 30)])
def test_kpa_in_panic_takes_the_larger_of_both_windows(stable: float, panic: float, desired_replicas: int) -> None:
    found = decider(1, 1)
    found.panic_s = 95.0
    assert found.desired(stable, panic, ready=5, now_s=100.0) == desired_replicas


def test_kpa_never_goes_down_in_panic_and_leaves_it_after_the_stable_window() -> None:
    found = decider(10, 1)
    steps = [(100, 100, 1, 0.0), (100, 1000, 10, 0.0), (1, 1, 10, 30.0), (1, 1, 10, 61.0)]
    assert [found.desired(stable, panic, ready=ready, now_s=now_s) for stable, panic, ready, now_s in steps] == [
        10, 100, 100, 1,
    ]  # fmt: skip


def test_kpa_leaves_a_panic_while_the_load_grows_slowly_and_extends_it_while_it_surges() -> None:
    found = decider(1, 1)
    steps = [(11, 25, 10, 0.0), (30, 41, 40, 30.0), (50, 56, 55, 62.0)]
    assert [found.desired(stable, panic, ready=ready, now_s=now_s) for stable, panic, ready, now_s in steps] == [
        25, 41, 50,
    ]  # fmt: skip
    found = decider(1, 1)
    assert found.desired(11, 25, ready=10, now_s=0.0) == 25
    assert found.desired(30, 80, ready=40, now_s=30.0) == 80
    assert found.panic_s == 30.0


def test_kpa_delays_scaling_down() -> None:
    found = decider(10, 0, scale_down_delay_s=300.0, panic_threshold_percentage=10_000.0)
    seen = [(40, 540), (30, 600), (0, 660), (0, 840), (0, 900)]
    assert [found.desired(value, value, ready=0, now_s=float(now_s)) for value, now_s in seen] == [4, 4, 4, 3, 0]


def test_kpa_starts_in_panic_where_several_are_ready() -> None:
    settings = knative_kpa.Settings()
    assert knative_kpa.Decider(settings, ready=2, now_s=5.0).panic_s == 5.0
    assert knative_kpa.Decider(settings, ready=1, now_s=5.0).panic_s == float("inf")


# -- Ray Serve: test_autoscaling_policy.py


def policy(least: int = 1, most: int = 1000, **given: float) -> Callable[..., int]:
    made = ray_serve.Policy(ray_serve.Settings(**given))

    def decided(total: float, ready: int, target: int, now_s: float = 0.0) -> int:
        return made.decided(total, ready=ready, target=target, least=least, most=most, now_s=now_s)

    return decided


@pytest.mark.parametrize(("factor", "desired_replicas"), [(10.0, 10), (0.5, 1)])
def test_ray_wakes_from_zero_by_its_factor(factor: float, desired_replicas: int) -> None:
    assert policy(upscaling_factor=factor)(1, 0, 0) == desired_replicas


def test_ray_goes_to_zero_by_way_of_one_and_never_sticks() -> None:
    decide = policy(0, downscaling_factor=10.0, upscale_delay_s=0.0, downscale_delay_s=0.0)
    assert decide(0, 5, 5) == 1
    assert decide(0, 1, 1) == 0
    decide, replicas = policy(0, downscaling_factor=0.2, upscale_delay_s=0.0, downscale_delay_s=0.0), 5
    for _ in range(5):
        replicas = decide(0, replicas, replicas)
    assert replicas == 0


def test_ray_counts_replicas_that_start_as_decided() -> None:
    decide = policy(target_ongoing_requests=1.0, upscale_delay_s=0.0, downscale_delay_s=100_000.0)
    assert decide(100, 1, 1) == 100
    assert decide(100, 1, 100) == 100
    assert decide(123, 3, 100) == 123
    assert decide(10, 4, 123) == 123


@pytest.mark.parametrize(("delay_s", "after"), [(30.0, (1, 2)), (0.0, (2, 1))])
def test_ray_follows_no_load_that_fluctuates(delay_s: float, after: tuple[int, int]) -> None:
    decide = policy(target_ongoing_requests=50.0, upscale_delay_s=delay_s, downscale_delay_s=delay_s)
    for turn in range(0, 200, 2):
        assert decide(100, 1, 1, now_s=turn / 10) == after[0]
        assert decide(40, 2, 2, now_s=turn / 10 + 0.1) == after[1]


@pytest.mark.parametrize("to_zero_s", [None, 300.0])
def test_ray_scales_once_a_wish_has_lasted(to_zero_s: float | None) -> None:
    """The flow of _run_upscale_downscale_flow, ten looks a second."""
    delays: dict[str, Any] = {} if to_zero_s is None else {"downscale_to_zero_delay_s": to_zero_s}
    decide = policy(0, target_ongoing_requests=1.0, **delays)
    tick = 0

    def lasts(total: float, target: int, desired_replicas: int) -> float:
        nonlocal tick
        first = tick
        while (found := decide(total, target, target, now_s=tick / 10)) == target:
            tick += 1
        assert found == desired_replicas
        tick += 1
        return (tick - 1 - first) / 10

    assert lasts(2, 1, 2) == 30.0
    assert lasts(0, 2, 1) == 600.0
    assert lasts(0, 1, 0) == (600.0 if to_zero_s is None else to_zero_s)


@pytest.mark.parametrize("ongoing", [20, 100, 10])
def test_ray_needs_no_even_spread(ongoing: int) -> None:
    decide = policy(target_ongoing_requests=5.0, upscale_delay_s=0.0, downscale_delay_s=0.0)
    assert decide(ongoing, 4, 4) == ongoing / 5


# -- llm-d: analyzer_test.go of the percentage analyzer


@pytest.mark.parametrize(
    ("replicas", "step"),
    [
        ([(0.75, 2), (0.76, 2)], 1),  # little KV to spare
        ([(0.50, 3), (0.50, 3)], 1),  # little queue to spare
        ([(0.20, 1), (0.30, 1), (0.25, 1)], -1),
        ([(0.70, 2), (0.75, 2)], 1),
        ([(0.50, 2)], 0),  # the last one stays
        ([], 0),
        ([(0.85, 2), (0.50, 6), (0.90, 7)], 1),  # all are saturated
        ([(0.85, 2), (0.50, 6), (0.60, 2)], 0),
    ],
)
def test_wva_decides_as_llm_d_s_own_cases(replicas: list[tuple[float, float]], step: int) -> None:
    assert llm_d_wva.step(replicas, llm_d_wva.Settings()) == step


def test_wva_decides_nothing_while_a_replica_starts_and_its_hpa_waits_four_minutes() -> None:
    scaler = find_scaler("llm-d-wva")()
    full = [scaler.desired_replicas(observed(time_s=15.0 * k, replicas=2, kv_usage=0.9)) for k in range(1, 25)]
    assert full[:19] == [2] * 19
    assert full[-1] == 3
    scaler = find_scaler("llm-d-wva")()
    assert {
        scaler.desired_replicas(observed(time_s=15.0 * k, replicas=3, ready=2, kv_usage=0.9)) for k in range(1, 50)
    } == {3}


# -- AIBrix: apa_test.go


@pytest.mark.parametrize(
    ("replicas", "use", "desired_replicas"),
    [(2, 45, 3), (2, 35, 3), (2, 90, 4), (6, 20, 4), (6, 18, 4), (6, 10, 3), (2, 33, 2), (2, 27, 2)],
)
def test_apa_decides_as_aibrix_s_own_cases(replicas: int, use: float, desired_replicas: int) -> None:
    assert aibrix_apa.target_replicas(replicas, use, aibrix_apa.Settings(target_value=30.0)) == desired_replicas


def test_apa_goes_up_and_down_by_its_rates_at_most() -> None:
    fast_up = aibrix_apa.Settings(target_value=30.0, max_scale_up_rate=2.5)
    fast_down = aibrix_apa.Settings(target_value=30.0, max_scale_down_rate=2.5)
    assert aibrix_apa.target_replicas(2, 90, fast_up) == 5
    assert aibrix_apa.target_replicas(6, 5, fast_down) == 2


# -- Dynamo: thresholds of load_scaling.py, the rate of throughput_scaling.py


@pytest.mark.parametrize(
    ("used", "step"), [((1.2, 0.1), 1), ((0.5, 0.59), -1), ((0.5, 0.7), 0), ((0.3,), 0), ((1.0, 0.9), 0)]
)
def test_dynamo_adds_one_where_any_is_full_and_takes_one_where_none_is_busy(used: tuple[float, ...], step: int) -> None:
    assert dynamo_planner.step(used, *dynamo_planner.THRESHOLDS["throughput"]) == step


def test_dynamo_by_throughput_wants_the_rate_over_that_of_one_engine() -> None:
    scaler = find_scaler("dynamo-planner:mode=throughput,engine_rps=2.5")()
    assert scaler.period_s == 180
    assert scaler.desired_replicas(observed(replicas=2, elapsed_s=180.0, arrived=1_800)) == 4


def test_dynamo_waits_while_a_scaling_is_in_progress() -> None:
    scaler = find_scaler("dynamo-planner")()
    assert scaler.desired_replicas(observed(replicas=3, ready=2, kv_usage=1.5)) == 3
    assert scaler.desired_replicas(observed(replicas=3, kv_usage=0.9, queued_kv=(0.0, 0.0, 0.2))) == 4


def test_a_schedule_repeats_every_day() -> None:
    scaler = find_scaler("schedule:8h=5,18.5h=3")()
    hours = (0, 7.99, 8, 18.49, 18.5, 24, 32)
    assert [scaler.desired_replicas(observed(time_s=3600 * hour)) for hour in hours] == [3, 3, 5, 5, 3, 3, 5]
