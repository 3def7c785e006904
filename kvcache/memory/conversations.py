"""How many conversations of one length a replica's KV blocks hold at once."""

from kvcache.memory.budget import MemoryBudget

TOKENS_IN_FLIGHT = 1  # of a request that answers


def conversations_at_once(budget: MemoryBudget, context_tokens: int) -> int:
    """Conversations of so many tokens that hold all their blocks at once, none of them shared; 0 where nothing starts.

    By vLLM's own arithmetic for its "Maximum concurrency", without the null block, for whole conversations that
    answer rather than read a prompt.
    """
    if not budget.fits:
        return 0
    if budget.window_kv_tokens is not None:  # each group of layers has its own pool
        pools = (budget.num_gpu_blocks, budget.window_kv_tokens // budget.block_size)
        return min(
            pages // group.blocks_per_request(context_tokens, TOKENS_IN_FLIGHT, budget.block_size)
            for pages, group in zip(pools, budget.layout.groups, strict=True)
        )
    return (budget.num_gpu_blocks - 1) // budget.layout.blocks_per_request(context_tokens, TOKENS_IN_FLIGHT)


def tokens_per_user(budget: MemoryBudget, users: int) -> int:
    """The longest context that each of so many users can hold at once, at most `max_model_len`; 0 for none."""
    low, high = 0, budget.max_model_len  # `low` fits, all above `high` do not
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if conversations_at_once(budget, middle) >= users else (low, middle - 1)
    return low
