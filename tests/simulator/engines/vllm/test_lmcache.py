"""LMCache's connector: what is kept in host memory, what goes, what a step loads and stores."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.cases.scheduler_cases import lmcache_case
from conformance.lmcache import readable_lmcache_steps
from conformance.our_steps import core_steps
from conformance.reference.vllm.connectors.lmcache import ChunkCache, LMCacheConnector
from conformance.reference.vllm.connectors.lmcache_scheduler import LMCacheScheduler
from kvcache.models.catalog import find_gpu, load_model
from simulator.deployment import Deployment, resolve
from simulator.engines.memory import memory_budget
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.engine import with_release_rules
from simulator.results import whole_run
from simulator.simulation import Simulation
from tests.simulator.engines.vllm.test_host_tier import compared
from workloads.load import load_preset
from workloads.populations.presence import users_over_time

LLAMA, H100, GIB = load_model("llama-3.1-8b"), find_gpu("h100-sxm"), 2**30


def keys(*indices: int) -> list[tuple[int, int]]:
    return [(0, index) for index in indices]


def held(cache: ChunkCache) -> list[int]:
    return [index for _, index in cache.pins]


# -- host memory


def test_what_is_looked_up_was_used_now_the_first_chunk_foremost_and_only_up_to_a_gap() -> None:
    cache = ChunkCache(4)
    assert cache.store(keys(0, 1, 3, 9)) == 4
    assert cache.find(keys(0, 1, 2, 3)) == keys(0, 1)
    assert held(cache) == [3, 9, 1, 0]


def test_a_chunk_that_a_request_was_told_of_stays_and_what_finds_no_room_is_dropped() -> None:
    cache = ChunkCache(2)
    assert cache.store(keys(0, 1)) == 2
    found = cache.find(keys(0))
    assert cache.store(keys(5, 6)) == 1  # the tail is dropped
    assert held(cache) == [0, 5]
    cache.unpin(found)
    assert cache.store(keys(7, 8)) == 2
    assert held(cache) == [7, 8]


def test_room_is_made_for_a_chunk_that_is_there_already() -> None:
    cache = ChunkCache(3)
    assert cache.store(keys(0, 1, 2)) == 3
    assert cache.store(keys(1)) == 1
    assert held(cache) == [1, 2]


@given(steps=st.lists(st.tuples(st.booleans(), st.integers(0, 6), st.integers(1, 5)), max_size=20))
def test_no_more_chunks_are_held_than_there_is_room_for_and_none_goes_that_is_pinned(
    steps: list[tuple[bool, int, int]],
) -> None:
    cache, pinned = ChunkCache(4), list[list[tuple[int, int]]]()
    for stores, first, count in steps:
        wanted = keys(*range(first, first + count))
        if stores:
            cache.store(wanted)
        elif pinned and count == 1:
            cache.unpin(pinned.pop())
        else:
            pinned.append(cache.find(wanted))
        assert len(cache.pins) <= 4
        for key in cache.pins:
            assert cache.pins[key] == sum(key in found for found in pinned)
        assert all(key in cache.pins for found in pinned for key in found)


# -- the scheduler


@pytest.mark.parametrize("number", range(24))
def test_the_compiled_core_decides_as_the_readable_scheduler(number: int) -> None:
    case = lmcache_case(7, number)
    case = replace(case, engine=with_release_rules(case.engine, "0.32.0"))
    readable, core = compared(readable_lmcache_steps(case)), compared(core_steps(case))
    assert readable[: len(core)] == core  # a stalled core ends, the readable scheduler waits for the next arrival


def never_loads(connector: LMCacheConnector, request: Any, _: int) -> int:
    connector._local[request] = request.num_tokens
    return 0


def stores_answers(self: LMCacheConnector, request: Any) -> list[tuple[int, int]]:
    tracker = self._trackers[request]
    first, last = (count // self.chunk_size for count in (tracker.num_saved_tokens, tracker.num_tokens))
    tracker.num_saved_tokens = max(last, first) * self.chunk_size
    return self._keys(request, first, last)


def finds_without_use(cache: ChunkCache, wanted: Any) -> list[tuple[int, int]]:
    found = list(takewhile(lambda key: key in cache.pins, wanted))
    for key in found:
        cache.pins[key] += 1
    return found


MUTANTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "nothing is ever loaded": (LMCacheConnector, "find", never_loads),
    "answers are stored too": (LMCacheConnector, "_store", stores_answers),
    "what was found does not count as used": (ChunkCache, "find", finds_without_use),
    "blocks are freed while a step writes them": (LMCacheScheduler, "_may_preempt", lambda *_: True),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_rule_of_lmcache_that_were_wrong_would_be_seen(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, name, wrong = MUTANTS[mutant]
    for number in range(60):
        case = lmcache_case(8, number)
        steps = readable_lmcache_steps(case)
        with monkeypatch.context() as mutated:
            mutated.setattr(target, name, wrong)
            if readable_lmcache_steps(case) != steps:
                return
    pytest.fail("no case differs")


# -- the way from arguments to the engine

DRAFTS = {"method": "ngram", "num_speculative_tokens": 2, "acceptance_rate": 0.5}


def config(**extra: Any) -> dict[str, Any]:
    settings = {f"lmcache.{name}": value for name, value in extra.items()}
    return {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both", "kv_connector_extra_config": settings}


def deployment(**extra: Any) -> Deployment:
    return resolve(
        LLAMA,
        H100,
        EngineArgs(
            num_gpu_blocks_override=2000,
            max_model_len=16384,
            kv_transfer_config=config(**extra) if extra else None,  # type: ignore[arg-type]
        ),
    )


def test_the_defaults_are_lmcache_s_and_the_line_to_paste_says_the_same_again() -> None:
    args = EngineArgs(kv_transfer_config=config())  # type: ignore[arg-type]
    assert args.lmcache is not None and (args.lmcache.max_local_cpu_size, args.lmcache.chunk_size) == (5.0, 256)
    line = deployment(max_local_cpu_size=8, chunk_size=512).serve_line
    pasted = json.loads(line.split("--kv-transfer-config '")[1].split("'")[0])
    assert pasted == config(max_local_cpu_size=8.0, chunk_size=512)


@pytest.mark.parametrize(("model", "tp", "copies"), [("llama-3.1-8b", 2, 2), ("deepseek-v2-lite", 2, 1)])
def test_every_gpu_keeps_its_own_part_of_a_chunk_and_of_a_latent_the_first_alone(
    model: str, tp: int, copies: int
) -> None:
    given_args = EngineArgs(tensor_parallel_size=tp, kv_transfer_config=config(max_local_cpu_size=20))  # type: ignore[arg-type]
    budget = memory_budget(load_model(model), H100, given_args)
    assert budget.host is not None
    assert budget.host.rank_bytes >= 256 // budget.block_size * budget.layout.block_bytes()
    assert budget.host.num_chunks == 20 * GIB // budget.host.rank_bytes
    assert budget.host.chunk_bytes == copies * budget.host.rank_bytes
    assert budget.host.num_tokens == 256 * budget.host.num_chunks


def served(plan: Deployment, users: int = 40) -> Simulation:
    table = users_over_time(load_preset("chat"), users, duration_s=900, seed=3, max_model_len=plan.engine.max_model_len)
    simulation = Simulation(plan.fleet(2, "session-affinity"), table, seed=3)
    simulation.run(1200)
    return simulation


def test_prompts_that_the_gpu_has_lost_are_loaded_and_counted() -> None:
    simulations = served(deployment(max_local_cpu_size=16)), served(deployment())
    with_it, without = map(whole_run, simulations)
    assert with_it.host_hit_rate is not None and with_it.host_hit_rate > 0.02
    assert with_it.prefix_hit_rate + with_it.host_hit_rate > without.prefix_hit_rate
    found = simulations[0].requests["cached_tokens"]
    queried = simulations[0].totals["queried_tokens"].sum()
    assert (with_it.prefix_hit_rate + with_it.host_hit_rate) * queried == pytest.approx(found[found > 0].sum())


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"remote_url": "lm://store:1"}, "lmcache.remote_url: a remote KV cache is not simulated"),
        ({"local_disk": "/data"}, "lmcache.local_disk: KV on a disk is not simulated; leave it out"),
        ({"enable_async_loading": True}, "lmcache.enable_async_loading: LMCache 0.5.6 frees a chunk's memory at its"),
        ({"save_decode_cache": True}, "lmcache.save_decode_cache: storing the KV of answers is not simulated"),
        ({"cache_policy": "LFU"}, "lmcache.cache_policy is 'LFU'"),
        ({"max_local_cpu_sze": 3}, "did you mean 'max_local_cpu_size'"),
        ({"max_local_cpu_size": 0}, "lmcache.max_local_cpu_size is 0; it must be a number above 0"),
        ({"max_local_cpu_size": 1e6}, "give more than 0, at most 16,384"),
        ({"local_cpu": False}, "lmcache.local_cpu"),
    ],
)
def test_what_lmcache_has_and_is_not_simulated_is_refused_by_its_name(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        EngineArgs(kv_transfer_config=config(**asked))  # type: ignore[arg-type]
    EngineArgs(kv_transfer_config=config(enable_async_loading=False, remote_url=None))  # type: ignore[arg-type]


def test_a_size_of_vllm_s_own_tier_beside_it_is_refused_and_chunks_that_no_blocks_fill() -> None:
    with pytest.raises(ValueError, match=r"lmcache\.max_local_cpu_size; leave --kv-offloading-size out"):
        EngineArgs(kv_offloading_size=8.0, kv_transfer_config=config())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"lmcache\.chunk_size is 100; it must be a multiple of the block size, 16"):
        deployment(chunk_size=100)
    with pytest.raises(ValueError, match=r"LMCache is not simulated with speculative .* leave --kv-transfer-config"):
        resolve(LLAMA, H100, EngineArgs(kv_transfer_config=config(), speculation=DRAFTS))  # type: ignore[arg-type]
