"""Which leaf of the radix tree is evicted first, by `--radix-eviction-policy`.

Read from SGLang 0.5.23: `srt/mem_cache/evict_policy.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from files.errors import HeadcountError

EVICTION_POLICIES = ("lru", "lfu", "slru", "priority", "tlru")
_PROTECTED_HITS = 2  # slru: from so many hits on, a node is evicted after all that have fewer


class EvictableNode(Protocol):
    """What a policy sees of a node."""

    start: int
    last_access_time: float
    hit_count: int
    priority: int
    history_len: int


Rank = tuple[float, ...]  # the lowest goes first


@dataclass(frozen=True, kw_only=True)
class TailBudget:
    """Of `tlru`, in tokens: what a conversation's next prompt is expected to add, and how much may be computed anew."""

    threshold: int = 0
    next_prompt_estimate: int = 0


def eviction_rank(policy: str, tail: TailBudget) -> Callable[[EvictableNode], Rank]:
    """How a policy orders leaves. Raises `ValueError` for a policy that SGLang has not."""
    if policy not in EVICTION_POLICIES:
        raise HeadcountError(f"radix_eviction_policy is {policy!r}; choose one of {', '.join(EVICTION_POLICIES)}")

    def is_kept_for_next_turn(node: EvictableNode) -> bool:
        return node.start < node.history_len + tail.next_prompt_estimate - tail.threshold

    ranks: dict[str, Callable[[EvictableNode], Rank]] = {
        "lru": lambda node: (node.last_access_time,),
        "lfu": lambda node: (node.hit_count, node.last_access_time),
        "slru": lambda node: (node.hit_count >= _PROTECTED_HITS, node.last_access_time),
        "priority": lambda node: (node.priority, node.last_access_time),
        "tlru": lambda node: (is_kept_for_next_turn(node), node.last_access_time),
    }
    return ranks[policy]
