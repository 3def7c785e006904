"""How latency forms are found, how their times are explained."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from files.names import UnknownNameError
from kvcache.models.catalog import find_gpu, load_model
from simulator.deployment import resolve
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.fleet import Fleet, Pool
from simulator.latency.forms import FORMS, latency_model
from simulator.latency.gpu_constants import constants_for
from simulator.latency.model import (
    CAUSES,
    COMMUNICATION,
    COMPUTE,
    KV_READ,
    WEIGHTS_READ,
    AverageStep,
    ServedModel,
    average_step,
    breakdown,
    served_model,
)
from simulator.latency.step_time import BatchSums
from simulator.simulation import Simulation
from workloads.requests import independent_requests
from workloads.synthetic import closed_load


def deployment(model: str = "llama-3.1-8b", gpu: str = "h100-sxm", tp: int = 1) -> ServedModel:
    return served_model(
        architecture=load_model(model),
        gpu=find_gpu(gpu),
        tensor_parallel_size=tp,
        max_num_batched_tokens=4096,
        max_num_seqs=256,
    )


def decode_step(sequences: int, context: int) -> AverageStep:
    return AverageStep(tokens=sequences, sequences=sequences, sampled=sequences, decode_context=sequences * context)


def test_forms_are_found_by_name_and_a_wrong_name_is_refused() -> None:
    assert FORMS.names() == ("constant", "physical")
    with pytest.raises(UnknownNameError, match="physical"):
        latency_model(deployment(), form="physicl")


def test_a_form_outside_the_package_is_found_by_module_and_function() -> None:
    model = latency_model(deployment(), form="simulator.latency.forms.constant:latency_model", step_s=0.02)
    assert model.step_times.decode[5] == 0.02


def test_the_constant_form_is_constant_and_explains_itself() -> None:
    model = latency_model(deployment(), form="constant", step_s=0.01)
    assert sum(breakdown(model, decode_step(7, 100)).values()) == pytest.approx(0.01)
    assert not model.calibrated


@pytest.mark.parametrize(("model", "tp"), [("llama-3.1-8b", 1), ("qwen3-30b-a3b", 2), ("gemma-3-12b-it", 1)])
def test_causes_add_up_to_the_step(model: str, tp: int) -> None:
    latency = latency_model(deployment(model, tp=tp))
    window = latency.step_times.window
    decodes, mixed = BatchSums(), BatchSums()
    for sums in (decodes, mixed):
        for _ in range(32):
            sums.add(start=2999, end=3000, is_sampled=True, is_decode=True, window=window)
    mixed.add(start=1000, end=2000, is_sampled=False, is_decode=False, window=window)
    for sums in (decodes, mixed):
        step = AverageStep(
            tokens=sums.tokens,
            sequences=sums.sequences,
            sampled=sums.sampled,
            decode_context=sums.decode_context,
            window_context=sums.window_context,
            prefill_tokens=sums.prefill_tokens,
            prefill_work=sums.prefill_work,
            window_prefill_work=sums.window_prefill_work,
            prefill_share=float(sums.prefill_tokens > 0),
        )
        seconds = breakdown(latency, step)
        assert tuple(seconds) == CAUSES
        assert min(seconds.values()) >= 0
        assert sum(seconds.values()) == pytest.approx(latency.step_times.step_s(sums))


def test_what_binds_is_weights_then_the_cache_then_compute() -> None:
    model = latency_model(deployment())
    for step, cause in (
        (decode_step(1, 100), WEIGHTS_READ),
        (decode_step(200, 8000), KV_READ),
        (AverageStep(tokens=4096, sequences=4, sampled=4, prefill_tokens=4096, prefill_share=1.0), COMPUTE),
    ):
        seconds = breakdown(model, step)
        assert max(seconds, key=seconds.__getitem__) == cause
        assert seconds[COMMUNICATION] == 0


def test_pcie_makes_communication_bind() -> None:
    step = AverageStep(tokens=2000, sequences=2, sampled=2, prefill_tokens=2000, prefill_share=1.0)
    seconds = breakdown(latency_model(deployment(gpu="l40s", tp=4)), step)
    assert max(seconds, key=seconds.__getitem__) == COMMUNICATION


def test_the_breakdown_of_a_run_is_its_mean_step_time() -> None:
    model = latency_model(deployment())
    engine = EngineConfig(num_gpu_blocks=20000, max_model_len=4096, max_num_seqs=256, max_num_batched_tokens=4096)
    load = closed_load(concurrency=32, num_requests=320, input_len=1000, output_len=200, length_spread=0.8)
    simulation = Simulation(Fleet(pools=(Pool(engine=engine, step_times=model.step_times),)), load)
    simulation.run()
    totals = simulation.totals
    mean_s = (float(totals["gpu_s"].sum()) + float(totals["host_bound_s"].sum())) / float(totals["steps"].sum())
    seconds = breakdown(model, average_step(totals))
    assert sum(seconds.values()) == pytest.approx(mean_s + model.step_times.gap_s, rel=0.1)


def test_a_run_without_steps_has_no_average() -> None:
    engine = EngineConfig(num_gpu_blocks=100, max_model_len=64, max_num_seqs=4, max_num_batched_tokens=64)
    model = latency_model(deployment())
    load = closed_load(concurrency=1, num_requests=1, input_len=8, output_len=8)
    simulation = Simulation(Fleet(pools=(Pool(engine=engine, step_times=model.step_times),)), load)
    with pytest.raises(ValueError, match="no step has run"):
        average_step(simulation.totals)


def test_a_model_lists_every_constant_with_unit_and_source() -> None:
    model = latency_model(deployment())
    assert len(model.assumptions) > 20
    assert all(name and value and source for name, value, source in model.assumptions)
    assert model.is_measured
    assert model.tpot_log_error == constants_for(find_gpu("h100-sxm")).log_errors("dense")[0]
    assert not latency_model(deployment(gpu="mi300x")).is_measured


def test_users_wait_by_another_error_than_equal_clients_that_stay_in_step() -> None:
    model = latency_model(deployment())
    users, equal = (model.ttft_log_error_of(in_step=in_step) for in_step in (False, True))
    assert users.half_width < equal.half_width
    assert min(users.groups, equal.groups, model.tpot_log_error.groups) >= 3
    assert model.ttft_error_at(16) < users.half_width_at(16)  # beside the error of the steps
    for gpu in ("h200-sxm", "b200-sxm"):  # as an H100's, by judgement: no load at random was measured there
        assert latency_model(deployment(gpu=gpu)).ttft_log_error_of(in_step=False) == replace(users, groups=0)
    for gpu in ("mi300x", "l40s"):  # no load at random was measured there
        other = latency_model(deployment(gpu=gpu))
        assert other.ttft_log_error_of(in_step=False) == other.ttft_log_error


def test_a_cold_start_delays_the_first_step_of_each_replica_alone() -> None:
    engine = EngineConfig(num_gpu_blocks=20000, max_model_len=4096, max_num_seqs=256, max_num_batched_tokens=4096)
    warm = latency_model(deployment()).step_times
    load = closed_load(concurrency=2, num_requests=40, input_len=100, output_len=20)
    ends = []
    for cold_start_s in (0.0, 0.7):
        fleet = Fleet(pools=(Pool(engine=engine, step_times=replace(warm, cold_start_s=cold_start_s), num_servers=2),))
        simulation = Simulation(fleet, load)
        simulation.run()
        ends.append(simulation.requests["finish_s"])
    assert ends[1] - ends[0] == pytest.approx(np.full(40, 0.7))


def test_a_cold_server_stalls_as_often_as_asked_while_prompts_come() -> None:
    engine = EngineConfig(num_gpu_blocks=20000, max_model_len=4096, max_num_seqs=256, max_num_batched_tokens=4096)
    warm = latency_model(deployment()).step_times
    few, many = (closed_load(concurrency=1, num_requests=count, input_len=100, output_len=20) for count in (3, 400))
    for load, stalls in ((few, 1), (many, 6)):
        ends = []
        for times in (warm, warm.with_cold_start(1.0, 6, 1.5)):
            simulation = Simulation(Fleet(pools=(Pool(engine=engine, step_times=times),)), load)
            simulation.run()
            ends.append(simulation.requests["finish_s"].max())
        assert ends[1] - ends[0] == pytest.approx(stalls)


@pytest.mark.parametrize(
    ("model", "arguments", "stalls"),
    [
        ("llama-3.1-8b", {}, (0.05, 1, 0.0)),
        ("llama-3.1-70b", {"tensor_parallel_size": 4}, (0.55, 1, 0.0)),
        ("mixtral-8x7b-v0.1", {"tensor_parallel_size": 2}, (1.0, 6, 1.5)),
    ],
)
def test_an_automatic_cold_start_is_that_of_measured_servers(
    model: str, arguments: dict[str, Any], stalls: tuple[float, int, float]
) -> None:
    times = resolve(model, "h100-sxm", cold_start_s="auto", **arguments).latency.step_times
    assert (times.cold_start_s, times.cold_stalls, times.cold_apart_s) == stalls
    assert resolve(model, "h100-sxm", cold_start_s=0.7, **arguments).latency.step_times.cold_stalls == 1


@pytest.mark.parametrize("arrivals_s", [(0.0, 0.0), (0.0, 0.1), (0.0, 60.0)])
def test_ranks_that_step_together_start_cold_once(arrivals_s: tuple[float, float]) -> None:
    engine = EngineConfig(num_gpu_blocks=20000, max_model_len=4096, max_num_seqs=256, max_num_batched_tokens=4096)
    times = replace(latency_model(deployment()).step_times, cold_start_s=5.0)
    fleet = Fleet(pools=(Pool(engine=engine, step_times=times, data_parallel_size=2),))
    load = independent_requests(arrival_s=arrivals_s, prompt_tokens=[100, 100], output_tokens=[200, 200])
    simulation = Simulation(fleet, load)
    simulation.run()
    first, second = simulation.requests["first_token_s"] - simulation.requests["arrival_s"]
    assert 5.0 < first < 5.5
    assert second < max(5.0 - arrivals_s[1], 0.0) + 0.5
