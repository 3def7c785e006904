"""What the server's CPU takes: launches, the front end, streamed tokens; by how fast its cores are."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from calibrate.check.replay import replay
from calibrate.readers import read_measured
from files.errors import HeadcountError
from headcount.queries.simulate import simulate
from kvcache.models.catalog import find_gpu, load_model
from simulator.latency.forms.physical import latency_model
from simulator.latency.gpu_constants import OF_HOST, Constants, constants_for
from simulator.latency.model import served_model
from simulator.latency.step_time import BatchSums, StepTimes

SERVED = Path(__file__).parents[3] / "validation" / "recordings" / "h200-llama-3.1-8b-served"


def step_times(**arguments: Any) -> StepTimes:
    return latency_model(served_model(load_model("llama-3.1-8b"), find_gpu("h100-sxm"), **arguments)).step_times


def decode_s(times: StepTimes, sequences: int) -> float:
    return times.step_s(BatchSums(tokens=sequences, sequences=sequences, sampled=sequences, decode_context=100))


def test_a_host_half_as_fast_takes_twice_as_long_for_what_it_does() -> None:
    shipped = constants_for(find_gpu("h100-sxm"))
    slow = shipped.on_host(0.5)
    for item in fields(Constants):
        before, after = (getattr(constants, item.name) for constants in (shipped, slow))
        assert after == (2 * before if item.name in OF_HOST else before), item.name
    assert shipped.on_host(1.0) is shipped


def test_launches_kernel_by_kernel_wait_for_the_host() -> None:
    usual, slow = (step_times(enforce_eager=True, host_speed=speed) for speed in (1.0, 0.5))
    assert decode_s(slow, 1) == pytest.approx(2 * decode_s(usual, 1), rel=0.02)
    graphs, slow = (step_times(host_speed=speed) for speed in (1.0, 0.5))
    assert decode_s(slow, 1) == pytest.approx(decode_s(graphs, 1), rel=0.05)


@pytest.mark.parametrize(("speed", "servers"), [(1.0, 1), (0.5, 1), (0.5, 4)])
def test_tokens_are_streamed_no_faster_than_api_servers_do(speed: float, servers: int) -> None:
    times = step_times(host_speed=speed, api_server_count=servers)
    limit, of_engine = 20_000 * speed * servers, 1000 / decode_s(replace(times, stream_sequence_s=0.0), 1000)
    assert 1 / times.stream_sequence_s == pytest.approx(limit)
    assert 1000 / decode_s(times, 1000) == pytest.approx(min(limit, of_engine), rel=0.05)


def test_256_clients_get_the_tokens_that_a_virtual_machine_s_api_server_streamed() -> None:
    """It was timed to stream half as many as the fastest host of public runs; without that, 39 % more are simulated."""
    run = read_measured(SERVED / "concurrency-256-prompts-256.json")[0]
    server = {"model": "llama-3.1-8b", "gpu": "h200-sxm", "vllm_version": "0.26.0", "max_model_len": 16384}
    result = replay(run, {**server, "host_speed": 0.5}).simulate()
    assert result.output_tokens_per_s == pytest.approx(run.aggregates["output_tokens_per_s"], rel=0.1)


def test_a_host_of_no_speed_is_refused() -> None:
    with pytest.raises(HeadcountError, match=r"host_speed is 0; it must be from 0\.1 to 10"):
        simulate("llama-3.1-8b", "h100-sxm", rate=1.0, input_len=10, output_len=10, host_speed=0.0)
