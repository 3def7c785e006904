"""API servers of an engine: each takes one request after the other, the one that is free first takes the next."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from files.errors import HeadcountError
from kvcache.models.catalog import find_gpu, load_model
from simulator.deployment import resolve
from simulator.disaggregation import PoolLink, resolve_disaggregated
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.fleet import Fleet, Pool
from simulator.fleet.pool_sizes import Part
from simulator.latency.step_time import TOKEN_ID_S, constant_step_times
from simulator.simulation import Simulation
from workloads.requests import independent_requests

ENGINE = EngineConfig(num_gpu_blocks=4000, max_model_len=512, max_num_seqs=256, max_num_batched_tokens=512)
TIMES = replace(
    constant_step_times(0.001, max_num_batched_tokens=512, max_num_seqs=256), ingress_request_s=0.01, ingress_s=0.002
)


def at_api_servers(count: int, rate: float, *, requests: int = 4000) -> NDArray[np.void]:
    rng = np.random.default_rng(5)
    arrival_s = np.cumsum(rng.exponential(1 / rate, requests))
    table = independent_requests(arrival_s=arrival_s, prompt_tokens=[8] * requests, output_tokens=[1] * requests)
    simulation = Simulation(Fleet(pools=(Pool(engine=ENGINE, step_times=TIMES, api_servers=count),)), table)
    simulation.run()
    return simulation.requests


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_queue_is_that_of_so_many_servers(count: int) -> None:
    """M/D/c at 80 % by Sakasegawa's approximation, which is exact for one; the same rule screens layouts."""
    rate = 0.8 * count / TIMES.ingress_request_s
    wait_s = at_api_servers(count, rate, requests=40_000)["api_server_s"].mean() - TIMES.ingress_request_s
    expected_s = TIMES.ingress_request_s / 2 * 0.8 ** (math.sqrt(2 * (count + 1)) - 1) / (count * 0.2)
    assert wait_s == pytest.approx(expected_s, rel=0.1)


def test_no_request_waits_longer_with_more_api_servers() -> None:
    waits = [at_api_servers(count, 150)["api_server_s"] for count in (1, 2, 3, 8)]
    for fewer, more in pairwise(waits):
        assert (more <= fewer + 1e-9).all()
    assert waits[0].mean() > 2  # s: one takes 100 requests/s
    assert waits[-1].mean() < 0.02


def test_time_at_api_servers_is_the_way_to_the_scheduler_of_an_idle_engine() -> None:
    requests = at_api_servers(2, 1, requests=50)
    way_s = requests["api_server_s"] + TIMES.ingress_s
    np.testing.assert_allclose(requests["scheduled_s"] - requests["arrival_s"], way_s, atol=1e-9)


@pytest.mark.parametrize(
    ("release", "given", "ranks", "count"),
    [("0.33.0", None, 1, 1), ("0.33.0", None, 2, 2), ("0.14.0", None, 2, 1), ("0.33.0", 4, 1, 4), ("0.33.0", 6, 2, 6)],
)
def test_a_server_has_as_many_as_vllm_starts(release: str, given: int | None, ranks: int, count: int) -> None:
    args = {"vllm_version": release, "data_parallel_size": ranks, "api_server_count": given}
    plan = resolve("gpt-oss-20b", "h100-sxm", **args)
    (pool,) = plan.fleet(3, None).pools
    assert (pool.data_parallel_size, pool.api_servers) == (ranks, count)
    assert plan.num_api_servers(3) == 3 * count


def test_ranks_that_share_nothing_have_their_part_of_the_api_servers() -> None:
    plan = resolve("llama-3.1-8b", "h100-sxm", data_parallel_size=2, api_server_count=4)
    (pool,) = plan.fleet(3, None).pools
    assert (pool.num_servers, pool.api_servers, plan.num_api_servers(3)) == (6, 2, 12)


def test_a_decode_engine_that_gets_token_ids_does_not_tokenize() -> None:
    sizes = Part(engines=1, tensor_parallel_size=1), Part(engines=2, tensor_parallel_size=1)
    model, gpu = load_model("llama-3.1-8b"), find_gpu("h100-sxm")
    texts, ids = (
        resolve_disaggregated(model, gpu, EngineArgs(), sizes, PoolLink(forwards_token_ids=forwards))
        for forwards in (False, True)
    )
    assert texts.decode.latency.step_times.ingress_token_s > 4 * TOKEN_ID_S
    assert ids.decode.latency.step_times.ingress_token_s == TOKEN_ID_S
    assert ids.prefill.latency.step_times.ingress_token_s == texts.prefill.latency.step_times.ingress_token_s
    count = 400
    table = independent_requests(
        arrival_s=np.arange(count) * 0.02, prompt_tokens=[16_000] * count, output_tokens=[2] * count
    )
    queued = []
    for each in (texts, ids):
        simulation = Simulation(each.sized(16, 1).fleet(None), table)
        simulation.run()
        queued.append(simulation.requests["api_server_s"].mean())
    assert queued[0] > 1  # s: one decode engine tokenizes 17 such prompts a second, and 50 come
    assert queued[1] < 0.2


def test_a_server_without_an_api_server_is_refused() -> None:
    with pytest.raises(HeadcountError, match="at least 1"):
        Pool(engine=ENGINE, step_times=TIMES, api_servers=0)
