"""States that the prefix cache keeps: where chunks end, what is hit, what a request holds."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.reference.vllm.kv_cache_manager import BlockTables
from conformance.reference.vllm.requests import Plan, Request
from conformance.reference.vllm.scheduler import Scheduler
from conformance.reference.vllm.states import Chunk, leaves_checkpoint, tokens_up_to_state
from kvcache.layout.kv_layout import KVGroup
from simulator.engines.vllm.engine import EngineConfig

BLOCK = 16
GATED_DELTA, MAMBA2 = (KVGroup(None, is_state=True, states_per_request=count) for count in (2, 3))


def engine(state: KVGroup = GATED_DELTA, **settings: int | bool | None) -> EngineConfig:
    given: dict[str, int | bool | None] = {
        "num_gpu_blocks": 100, "max_model_len": 1000, "max_num_seqs": 8, "max_num_batched_tokens": 1000,
        "block_size": BLOCK, "async_scheduling": False,
    }  # fmt: skip
    return EngineConfig(kv_groups=(KVGroup(None), state, state), **given | settings)  # type: ignore[arg-type]


def request(number: int, prompt: int, *, shares: int = 0) -> Request:
    """Its first `shares` tokens are like every other request's."""
    spans = ((1, shares), (10 + number, 10**6)) if shares else ((10 + number, 10**6),)
    return Request(
        id=number,
        num_prompt_tokens=prompt,
        max_tokens=20,
        table=BlockTables(spans=spans, num_prompt_tokens=prompt),
    )


def step(scheduler: Scheduler) -> Plan:
    plan = scheduler.schedule()
    scheduler.complete(plan)
    return plan


def run(scheduler: Scheduler) -> None:
    while scheduler.has_unfinished_requests:
        step(scheduler)


@given(
    start=st.integers(0, 200),
    asked=st.integers(1, 200),
    rest=st.integers(0, 100),
    shared=st.integers(0, 25),
    budget=st.sampled_from([4, 16, 40, 300]),
    state=st.sampled_from([GATED_DELTA, MAMBA2]),
)
def test_a_chunk_ends_with_a_block_or_with_the_prompt_if_a_block_fits_the_budget(
    *, start: int, asked: int, rest: int, shared: int, budget: int, state: KVGroup
) -> None:
    config = engine(state, max_num_batched_tokens=budget, max_num_seqs=1)
    prompt = start + asked + rest
    num_tokens = tokens_up_to_state(config, Chunk(start, start + asked, prompt), prompt, shared * BLOCK)
    end = start + num_tokens
    assert 0 <= num_tokens <= asked
    if budget >= BLOCK and start % BLOCK == 0:
        assert end % BLOCK == 0 or end == prompt
        assert num_tokens > 0 or asked < BLOCK
    else:
        assert num_tokens > 0 or start // BLOCK * BLOCK + BLOCK > start + asked


@given(start=st.integers(0, 20), asked=st.integers(1, 300))
def test_only_the_last_chunk_leaves_a_checkpoint_unless_all_states_are_kept(start: int, asked: int) -> None:
    chunk = Chunk(start * BLOCK, start * BLOCK + asked, start * BLOCK + asked + 1)
    dense = engine(MAMBA2, prefix_cache_retention_interval=None)
    assert not leaves_checkpoint(engine(MAMBA2), chunk)
    assert leaves_checkpoint(dense, chunk) is (asked > BLOCK)
    assert leaves_checkpoint(engine(MAMBA2), chunk._replace(prefill_end=chunk.end)) is (asked > BLOCK)
    assert not leaves_checkpoint(engine(GATED_DELTA, prefix_cache_retention_interval=None), chunk)


def test_a_prompt_is_cut_before_its_last_tokens_so_that_their_state_can_be_kept() -> None:
    scheduler = Scheduler(engine(GATED_DELTA))
    scheduler.add_request(request(0, 100))
    assert [list(step(scheduler).num_scheduled_tokens.values()) for _ in range(3)] == [[96], [4], [1]]


def test_mamba_2_leaves_that_state_on_its_way() -> None:
    scheduler = Scheduler(engine(MAMBA2))
    scheduler.add_request(request(0, 100))
    assert [list(step(scheduler).num_scheduled_tokens.values()) for _ in range(2)] == [[100], [1]]


@pytest.mark.parametrize("state", [GATED_DELTA, MAMBA2])
def test_the_same_prompt_is_hit_up_to_its_last_whole_block(state: KVGroup) -> None:
    scheduler = Scheduler(engine(state))
    first, second = request(0, 100, shares=100), request(1, 100, shares=100)
    for one in (first, second):
        scheduler.add_request(one)
        run(scheduler)
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 96)


def test_a_shared_beginning_is_hit_by_the_third_request() -> None:
    """The first leaves no state there; the second finds keys and values alone, and ends a chunk where they end."""
    scheduler = Scheduler(engine())
    requests = [request(number, 200, shares=70) for number in range(3)]
    for one in requests:
        scheduler.add_request(one)
        run(scheduler)
    assert [one.num_cached_tokens for one in requests] == [0, 0, 64]


def test_a_state_is_gone_on_from_in_the_step_after_it_was_computed() -> None:
    scheduler = Scheduler(engine(MAMBA2))
    for number in range(2):
        scheduler.add_request(request(number, 100, shares=100))
    entered = [list(step(scheduler).num_scheduled_tokens.values()) for _ in range(2)]
    assert entered == [[100], [1, 4]]


def test_a_request_holds_one_state_of_a_group_while_it_decodes() -> None:
    for state, most in ((GATED_DELTA, 2), (MAMBA2, 3)):
        scheduler = Scheduler(engine(state))
        one = request(0, 200)
        scheduler.add_request(one)
        held = []
        while scheduler.has_unfinished_requests:
            plan = scheduler.schedule()
            held.append(max(sum(block != 0 for block in blocks) for blocks in one.table.blocks[1:]))
            scheduler.complete(plan)
        assert max(held) <= most
        assert held[-1] == 1
        assert scheduler.blocks.pool.num_free == 99


def test_states_need_attention_and_chunked_prefill_to_be_cached() -> None:
    with pytest.raises(ValueError, match="without attention"):
        replace(engine(), kv_groups=(GATED_DELTA,))
    with pytest.raises(ValueError, match="chunked prefill"):
        engine(enable_chunked_prefill=False)
    assert not engine(enable_chunked_prefill=False, enable_prefix_caching=False).caches_states
