"""A KV store that all engines share: what one has stored, any other loads."""

import contextlib
import json
import re
import shlex
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.cases.scheduler_case import MAX_STEPS, STEP_S, SchedulerCase
from conformance.cases.scheduler_cases import offloading_case
from conformance.probes.disaggregation_loop import BusyLoop, DisaggregatedDeployment
from conformance.probes.engine_loop import POLL_S, Load
from conformance.reference.block_pool import BlockPool
from conformance.reference.vllm.connectors.store import Copies, Copy, KVStore, StoreConnector, StoreLink
from conformance.reference.vllm.connectors.store_scheduler import StorePlan
from conformance.reference.vllm.kv_cache_manager import BlockTables
from conformance.reference.vllm.requests import Request
from conformance.store import EngineCore
from simulator.core import layout
from simulator.deployment import Deployment, resolve
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.connectors.host_cache import LRU
from simulator.engines.vllm.connectors.host_tier import HostTier
from simulator.engines.vllm.engine import EngineConfig, with_release_rules
from simulator.fleet.events import Event
from simulator.fleet.fleet import Fleet, Pool
from simulator.fleet.router import ROUTERS
from simulator.latency.step_time import constant_step_times
from simulator.simulation import Simulation, StalledError
from tests.simulator.engines.vllm.test_host_tier import compared
from tests.simulator.fleet.test_autoscaling import operated
from workloads.load import load_preset
from workloads.populations.presence import users_over_time
from workloads.requests import RequestTable, independent_requests

TICK_S = 2.0**-20  # by which no two engines of a case begin a step at once


# -- the compiled core beside the readable engines


def store_case(seed: int, number: int) -> SchedulerCase:
    """Case `number` of a seed with a store, for any number of engines."""
    case = offloading_case(seed, number)
    rng = np.random.default_rng(np.random.SeedSequence([seed, number, 4]))
    assert case.engine.host_tier is not None
    tier = replace(
        case.engine.host_tier,
        eviction_policy=LRU,
        is_shared=True,
        store_chunk_s=float(rng.choice([0.0, STEP_S / 32, STEP_S / 4, 2 * STEP_S])),
    )
    apart_s = rng.permutation(2 * case.table.num_requests).reshape(2, -1) * TICK_S
    table = replace(case.table, arrival_s=case.table.arrival_s + apart_s[0], think_s=case.table.think_s + apart_s[1])
    return SchedulerCase(engine=replace(case.engine, host_tier=tier), table=table)


class StoreCore(EngineCore):
    """One of several engines."""

    def __init__(self, engine: EngineConfig, loop: BusyLoop, load: Load, store: KVStore) -> None:
        super().__init__(engine, load, store)
        self._loop = loop

    def enter_prefilled(self, row: int, arrival_s: float, _: "StoreCore") -> None:
        self.enter(row, arrival_s)

    def await_step(self, plan: StorePlan, end_s: float) -> None:
        if plan.num_scheduled_tokens or end_s > self.load.now_s:
            self._loop.sleep_in_step(end_s)


@dataclass
class InTurn:
    """Lets `DisaggregatedDeployment` give each request to the next of all engines."""

    sources: dict[int, int] = field(default_factory=dict)

    def expect(self, row: int) -> None:
        """Nobody keeps KV for it."""


def readable_steps(case: SchedulerCase, num_engines: int) -> list[list[dict[str, Any]]]:
    load = Load(case.to_json()["requests"])
    assert case.engine.host_tier is not None
    store = KVStore(case.engine.host_tier)
    loops = [
        BusyLoop(number, lambda loop: StoreCore(case.engine, loop, load, store), load, POLL_S)
        for number in range(num_engines)
    ]
    rows = InTurn(dict.fromkeys(range(case.table.num_requests), 0))
    return DisaggregatedDeployment(
        load, loops, rows, {"num_prefill": 0, "pushes": False, "dispatch_s": 0.0, "lease_s": 0.0}
    ).run(MAX_STEPS)


def core_steps(case: SchedulerCase, num_engines: int) -> list[list[dict[str, Any]]]:
    simulation = simulated(case.engine, case.table, num_engines, "round-robin", log_steps=True)
    hits = simulation.requests["cached_tokens"].tolist()
    records: list[list[dict[str, Any]]] = [[] for _ in range(num_engines)]
    seen: list[set[int]] = [set() for _ in records]
    for step in simulation.steps:
        new = {row: hits[row] for row in step.scheduled if row not in seen[step.replica]}
        seen[step.replica].update(new)
        records[step.replica].append({**step.to_json(), "scheduled": step.scheduled, "new": new})
    return [found[:MAX_STEPS] for found in records]


def simulated(
    engine: EngineConfig, table: RequestTable, num_engines: int, router: str, *, log_steps: bool = False
) -> Simulation:
    times = constant_step_times(
        STEP_S, max_num_batched_tokens=engine.max_num_batched_tokens, max_num_seqs=engine.max_num_seqs
    )
    pool = Pool(engine=engine, step_times=times, num_servers=num_engines)
    simulation = Simulation(Fleet(pools=(pool,), router=router), table, log_steps=log_steps)
    with contextlib.suppress(StalledError):
        simulation.run(MAX_STEPS * STEP_S + float(np.nanmax(table.arrival_s)))
    return simulation


@pytest.mark.parametrize("number", range(24))
def test_the_compiled_core_decides_as_the_readable_engines(number: int) -> None:
    case = store_case(9, number)
    case = replace(case, engine=with_release_rules(case.engine, ("0.32.0", "0.33.0")[number % 2]))
    count = 1 + number % 3
    assert list(map(compared, readable_steps(case, count))) == list(map(compared, core_steps(case, count)))


def waiting() -> Request:
    """A request of four blocks."""
    return Request(id=0, num_prompt_tokens=64, max_tokens=1, table=BlockTables(spans=((0, 65),), num_prompt_tokens=64))


def test_two_engines_that_read_at_once_share_what_the_store_gives() -> None:
    tier = HostTier(num_chunks=99, chunk_s=0.25, is_shared=True, store_chunk_s=1.0)
    store = KVStore(tier)
    links = [StoreLink(tier, store, lambda _: None) for _ in range(2)]
    reader = waiting()
    reads = [Copy(request=reader, is_store=False, keys=[(0, index) for index in range(4)]) for _ in links]
    for link, read in zip(links, reads, strict=True):
        link.launch(Copies(loads=[read]), 0.0, 0.0)
    assert [link.next_end_s() for link in links] == [4.0, 8.0]


def store_of(reader: Request, num_chunks: int) -> Copy:
    return Copy(request=reader, is_store=True, num_chunks=num_chunks, num_preemptions=reader.num_preemptions)


def test_stores_follow_each_other_and_what_a_preempted_request_had_not_begun_is_dropped() -> None:
    tier, pool = HostTier(num_chunks=99, chunk_s=1.0, is_shared=True), BlockPool(9, enable_prefix_caching=True)
    connector = StoreConnector(16, store := KVStore(tier), pool)
    link = StoreLink(tier, store, connector.begin_store)
    request = waiting()
    assert connector.find(request, 0) == 0
    link.launch(Copies(stores=[store_of(request, 1), store_of(request, 3)]), 0.0, 0.5)
    assert link.next_end_s() == 1.5  # the step, then a chunk
    request.num_preemptions += 1
    link.settle(2.0)
    assert connector.find(request, 0) == 16
    assert link.next_end_s() == 1.5 and len(store.cache) == 1


def test_blocks_that_are_being_stored_stay_taken_when_their_request_has_ended() -> None:
    tier, pool = HostTier(num_chunks=99, chunk_s=1.0, is_shared=True), BlockPool(9, enable_prefix_caching=True)
    connector = StoreConnector(16, KVStore(tier), pool)
    request = waiting()
    request.table.blocks = [pool.take(4)]
    connector.find(request, 0)
    (store,) = connector.plan({request: 64}).stores
    pool.free(request.table.blocks[0][::-1])
    assert pool.num_free == 4
    connector.complete(store)
    assert pool.num_free == 8


# -- laws

BLOCK = 16
ROUTER_NAMES = [name.replace("_", "-") for name in ROUTERS.names()]
SETTINGS: dict[str, Any] = {
    "num_gpu_blocks": 64, "block_size": BLOCK, "max_model_len": 512, "max_num_seqs": 8, "max_num_batched_tokens": 512,
}  # fmt: skip
ENDLESS = HostTier(num_chunks=10_000, chunk_s=0.0)


@st.composite
def one_after_the_other(draw: st.DrawFn) -> RequestTable:
    """Requests of a few families, which share beginnings; each comes when all before it are over."""
    families = np.array(draw(st.lists(st.integers(0, 3), min_size=2, max_size=12)))
    lengths = draw(st.lists(st.integers(20, 400), min_size=len(families), max_size=len(families)))
    table = independent_requests(
        arrival_s=1000.0 * np.arange(len(families)), prompt_tokens=lengths, output_tokens=[3] * len(families)
    )
    return replace(table, span_content=families.astype(table.span_content.dtype))


def stored_before(table: RequestTable, spared: int) -> list[int]:
    """Of each prompt: the tokens in whole blocks that some prompt before it began with, but for its last `spared`."""
    found = []
    for row in range(table.num_requests):
        alike = [
            min(int(table.prompt_tokens[other]), int(table.prompt_tokens[row])) // BLOCK * BLOCK
            for other in range(row)
            if table.span_content[other] == table.span_content[row]
        ]
        found.append(max(min(max(alike, default=0), int(table.prompt_tokens[row]) - spared), 0))
    return found


@pytest.mark.parametrize("router", ROUTER_NAMES)
@settings(max_examples=10)
@given(table=one_after_the_other())
def test_nothing_is_computed_again_that_any_engine_has_stored_whatever_the_router(
    router: str, table: RequestTable
) -> None:
    """Without a GPU's own cache a fleet finds what one engine finds, token by token; with it, no less.

    Of a prompt that was stored as a whole, the last block is computed with a store, the last token with host memory.
    """
    alone = EngineConfig(**SETTINGS, enable_prefix_caching=False, host_tier=ENDLESS)
    shared = replace(alone, host_tier=replace(ENDLESS, is_shared=True))
    one = simulated(alone, table, 1, "round-robin").requests["cached_tokens"]
    assert one.tolist() == stored_before(table, 1)
    found = simulated(shared, table, 3, router).requests["cached_tokens"]
    whole = table.prompt_tokens % BLOCK == 0
    assert found.tolist() == [
        tokens if is_whole else less
        for is_whole, tokens, less in zip(whole, stored_before(table, BLOCK), one.tolist(), strict=True)
    ]
    with_cache = simulated(replace(shared, enable_prefix_caching=True), table, 3, router).requests["cached_tokens"]
    assert (with_cache >= found).all()


@pytest.mark.parametrize("number", range(8))
def test_every_chunk_is_free_or_kept_and_nothing_reads_it_when_all_is_over(number: int) -> None:
    case = store_case(5, number)
    assert case.engine.host_tier is not None
    simulation = simulated(case.engine, case.table, 3, "least-outstanding")
    if (simulation.requests["status"] < layout.FINISHED).any():
        pytest.skip("a request never fits")
    simulation.run()
    cache, chunks = simulation.arrays.caches[0], simulation.arrays.chunks[0]
    if cache["is_laid_out"]:
        assert cache["num_free"] + cache["lengths"][0] == case.engine.host_tier.num_chunks
        assert cache["num_idle"] == cache["lengths"][0]
        assert (chunks["reads"] == 0).all()


# -- the way from arguments to the engines


def deployment(size: float | None, **more: Any) -> Deployment:
    settings = {"num_gpu_blocks_override": 2000, "max_model_len": 16384} | more
    return resolve("llama-3.1-8b", "h100-sxm", EngineArgs(kv_store_size=size, **settings))


def served(plan: Deployment, router: str = "round-robin") -> Simulation:
    table = users_over_time(load_preset("chat"), 60, duration_s=900, seed=3, max_model_len=plan.engine.max_model_len)
    simulation = Simulation(plan.fleet(3, router), table, seed=3)
    simulation.run(1200)
    return simulation


def hit_rate(simulation: Simulation) -> float:
    totals = simulation.totals
    return float((totals["hit_tokens"] + totals["host_hit_tokens"]).sum() / totals["queried_tokens"].sum())


def test_the_store_has_blocks_of_all_ranks_and_each_gpu_its_network_card() -> None:
    tier = deployment(64, tensor_parallel_size=2, kv_store_rate=100.0).engine.host_tier
    block_bytes = 16 * 131_072  # of a Llama's 16 tokens, 128 KiB each
    assert tier == HostTier(
        num_chunks=64 * 2**30 // block_bytes,
        chunk_s=block_bytes / 2 / 35.5e9,
        transfer_s=0.54e-3,
        is_shared=True,
        store_chunk_s=block_bytes / 100e9,
    )


def test_a_store_of_nothing_is_none_in_every_bit() -> None:
    assert EngineArgs(kv_store_size=0) == EngineArgs()
    with_none, without = served(deployment(0)), served(deployment(None))
    assert with_none.requests.tobytes() == without.requests.tobytes()
    assert with_none.totals.tobytes() == without.totals.tobytes()


def test_with_a_store_round_robin_finds_what_other_engines_have_computed() -> None:
    found = {
        (size, router): hit_rate(served(deployment(size), router))
        for size in (None, 64)
        for router in ("round-robin", "session-affinity")
    }
    assert found[None, "round-robin"] < found[None, "session-affinity"] < found[64, "round-robin"]


def test_what_a_server_stored_is_there_when_it_has_failed() -> None:
    table = independent_requests(arrival_s=[0.0, 5000.0], prompt_tokens=[400, 400], output_tokens=[3, 3])
    table = replace(table, span_content=np.zeros(2, table.span_content.dtype))
    found = []
    for is_shared in (True, False):
        engine = EngineConfig(**SETTINGS, host_tier=replace(ENDLESS, is_shared=is_shared))
        times = constant_step_times(STEP_S, max_num_batched_tokens=512, max_num_seqs=8)
        fleet = Fleet(pools=(Pool(engine=engine, step_times=times),), router="round-robin")
        run = operated(fleet, table, events=(Event(kind="crash", time_s=600.0),), until_s=6000)
        found.append(run.simulation.requests["cached_tokens"].tolist())
    assert found == [[0, 384], [0, 0]]  # the block of the last token is always computed


def test_the_line_to_paste_names_the_store_s_connector_and_a_pasted_one_needs_a_size() -> None:
    words = shlex.split(deployment(64).serve_line)
    config = json.loads(words[words.index("--kv-transfer-config") + 1])
    assert config == {"kv_connector": "MooncakeStoreConnector", "kv_role": "kv_both"}
    pasted = deployment(64, kv_transfer_config=config)
    assert pasted.engine == deployment(64).engine and pasted.serve_line == deployment(64).serve_line
    with pytest.raises(ValueError, match="the remote KV cache needs a size; also give --kv-store-size GIB"):
        EngineArgs(kv_transfer_config=config)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"kv_store_size": -1.0}, "kv_store_size: -1 GiB is out of range"),
        ({"kv_store_size": 8.0, "kv_offloading_size": 8.0}, "not simulated together with --kv-offloading-size"),
        ({"kv_store_size": 8.0, "kv_store_rate": 0.0}, "kv_store_rate is 0 GB/s; it must be above 0"),
        ({"kv_store_rate": 9.0}, "also give --kv-store-size GIB"),
        (
            {"kv_store_size": 8.0, "kv_transfer_config": {"kv_connector": "LMCacheConnectorV1"}},
            "not simulated together with LMCache with 5 GiB per GPU; leave --kv-transfer-config out",
        ),
        (
            {
                "kv_store_size": 8.0,
                "kv_transfer_config": {
                    "kv_connector": "MooncakeStoreConnector", "kv_connector_extra_config": {"load_async": False},
                },
            },
            "MooncakeStoreConnector: load_async is not simulated",
        ),
    ],
)  # fmt: skip
def test_what_is_not_simulated_with_a_store_is_refused(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        EngineArgs(**asked)


def test_servers_whose_blocks_differ_share_no_store() -> None:
    pools = [deployment(64, kv_cache_dtype=dtype).fleet(1, None).pools[0] for dtype in ("auto", "fp8")]
    with pytest.raises(ValueError, match="engines that share a remote KV cache need equal blocks"):
        Fleet(pools=tuple(pools))
    with pytest.raises(ValueError, match="must hold 1 block of KV at least: raise --kv-store-size"):
        deployment(0.001)
    with pytest.raises(ValueError, match="data parallelism is not simulated; leave --kv-store-size out"):
        resolve("qwen3-30b-a3b", "h100-sxm", kv_store_size=8, data_parallel_size=2)
