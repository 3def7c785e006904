"""KV in host memory as users ask for it: what `--kv-offloading-size` makes of a deployment and of what it serves."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from files.names import UnknownNameError
from kvcache.gpus.gpu import GPU, find_gpu, gpu_names
from kvcache.layout.kv_layout import KVGroup
from kvcache.memory.budget import MemoryBudget
from kvcache.models.catalog import load_model
from simulator.deployment import Deployment, resolve
from simulator.engines.memory import memory_budget
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.connectors.host_cache import WRITING
from simulator.engines.vllm.connectors.host_tier import HostTier
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.events import Event
from simulator.fleet.fleet import Fleet, Pool
from simulator.results import whole_run
from simulator.simulation import Simulation
from tests.simulator.fleet.test_autoscaling import check, events, operated, statuses
from tests.simulator.random_cases import Case, cases
from workloads.load import load_preset
from workloads.populations.presence import users_over_time

LLAMA, MLA, H100 = load_model("llama-3.1-8b"), load_model("deepseek-v2-lite"), find_gpu("h100-sxm")
GIB = 2**30
SCOUT = {"tensor_parallel_size": 8, "max_model_len": 65536}


def host_budget(size: float, model: Any = LLAMA, gpu: GPU = H100, **more: Any) -> MemoryBudget:
    return memory_budget(model, gpu, kv_offloading_size=size, **more)


# -- sizes


@given(
    size=st.floats(0.01, 4096),
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2]),
    kv_cache_dtype=st.sampled_from(["auto", "fp8"]),
)
def test_the_size_is_that_of_all_ranks_and_no_byte_of_a_chunk_is_lost(
    size: float, tp: int, pp: int, kv_cache_dtype: str
) -> None:
    args = {"tensor_parallel_size": tp, "pipeline_parallel_size": pp, "kv_cache_dtype": kv_cache_dtype}
    host = host_budget(size, **args).host
    assert host is not None
    assert host.num_bytes <= size * GIB < host.num_bytes + host.chunk_bytes + 1
    assert host.chunk_bytes % 4096 == 0
    assert 0 <= host.chunk_bytes - host.rank_bytes * tp * pp < 4096
    assert host.num_tokens == 16 * host.num_chunks


def test_a_latent_that_all_ranks_hold_is_kept_once_where_they_share_host_memory() -> None:
    one, four = (host_budget(16, MLA, tensor_parallel_size=tp).host for tp in (1, 4))
    assert one is not None and four is not None and one.num_chunks == four.num_chunks
    amd = [host_budget(16, MLA, find_gpu("mi300x"), tensor_parallel_size=tp).host for tp in (1, 4)]
    assert amd[0] is not None and amd[1] is not None
    assert amd[0].rank_bytes == amd[1].rank_bytes == one.rank_bytes
    assert amd[1].chunk_bytes >= 4 * amd[1].rank_bytes


@pytest.mark.parametrize("name", gpu_names())
def test_every_gpu_copies_more_slowly_than_its_link_and_says_where_the_rate_is_from(name: str) -> None:
    gpu = find_gpu(name)
    host = host_budget(16, load_model("qwen2.5-0.5b"), gpu).host
    assert host is not None
    assert 0.5e10 < host.copied_bytes_per_s < (gpu.host_link_bytes_per_s or 3.2e10)
    assert ("assumed" in host.link[2]) == (gpu.host_link_bytes_per_s is None or gpu.host_link_bytes_per_s > 6.4e10)


def test_a_gpu_is_copied_at_the_rates_that_were_measured() -> None:
    for name, rate in (("h100-sxm", 50e9), ("a100-80gb", 25e9), ("l40s", 25e9)):
        host = host_budget(16, gpu=find_gpu(name)).host
        assert host is not None and host.copied_bytes_per_s == rate


# -- the way from arguments to the engine


def deployment(size: float | None, **more: Any) -> Deployment:
    return resolve(
        LLAMA, H100, EngineArgs(kv_offloading_size=size, num_gpu_blocks_override=2000, max_model_len=16384, **more)
    )


def by_hand(size: int) -> Deployment:
    """The deployment without host memory, and the tier of a Llama's blocks: 16 tokens of 128 KiB."""
    plain = deployment(None)
    block_bytes = 16 * 131_072
    tier = HostTier(num_chunks=size * GIB // block_bytes, chunk_s=block_bytes / 50e9)
    return replace(plain, engine=replace(plain.engine, host_tier=tier))


def served(plan: Deployment, replicas: int = 2, users: int = 40) -> Simulation:
    table = users_over_time(load_preset("chat"), users, duration_s=900, seed=3, max_model_len=plan.engine.max_model_len)
    simulation = Simulation(plan.fleet(replicas, "session-affinity"), table, seed=3)
    simulation.run(1200)
    return simulation


def test_the_tier_of_the_arguments_is_the_one_built_by_hand_in_every_bit() -> None:
    assert deployment(8).engine == by_hand(8).engine
    asked, built = served(deployment(8)), served(by_hand(8))
    assert asked.requests.tobytes() == built.requests.tobytes()
    assert asked.totals.tobytes() == built.totals.tobytes()


def test_the_hits_of_both_tiers_are_the_cached_tokens_of_the_requests() -> None:
    simulation = served(deployment(8))
    result, requests = whole_run(simulation), simulation.requests
    found = requests["cached_tokens"][requests["cached_tokens"] > 0].sum()
    queried = simulation.totals["queried_tokens"].sum()
    assert result.host_hit_rate is not None and result.host_hit_rate > 0.02
    assert (result.prefix_hit_rate + result.host_hit_rate) * queried == pytest.approx(found)
    without = whole_run(served(deployment(None)))
    assert without.host_hit_rate is None and "host_hit_rate" not in without.to_json()
    assert result.prefix_hit_rate + result.host_hit_rate > without.prefix_hit_rate


def test_the_line_to_paste_carries_the_size() -> None:
    assert deployment(8).serve_line.endswith("--kv-offloading-size 8")
    assert deployment(1.5).serve_line.endswith("--kv-offloading-size 1.5")
    assert "offloading" not in deployment(None).serve_line
    assert "kv_offloading_size" not in deployment(None).settings


ARC_CONFIG = {"kv_connector_extra_config": {"eviction_policy": "arc"}}


def test_arc_is_asked_for_as_in_vllm_with_the_size_in_either_place() -> None:
    beside = EngineArgs(kv_offloading_size=8.0, kv_transfer_config=ARC_CONFIG)  # type: ignore[arg-type]
    extra = ARC_CONFIG["kv_connector_extra_config"] | {"cpu_bytes_to_use": 8 * GIB}
    inside = EngineArgs(
        kv_transfer_config={  # type: ignore[arg-type]
            "kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra,
        }
    )  # fmt: skip
    assert inside == beside
    assert EngineArgs(kv_offloading_size=4.0, kv_transfer_config=inside.kv_transfer_config).kv_offloading_size == 4.0
    plan = deployment(8, kv_transfer_config=ARC_CONFIG)
    assert plan.vllm_engine.host_tier == replace(by_hand(8).vllm_engine.host_tier, eviction_policy="arc")
    assert """--kv-transfer-config '{"kv_connector_extra_config": {"eviction_policy": "arc"}}'""" in plan.serve_line
    pasted = json.loads(plan.serve_line.split("--kv-transfer-config '")[1].split("'")[0])
    assert EngineArgs(kv_offloading_size=8.0, kv_transfer_config=pasted) == beside


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (ARC_CONFIG, "kv_transfer_config: CPU KV-cache offloading needs a size; also give --kv-offloading-size GIB"),
        (
            {"kv_connector": "FlexKVConnectorV1"},
            "CPU KV-cache offloading is, by OffloadingConnector: give --kv-offloading-size GIB instead",
        ),
        ({"kv_connector": "MooncakeConnector"}, "is not simulated; of connectors by which prefill engines push, Nixl"),
        (
            {"kv_connector": "NixlPushConnector", "kv_role": "kv_producer"},
            "by --pools with --kv-transfer push",
        ),
        (
            {"kv_connector": "LMCacheMPConnector"},
            "LMCache in a process of its own, which engines share, is not simulated; LMCacheConnectorV1",
        ),
        ({"kv_connector": ["x"]}, "kv_connector '['x']' is not simulated"),
        ({"kv_connector": "NixlConnector"}, "disaggregated prefill/decode is set by --pools"),
        ({"kv_role": "kv_producer"}, "kv_role must be kv_both with OffloadingConnector"),
        (
            {"kv_connector_extra_config": {"eviction_policy": "lfu"}},
            "eviction_policy is 'lfu'; it must be one of arc, lru",
        ),
        ({"kv_connector_extra_config": {"evction_policy": "arc"}}, "did you mean 'eviction_policy'"),
        ({"kv_connector_extra_config": {"offload_prompt_only": False}}, "is not simulated; leave it out"),
        ({"kv_connector_extra_config": {"store_threshold": 2}}, "store_threshold is 2; it must be one of 0, 1"),
    ],
)
def test_a_transfer_config_that_is_not_simulated_is_refused(config: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        EngineArgs(kv_transfer_config=config)  # type: ignore[arg-type]


# -- what is refused


@pytest.mark.parametrize("size", [0, 0.0, -1.0, float("inf"), 20_000])
def test_a_size_that_no_server_has_is_refused(size: float) -> None:
    with pytest.raises(
        ValueError, match=r"kv_offloading_size: \S+ GiB is out of range; give more than 0, at most 16,384"
    ):
        EngineArgs(kv_offloading_size=size)


@pytest.mark.parametrize(
    ("given_values", "told"),
    [
        ({"kv_offloading_backend": "lmcache"}, "'lmcache' is not simulated, native is; leave --kv-offloading-backend"),
        ({"vllm_version": "0.11.2"}, "vLLM has it from 0.12 on; leave --kv-offloading-size out"),
    ],
)
def test_what_no_engine_here_does_is_refused_with_the_arguments(given_values: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        EngineArgs(kv_offloading_size=8.0, **given_values)  # type: ignore[arg-type]


def test_an_unknown_backend_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="no kv_offloading_backend 'nativ'; did you mean 'native'"):
        EngineArgs(kv_offloading_backend="nativ")


@pytest.mark.parametrize(
    ("model", "more", "told"),
    [
        ("gemma-3-12b", {"vllm_version": "0.32.0"}, "sliding windows before vLLM 0.33"),
        ("llama-4-scout-17b-16e-instruct", SCOUT, "chunked attention or layers with KV blocks"),
        ("llama-3.1-8b", {"pipeline_parallel_size": 2}, "pipeline parallelism"),
        ("qwen3-30b-a3b", {"data_parallel_size": 2}, "data parallelism"),
        ("llama-3.1-8b", {"vllm_version": "0.31.0"}, "is simulated by the rules of vLLM 0.32 and later; leave it"),
        ("llama-3.1-8b", {"kv_offloading_size": 0.001}, "must hold 1 block of KV at least: raise --kv-offloading-size"),
    ],
)
def test_what_is_not_simulated_is_refused_when_it_is_resolved(model: str, more: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        resolve(model, "h100-sxm", **({"kv_offloading_size": 8} | more))


# -- fleets that change


def with_tiers(fleet: Fleet, num_chunks: int, kind: str) -> Fleet:
    """Every pool with host memory, without what is not simulated with it; the pool holds the longest request."""
    kinds: dict[str, dict[str, Any]] = {
        "its own": {}, "LMCache": {"blocks_per_chunk": 2, "is_lmcache": True}, "shared": {"is_shared": True},
    }  # fmt: skip
    tier = HostTier(num_chunks=num_chunks, chunk_s=2.0**-9, transfer_s=2.0**-8, **kinds[kind])

    def change(pool: Pool) -> Pool:
        assert isinstance(pool.engine, EngineConfig)
        blocks = max(pool.engine.num_gpu_blocks, -(-pool.engine.max_model_len // pool.engine.block_size) + 2)
        engine = replace(
            pool.engine, kv_groups=(KVGroup(None),), speculation=None, pipeline_parallel_size=1, num_gpu_blocks=blocks,
            host_tier=tier,
        )  # fmt: skip
        return replace(pool, data_parallel_size=1, engine=engine)

    alike = fleet.pools[:1] if kind == "shared" else fleet.pools
    return replace(fleet, pools=alike).with_pools(change)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    case=cases(max_replicas=3),
    what=st.lists(events(), min_size=1, max_size=3),
    retries=st.booleans(),
    num_chunks=st.sampled_from([3, 20, 200]),
    kind=st.sampled_from(["its own", "LMCache", "shared"]),
)
def test_servers_with_host_memory_fail_and_start_again_empty_beside_a_store_that_stays(
    case: Case, what: Sequence[Event], retries: bool, num_chunks: int, kind: str
) -> None:
    fleet = with_tiers(case.fleet, num_chunks, kind)
    given_values: dict[str, Any] = {"events": tuple(what), "retries": retries, "until_s": 2000}
    operation = operated(fleet, case.table, min_replicas=fleet.num_engines, **given_values)
    check(operation)
    lost = statuses(operation)
    again = operated(fleet, case.table, min_replicas=fleet.num_engines, **given_values)
    assert again.simulation.requests.tobytes() == operation.simulation.requests.tobytes()
    arrays = operation.simulation.arrays
    for cache, chunks in zip(arrays.caches, arrays.chunks, strict=True):
        if cache["is_laid_out"]:
            assert 0 <= cache["num_free"] <= num_chunks
            assert (chunks["reads"] >= WRITING).all()
            if kind == "shared":
                assert cache["num_free"] + cache["lengths"][0] == num_chunks
    assert sum(lost.values()) == len(operation.simulation.requests)


LMCACHE = {"kv_connector": "LMCacheConnectorV1", "kv_connector_extra_config": {"lmcache.max_local_cpu_size": 8}}


@pytest.mark.parametrize("given_args", [{"size": 8}, {"size": None, "kv_transfer_config": LMCACHE}])
def test_a_server_that_failed_finds_nothing_in_host_memory(given_args: dict[str, Any]) -> None:
    plan = deployment(**given_args)
    table = users_over_time(load_preset("chat"), 40, duration_s=900, seed=3, max_model_len=plan.engine.max_model_len)
    fleet = plan.fleet(1, "session-affinity")
    failed = operated(fleet, table, events=(Event(kind="crash", time_s=600.0),), until_s=1200)
    alone = operated(fleet, table, until_s=1200)
    shares = [
        run.simulation.totals["host_hit_tokens"].sum() / run.simulation.totals["queried_tokens"].sum()
        for run in (failed, alone)
    ]
    assert 0 < shares[0] < shares[1]
