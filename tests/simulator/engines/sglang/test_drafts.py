"""SGLang's drafts: the compiled core decides as the reference, and loses no page."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headcount as hc
from conformance.cases.sglang_cases import (
    STORM_EVERY,
    SGLangCase,
    drafting_sglang_case,
    stateful_drafting_sglang_case,
    windowed_drafting_sglang_case,
)
from simulator.engines.sglang.engine import EngineConfig
from simulator.engines.sglang.token_spans import bigram_spans, first_difference
from simulator.engines.vllm.speculation import Speculation
from simulator.simulation import Simulation
from tests.simulator.engines.sglang.side_pools import check_often, simulated, simulated_as_the_reference
from tests.simulator.engines.sglang.test_core import ROUND

seeds = st.integers(0, 10_000), st.integers(0, ROUND * STORM_EVERY - 1)


BESIDE = {"": drafting_sglang_case, "states": stateful_drafting_sglang_case, "windows": windowed_drafting_sglang_case}


def drafting_case(seed: int, number: int, beside: str = "") -> SGLangCase:
    """A random case of what the core simulates."""
    return ending(simulated(BESIDE[beside](seed, number)))


def ending(case: SGLangCase) -> SGLangCase:
    """The same case with contents that end where answers do."""
    requests = []
    for each in case.requests:
        content, _ = each.spans[-1]
        end = each.prompt_tokens + (each.num_tokens_to_stop or each.max_new_tokens)
        requests.append(replace(each, spans=(*each.spans[:-1], (content, end))))
    return replace(case, requests=tuple(requests))


@settings(max_examples=6)
@given(*seeds, st.sampled_from([*BESIDE]))
def test_every_batch_has_the_same_decisions(seed: int, number: int, beside: str) -> None:
    simulated_as_the_reference(drafting_case(seed, number, beside))


@pytest.mark.slow
@settings(max_examples=200)
@given(*seeds, st.sampled_from([*BESIDE]))
def test_the_same_on_many_more_cases(seed: int, number: int, beside: str) -> None:
    simulated_as_the_reference(drafting_case(seed, number, beside))


def check(simulation: Simulation) -> None:
    """Every page is free, in the tree, or of one request alone."""
    arrays = simulation.arrays
    replica, pool, requests = arrays.replicas[0], arrays.sglang.pools[0], arrays.sglang.requests
    root, nodes = int(arrays.sglang.engines[0]["root"]), arrays.sglang.nodes
    of_requests = requests[requests["holds_kv"] == 1]
    pages = -(-of_requests["reserved"] // pool["page_size"]) - of_requests["protected"] // pool["page_size"]
    used = nodes[root + 1 : root + int(arrays.sglang.engines[0]["num_nodes"])]
    locked = used[(used["parent"] != -1) & (used["lock_ref"] > 0)]
    in_tree = int((locked["end"] - locked["start"]).sum()) // int(pool["page_size"])
    assert int(replica["num_free_blocks"]) + int(pages.sum()) + in_tree == pool["num_pages"]


@settings(max_examples=4)
@given(*seeds)
def test_pages_are_conserved(seed: int, number: int) -> None:
    check_often(drafting_case(seed, number), "sglang_drafting", check)


def test_pairs_of_tokens_agree_up_to_one_before_the_first_that_differs() -> None:
    one, other = ((1, 10), (2, 30)), ((1, 10), (3, 30))
    assert first_difference(bigram_spans(one), bigram_spans(other), 0, 29) == 9
    assert bigram_spans(one) == ((1, 9), (2, 29))


DRAFTING = EngineConfig(
    max_total_num_tokens=4000, context_len=300, max_running_requests=4, chunked_prefill_size=64,
    speculation=Speculation(method="eagle", num_speculative_tokens=3, acceptance_rate=0.7),
)  # fmt: skip


TREE = {"num_speculative_tokens": 5, "topk": 4, "num_draft_tokens": 8}


@pytest.mark.parametrize(
    ("drafts", "published"),
    [(None, 158.34), (TREE | {"method": "eagle"}, 244.10), (TREE | {"method": "eagle3"}, 373.25)],
)
def test_one_request_is_as_fast_as_published(drafts: dict[str, Any] | None, published: float) -> None:
    """docs.sglang.io, advanced_features/speculative_decoding: Llama-3.1-8B on one H100, MT-Bench."""
    asked = {"engine": "sglang", "input_len": 100, "output_len": 300, "concurrency": 1, "num_requests": 30}
    answer = hc.simulate("llama-3.1-8b", "h100-sxm", speculation=drafts, **asked)
    assert 1 / answer.to_json()["tpot_s"]["mean"] == pytest.approx(published, rel=0.12)


def test_states_are_kept_no_oftener_than_tokens_are_verified() -> None:
    """SGLang 0.5.23 `arg_groups/mamba_hook.py`."""
    stateful = replace(DRAFTING, max_mamba_cache_size=40, mamba_chunk_size=16, mamba_track_interval=4)
    assert not stateful.tree_has_bigrams
    with pytest.raises(ValueError, match="mamba_track_interval is 3; 4 tokens are verified at once"):
        replace(stateful, mamba_track_interval=3)


def test_places_are_held_for_two_verifications() -> None:
    """SGLang 0.5.23 `mem_cache/allocation_sizing.py`, `get_alloc_reserve_per_decode`."""
    assert (DRAFTING.draft_reserve, replace(DRAFTING, speculation=None).draft_reserve) == (8, 0)
    tree = Speculation(method="eagle", num_speculative_tokens=5, acceptance_rate=0.7, topk=4, num_draft_tokens=8)
    trees = replace(DRAFTING, speculation=tree)
    assert (trees.draft_reserve, replace(trees, page_size=16).draft_reserve) == (2 * 20, 2 * 4 * 32)
    assert replace(trees, chunked_prefill_size=1).max_num_batched_tokens == 4 * 8
