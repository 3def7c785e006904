"""SGLang's pool of SSM states: the compiled core decides as the reference, and loses no slot."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.cases.sglang_cases import STORM_EVERY, stateful_sglang_case
from simulator.engines.sglang.engine import EngineConfig
from simulator.engines.sglang.radix_cache import RadixCache
from simulator.engines.sglang.tree_states import TreeStates
from simulator.simulation import Simulation
from tests.simulator.engines.sglang.side_pools import check_often, listed_nodes, simulated, simulated_as_the_reference
from tests.simulator.engines.sglang.test_core import ROUND

seeds = st.integers(0, 10_000), st.integers(0, ROUND * STORM_EVERY - 1)


def assert_same_batches(seed: int, number: int) -> None:
    case = simulated(stateful_sglang_case(seed, number))
    engine = simulated_as_the_reference(case).arrays.sglang.engines[0]
    assert [engine["num_free_states"] + engine["num_evictable_states"]] == [case.engine.max_mamba_cache_size]


@settings(max_examples=4)
@given(*seeds)
def test_every_batch_has_the_same_decisions(seed: int, number: int) -> None:
    assert_same_batches(seed, number)


@pytest.mark.slow
@settings(max_examples=100)
@given(*seeds)
def test_the_same_on_many_more_cases(seed: int, number: int) -> None:
    assert_same_batches(seed, number)


def check(simulation: Simulation) -> None:
    """Slots of states are conserved, and the list of nodes by their last use has exactly those that hold one."""
    arrays = simulation.arrays.sglang
    engine, pool = arrays.engines[0], arrays.pools[0]
    listed = listed_nodes(arrays)
    assert sum(arrays.side_nodes[node]["lock_ref"] == 0 for node in listed) == engine["num_evictable_states"]
    own = arrays.state_requests["holds_state"].sum() + arrays.state_requests["num_tracking_slots"].sum()
    assert engine["num_free_states"] + len(listed) + own == pool["num_state_slots"]
    assert engine["num_free_states"] >= 0


@settings(max_examples=4)
@given(*seeds)
def test_slots_of_states_are_conserved(seed: int, number: int) -> None:
    check_often(simulated(stateful_sglang_case(seed, number)), "sglang_stateful", check)


A, B = ((1, 100), (2, 200)), ((1, 100), (3, 200))


def test_a_prefix_can_be_used_up_to_where_a_state_is() -> None:
    states = TreeStates()
    tree = RadixCache(states=states)
    node = tree.insert(A, 200).last_node
    assert tree.match(A, 200).last_node is node
    assert tree.match(B, 200) == (tree.root, 100)  # the tree knows these tokens, and has no state after them
    assert tree.match(A, 150).last_node is tree.root
    assert not tree.insert(B, 100).had_state
    assert tree.match(B, 200).last_node.end == 100
    assert tree.insert(B, 100).had_state


def test_a_lock_keeps_one_state_and_the_least_recently_used_is_given_up_first() -> None:
    states = TreeStates()
    tree = RadixCache(states=states)
    short, long = tree.insert(A, 100).last_node, tree.insert(A, 200).last_node
    assert states.next_unlocked() is short
    tree.match(A, 100)
    assert states.next_unlocked() is long
    tree.lock(long)
    assert (states.next_unlocked(), states.num_evictable) == (short, 1)  # the lock keeps its tokens, not its state
    states.drop(short)
    assert tree.match(A, 100).last_node is tree.root
    tree.unlock(long)
    assert (states.next_unlocked(), states.num_evictable) == (long, 1)


STATEFUL = EngineConfig(
    max_total_num_tokens=4000, context_len=300, max_running_requests=4, chunked_prefill_size=64,
    max_mamba_cache_size=20, mamba_chunk_size=16,
)  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"max_mamba_cache_size": 19}, "4 running requests take 20 states, 5 each"),
        ({"mamba_radix_cache_strategy": "no_buffer"}, "no_buffer needs disable_overlap_schedule"),
        ({"mamba_radix_cache_strategy": "no_buffer", "page_size": 16}, "no_buffer needs page_size 1"),
        ({"mamba_radix_cache_strategy": "lazy"}, "choose one of no_buffer, extra_buffer"),
        ({"page_size": 3, "chunked_prefill_size": 63}, "it must divide mamba_chunk_size"),
        ({"sliding_window_size": 16, "swa_max_total_num_tokens": 100}, "windows and of states together"),
    ],
)
def test_what_sglang_refuses_is_refused(setting: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(STATEFUL, **setting)  # type: ignore[arg-type]


def test_slots_for_each_running_request() -> None:
    """SGLang 0.5.23 `kv_cache_configurator.py`, `_calculate_mamba_ratio`."""
    untracked = replace(STATEFUL, mamba_radix_cache_strategy="no_buffer", disable_overlap_schedule=True)
    engines = STATEFUL, replace(STATEFUL, disable_overlap_schedule=True), untracked
    assert [engine.states_per_request for engine in engines] == [5, 4, 3]
    assert replace(STATEFUL, disable_radix_cache=True).states_per_request == 1
