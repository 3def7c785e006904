"""SGLang's pool for layers with sliding windows: the compiled core decides as the reference, and loses no page."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.cases.sglang_cases import STORM_EVERY, windowed_sglang_case
from simulator.engines.sglang.engine import EngineConfig
from simulator.engines.sglang.radix_cache import RadixCache
from simulator.engines.sglang.window_tokens import WindowTokens
from simulator.fleet.fleet import Fleet, Pool
from simulator.latency.step_time import constant_step_times
from simulator.simulation import Simulation, StalledError
from tests.simulator.engines.sglang.side_pools import check_often, listed_nodes, simulated, simulated_as_the_reference
from tests.simulator.engines.sglang.test_core import ROUND
from workloads.requests import independent_requests

seeds = st.integers(0, 10_000), st.integers(0, ROUND * STORM_EVERY - 1)


@settings(max_examples=4)
@given(*seeds)
def test_every_batch_has_the_same_decisions(seed: int, number: int) -> None:
    simulated_as_the_reference(simulated(windowed_sglang_case(seed, number)))


@pytest.mark.slow
@settings(max_examples=60)
@given(*seeds)
def test_the_same_on_many_more_cases(seed: int, number: int) -> None:
    simulated_as_the_reference(simulated(windowed_sglang_case(seed, number)))


def check(simulation: Simulation) -> None:
    """Pages of windows are conserved, and the list of nodes by their last use has exactly those that hold some."""
    arrays = simulation.arrays.sglang
    engine, pool = arrays.engines[0], arrays.pools[0]
    page_size = int(pool["page_size"])
    listed = listed_nodes(arrays)
    pages = {node: int(arrays.nodes[node]["end"] - arrays.nodes[node]["start"]) // page_size for node in listed}
    unlocked = [node for node in listed if not arrays.side_nodes[node]["lock_ref"]]
    assert sum(pages[node] for node in unlocked) == engine["num_evictable_window_pages"]
    holds = arrays.requests["holds_kv"] == 1
    computed = simulation.requests["computed"][holds]
    own = np.maximum(arrays.requests["protected"][holds], arrays.window_requests["start"][holds])
    held = int((-(-computed // page_size) - -(-own // page_size)).sum()) + sum(pages.values())
    assert engine["num_free_window_pages"] + held == pool["num_window_pages"] and engine["num_free_window_pages"] >= 0


@settings(max_examples=4)
@given(*seeds)
def test_pages_of_windows_are_conserved(seed: int, number: int) -> None:
    check_often(simulated(windowed_sglang_case(seed, number)), "sglang_windowed", check)


A, B = ((1, 100), (2, 200)), ((1, 100), (3, 200))


def test_a_prefix_can_be_used_up_to_where_a_whole_window_is_left() -> None:
    windows = WindowTokens(30, 1)
    tree = RadixCache(windows=windows)
    node = tree.insert(A, 200, window_start=150).last_node
    assert (node.start, node.end, windows.evictable_size) == (170, 200, 50)
    assert tree.match(B, 200) == (tree.root, 100)  # of its tokens, the tree has no window
    assert tree.match(A, 200).last_node is node
    assert tree.match(A, 190).last_node.end == 190
    assert tree.match(A, 175).last_node is tree.root  # 25 tokens of the window are left
    tree.insert(B, 100, window_start=60)
    assert tree.match(B, 200).last_node.end == 100


def test_a_lock_keeps_one_window_and_the_least_recently_used_is_given_up_first() -> None:
    windows = WindowTokens(30, 1)
    tree = RadixCache(windows=windows)
    node = tree.insert(A, 200).last_node
    start = tree.lock(node)
    assert start == 170
    assert [(each.start, each.end) for each in windows.unlocked()] == [(0, 170)]
    assert windows.evictable_size == 170
    tree.unlock(node, start)
    other = tree.insert(B, 200).last_node
    assert [(each.start, each.end) for each in windows.unlocked()][-1] == (other.start, other.end)


def test_a_chunk_that_waits_for_memory_for_ever_is_one_clear_error() -> None:
    engine = EngineConfig(
        max_total_num_tokens=400, context_len=300, max_running_requests=4, chunked_prefill_size=16,
        sliding_window_size=16, swa_max_total_num_tokens=24,
    )  # fmt: skip
    times = constant_step_times(1.0, max_num_batched_tokens=64, max_num_seqs=4)
    table = independent_requests(arrival_s=np.zeros(1), prompt_tokens=np.array([200]), output_tokens=np.array([5]))
    with pytest.raises(StalledError, match=r"24 of layers with sliding windows.* ends or waits forever there"):
        Simulation(Fleet(pools=(Pool(engine=engine, step_times=times),)), table).run()


def test_a_pool_of_windows_that_holds_no_request_is_refused() -> None:
    with pytest.raises(ValueError, match="give more than a window and a page"):
        EngineConfig(
            max_total_num_tokens=400, context_len=300, max_running_requests=4, sliding_window_size=16,
            swa_max_total_num_tokens=17,
        )  # fmt: skip
