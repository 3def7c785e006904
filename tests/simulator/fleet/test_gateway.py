"""The gateway's laws: nothing is lost, nobody overtakes unduly, nothing goes on while the fleet is saturated."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from simulator.core import layout
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.fleet import Fleet, Pool
from simulator.fleet.flow_control import (
    CONCURRENCY_DETECTOR,
    DETECTORS,
    ROUND_ROBIN,
    UTILIZATION_DETECTOR,
    FlowControl,
    read_flow_control,
)
from simulator.fleet.view import View
from simulator.latency.step_time import constant_step_times
from simulator.simulation import Simulation
from tests.simulator.engines.vllm.test_disaggregation import pools as pools_disaggregated
from tests.simulator.random_cases import Case, gateway_cases
from tests.simulator.test_laws import check_blocks
from workloads.requests import RequestTable, Tenancy, Tenant, independent_requests

EXAMPLES = 60


def tenant_of(table: RequestTable) -> np.ndarray:
    rows = np.zeros(table.num_requests, int) if table.tenancy is None else table.tenancy.of
    return np.tile(rows, table.num_attempts)


class Observed:
    """A run whose router looks, at each request that goes on, at what the gateway holds."""

    def __init__(self, case: Case) -> None:
        self.control, self.table = case.fleet.flow_control, case.table
        self.priority, self.tenant = np.tile(case.table.priority, case.table.num_attempts), tenant_of(case.table)
        self.went_on: list[tuple[int, set[int]]] = []
        observed = self

        class Router:
            def __init__(self, _seed: int) -> None:
                pass

            def choose(self, view: View) -> int:
                observed.look()
                return min(view.candidates, key=lambda engine: (view.outstanding[engine], engine))

        self.simulation = Simulation(replace(case.fleet, router=Router), case.table)
        self.simulation.run()

    def look(self) -> None:
        arrays = self.simulation.arrays
        held = set(np.flatnonzero(arrays.requests["status"] == layout.HELD).tolist())
        request = int(arrays.cursor["unrouted"][0])
        self.went_on.append((request, held))
        if self.control is None:
            assert not held
            return
        assert self.saturation(self.control) < 1
        assert len(held) <= (self.control.max_requests or math.inf)
        assert np.unique(self.priority[list(held)], return_counts=True)[1].max(initial=0) <= (
            self.control.band_max_requests
        )
        key = self.key
        assert all(self.priority[other] >= self.priority[request] for other in held)
        alike = [other for other in held if self.priority[other] == self.priority[request]]
        if self.control.fairness_policy == ROUND_ROBIN:
            alike = [other for other in alike if self.tenant[other] == self.tenant[request]]
        assert all(key(other) > key(request) for other in alike)

    def key(self, request: int) -> tuple[float, int]:
        return float(self.simulation.requests["arrival_s"][request]), request

    def saturation(self, control: FlowControl) -> float:
        arrays = self.simulation.arrays
        if control.detector == CONCURRENCY_DETECTOR:
            return float(arrays.engine_views["outstanding"].mean()) / control.max_concurrency
        engines = arrays.replicas
        usage = 1 - engines["num_free_blocks"] / engines["num_usable_blocks"]
        waiting = engines["num_waiting"] / control.queue_depth_threshold
        return float(np.maximum(waiting, usage / control.kv_cache_util_threshold).mean())


@settings(max_examples=EXAMPLES)
@given(gateway_cases())
def test_requests_go_on_by_priority_in_their_order_and_only_while_the_fleet_is_not_saturated(case: Case) -> None:
    observed = Observed(case)
    requests = observed.simulation.requests
    sent = [request for request, _ in observed.went_on]
    assert len(set(sent)) == len(sent)
    never_sent = np.setdiff1d(np.flatnonzero(requests["status"] != layout.NOT_ARRIVED), sent)
    assert np.isin(requests["status"][never_sent], (layout.REJECTED, layout.ABANDONED, layout.TIMED_OUT)).all()
    assert (requests["status"][sent] != layout.REJECTED).all()


@settings(max_examples=EXAMPLES)
@given(gateway_cases())
def test_tenants_of_one_priority_take_turns(case: Case) -> None:
    control = case.fleet.flow_control or FlowControl()
    fair = replace(control, fairness_policy=ROUND_ROBIN)
    observed = Observed(replace(case, fleet=replace(case.fleet, flow_control=fair)))
    passed_over: dict[tuple[int, int], int] = {}  # tenants that waited while others of their priority went on
    tenants = len(set(observed.tenant.tolist()))
    for request, held in observed.went_on:
        band = observed.priority[request]
        waiting = {observed.tenant[other] for other in held if observed.priority[other] == band}
        for tenant in range(tenants):
            is_waiting = tenant in waiting and tenant != observed.tenant[request]
            passed_over[band, tenant] = passed_over.get((band, tenant), 0) + 1 if is_waiting else 0
            assert passed_over[band, tenant] < 2 * tenants


@settings(max_examples=EXAMPLES)
@given(gateway_cases())
def test_every_request_ends_once_and_leaves_nothing_behind(case: Case) -> None:
    simulation = Simulation(case.fleet, case.table)
    for until_s in np.linspace(0.0, 2.0, 7):
        simulation.run(until_s)
        check_blocks(simulation)
        status = simulation.requests["status"]
        arrived, ended = status != layout.NOT_ARRIVED, status >= layout.FINISHED
        held = status == layout.HELD
        assert ended.sum() == simulation.num_finished
        in_engines = simulation.arrays.engine_views["outstanding"].sum()
        assert in_engines + held.sum() + ended.sum() == arrived.sum()
        if case.fleet.flow_control is not None:
            assert simulation.arrays.gateways["num_held"][0] == held.sum()
            late_s = case.fleet.flow_control.sweep_every_s + case.fleet.flow_control.dispatch_every_s
            waits_s = until_s - simulation.requests["arrival_s"][held]
            assert (waits_s <= (case.fleet.flow_control.default_request_ttl_s or math.inf) + late_s).all()
    simulation.run()
    requests = simulation.requests
    ended = requests["status"][requests["status"] != layout.NOT_ARRIVED]
    assert np.isin(ended, (layout.FINISHED, layout.REJECTED, layout.ABANDONED, layout.TIMED_OUT)).all()
    assert simulation.num_finished == len(ended)
    assert (simulation.arrays.replicas["num_free_blocks"] == simulation.arrays.replicas["num_usable_blocks"]).all()


@settings(max_examples=EXAMPLES)
@given(gateway_cases())
def test_no_window_holds_more_than_a_tenant_s_quota(case: Case) -> None:
    if case.table.tenancy is None:
        return
    requests = Observed(replace(case, fleet=replace(case.fleet, flow_control=None))).simulation.requests
    taken = np.flatnonzero((requests["status"] != layout.NOT_ARRIVED) & (requests["status"] != layout.REJECTED))
    taken = taken[np.argsort(requests["arrival_s"][taken], kind="stable")]
    for number, tenant in enumerate(case.table.tenancy.tenants):
        mine = taken[tenant_of(case.table)[taken] == number]
        times = requests["arrival_s"][mine]
        for limit, amount in ((tenant.rpm_limit, np.ones(len(mine))), (tenant.tpm_limit, requests["prompt"][mine])):
            sums = np.concatenate([[0.0], np.cumsum(amount)])
            for first in range(len(mine)):
                allowed = limit * (1 + (times[first:] - times[first]) / 60) if math.isfinite(limit) else math.inf
                assert (sums[first + 1 :] - sums[first] <= allowed * (1 + 1e-9)).all()


def test_a_tenant_without_quota_does_not_notice_another_s() -> None:
    table = independent_requests(arrival_s=np.arange(300) / 10, prompt_tokens=[50] * 300, output_tokens=[2] * 300)
    tenancy = Tenancy((Tenant("a", rpm_limit=60), Tenant("b")), np.arange(300, dtype=np.int32) % 2)
    requests = served(replace(table, tenancy=tenancy))
    rejected = requests["status"] == layout.REJECTED
    assert not rejected[1::2].any()
    assert (~rejected[::2]).sum() == 60 + 29  # a full bucket, and what flowed into it within 29.8 s


def test_a_fleet_that_is_not_saturated_serves_as_without_a_queue() -> None:
    table = independent_requests(arrival_s=np.arange(200) / 4, prompt_tokens=[50] * 200, output_tokens=[9] * 200)
    for name in DETECTORS:
        held = served(table, read_flow_control(name))
        np.testing.assert_array_equal(held["finish_s"], served(table)["finish_s"])


def test_metrics_that_the_router_does_not_read_are_as_old_as_the_gateway_s_last_look() -> None:
    """A burst within one refresh goes to the engine; what comes after it waits."""
    times = np.concatenate([np.linspace(0.0, 0.04, 60), np.full(10, 0.06)])
    table = independent_requests(arrival_s=times, prompt_tokens=[200] * 70, output_tokens=[200] * 70)
    simulation = simulation_of(
        table, read_flow_control(f"{UTILIZATION_DETECTOR}:queueDepthThreshold=1"), max_num_seqs=8
    )
    simulation.run(0.045)
    assert not (simulation.requests["status"] == layout.HELD).any()
    simulation.run(0.07)
    assert (simulation.requests["status"][60:] == layout.HELD).all()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("utilisation-detector", "no saturation detector 'utilisation-detector'; did you mean 'utilization-detector'"),
        ("concurrency-detector:queueDepthThreshold=3", "has no parameter 'queueDepthThreshold'"),
        ("concurrency-detector:maxConcurrency=0", "maxConcurrency is '0'; give a whole number, at least 1"),
        ("utilization-detector:queueDepthThreshold=1.5", "queueDepthThreshold is '1.5'; give a whole number"),
        ("utilization-detector:fairnessPolicyRef=fair", "give one of global-strict-fairness-policy, round-robin-"),
        ("utilization-detector:maxRequests=1,maxRequests=2", "maxRequests is given twice"),
    ],
)
def test_a_wrong_flow_control_is_told(given: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read_flow_control(given)


def simulation_of(
    table: RequestTable, control: FlowControl | None = None, *, max_num_seqs: int = 64, num_servers: int = 1
) -> Simulation:
    engine = EngineConfig(
        num_gpu_blocks=2000, max_model_len=2000, max_num_seqs=max_num_seqs, max_num_batched_tokens=512, block_size=16
    )
    times = constant_step_times(0.01, max_num_batched_tokens=512, max_num_seqs=max_num_seqs)
    return Simulation(
        Fleet(pools=(Pool(engine=engine, step_times=times, num_servers=num_servers),), flow_control=control), table
    )


def served(table: RequestTable, control: FlowControl | None = None) -> np.ndarray:
    simulation = simulation_of(table, control)
    simulation.run()
    return simulation.requests


GOOD, WORSE = 1 - 1e-4, 1 + 1e-4
UTILIZATION_CASES = (  # detector_test.go of llm-d-router ebab687: waiting requests, KV usage, saturation at 5 and 0.9
    ([2], [0.5], 0.5 / 0.9),
    ([10], [0.1], 2.0),
    ([1], [0.95], 0.95 / 0.9),
    ([1, 0], [0.1, 0.2], (0.2 + 0.2 / 0.9) / 2),
    ([1, 15], [0.1, 0.2], 1.6),
    ([5], [0.1], 1.0),
)
CONCURRENCY_CASES = (([5], 0.5), ([10], 1.0), ([10, 0], 0.5), ([15, 5], 1.0), ([15, 15], 1.5))  # at 10


@pytest.mark.parametrize(("waiting", "kv_usage", "saturation"), UTILIZATION_CASES)
def test_utilization_is_the_original_s_in_its_own_cases(
    waiting: list[int], kv_usage: list[float], saturation: float
) -> None:
    """With both thresholds times the saturation the fleet is just saturated."""
    for factor, is_held in ((saturation * GOOD, True), (saturation * WORSE, False)):
        control = FlowControl(
            queue_depth_threshold=5 * factor, kv_cache_util_threshold=0.9 * factor, refresh_metrics_s=1000.0
        )
        assert holds(control, waiting=waiting, kv_usage=kv_usage) == is_held


@pytest.mark.parametrize(("outstanding", "saturation"), CONCURRENCY_CASES)
def test_concurrency_is_the_original_s_in_its_own_cases(outstanding: list[int], saturation: float) -> None:
    for factor, is_held in ((saturation * GOOD, True), (saturation * WORSE, False)):
        control = FlowControl(detector=CONCURRENCY_DETECTOR, max_concurrency=10 * factor)
        assert holds(control, outstanding=outstanding) == is_held


def holds(control: FlowControl, **views: list[Any]) -> bool:
    """Whether a request that comes to engines seen so waits at the gateway."""
    table = independent_requests(arrival_s=[0.0], prompt_tokens=[5], output_tokens=[5])
    simulation = simulation_of(table, control, num_servers=len(next(iter(views.values()))))
    for name, values in views.items():
        simulation.arrays.engine_views[name] = values
    simulation.run(0.0)
    return bool(simulation.requests["status"][0] == layout.HELD)


def test_engines_that_prefill_and_engines_that_decode_are_each_a_fleet_to_saturate() -> None:
    """As in the original, the fuller of both counts: one decode engine at its limit, beside idle ones that prefill."""
    count = 60
    table = independent_requests(
        arrival_s=np.arange(count) / 50, prompt_tokens=[40] * count, output_tokens=[30] * count
    )
    control = FlowControl(detector=CONCURRENCY_DETECTOR, max_concurrency=3, default_request_ttl_s=0)
    simulation = Simulation(Fleet(pools=pools_disaggregated(), flow_control=control), table)
    most = 0
    for until_s in np.arange(0.01, 30, 0.02):
        simulation.run(float(until_s))
        most = max(most, int((simulation.requests["status"] == layout.HELD).sum()))
        assert (simulation.arrays.engine_views["outstanding"] <= 3 + 3).all()  # those handed over come on top
    simulation.run()
    assert most > count / 2
    assert (simulation.requests["status"] == layout.FINISHED).all()
