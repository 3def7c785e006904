"""How many conversations fit at once."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kvcache.memory.budget import MemoryBudget
from kvcache.memory.conversations import conversations_at_once, tokens_per_user
from kvcache.models.catalog import find_gpu, load_model
from simulator.engines.memory import memory_budget

MODELS = st.sampled_from(["llama-3.1-8b", "gpt-oss-120b", "gemma-3-27b", "deepseek-v2-lite", "llama-4-scout"])


def budget(model: str = "llama-3.1-8b", **settings_: object) -> MemoryBudget:
    return memory_budget(load_model(model), find_gpu("h100-sxm"), **{"max_model_len": 32768, **settings_})  # type: ignore[arg-type]


def test_full_attention_holds_whole_blocks_of_each_conversation() -> None:
    given_ = budget()
    blocks = -(-3000 // 16)  # 3,000 tokens
    assert conversations_at_once(given_, 3000) == (given_.num_gpu_blocks - 1) // blocks


def test_where_nothing_starts_there_are_no_conversations() -> None:
    large = budget("llama-3.1-70b")
    assert not large.fits
    assert conversations_at_once(large, 1) == 0
    assert tokens_per_user(large, 1) == 0


def test_windows_make_long_conversations_cheap() -> None:
    """Gemma 3 27B: 52 of 62 layers keep 1,024 tokens, whatever the context is."""
    hybrid = budget("gemma-3-27b", tensor_parallel_size=2)
    short, long = (conversations_at_once(hybrid, tokens) for tokens in (1024, 16 * 1024))
    assert long > short / 8


@given(model=MODELS, tokens=st.integers(1, 32768), tp=st.sampled_from([4, 8]))
@settings(max_examples=40)
def test_full_length_conversations_are_vllms_maximum_concurrency_or_a_little_more(
    model: str, tokens: int, tp: int
) -> None:
    """A conversation that answers has one token in flight, where vLLM's figure counts whole batches of prompt."""
    given_ = budget(model, tensor_parallel_size=tp)
    assert conversations_at_once(given_, given_.max_model_len) >= int(given_.max_concurrency) - 1
    assert conversations_at_once(given_, tokens) >= conversations_at_once(given_, given_.max_model_len)


@given(model=MODELS, users=st.integers(1, 100_000))
@settings(max_examples=60)
def test_each_user_s_tokens_are_the_most_that_fit(model: str, users: int) -> None:
    given_ = budget(model, tensor_parallel_size=8)
    tokens = tokens_per_user(given_, users)
    assert 0 <= tokens <= given_.max_model_len
    if tokens:
        assert conversations_at_once(given_, tokens) >= users
    if tokens < given_.max_model_len:
        assert conversations_at_once(given_, tokens + 1) < users
