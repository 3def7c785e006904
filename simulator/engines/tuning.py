"""What requests wait for under an engine, and what its arguments can change about it, in the engine's own names."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kvcache.memory.budget import MemoryBudget

Change = tuple[str, Any]  # an argument with a value
MAX_LORAS: Final = "LoRA slots (max_loras)"  # in a bottleneck: adapters that find none wait
ADAPTER_KERNELS: Final = "LoRA adapters"  # in a bottleneck: what steps spend on them
API_SERVER: Final = "API server"  # in a bottleneck: what reads requests, in the words of every engine


@dataclass(frozen=True, kw_only=True)
class Words:
    """What limits a load, by name."""

    kv: str  # room in the KV cache
    running: str  # a place among the requests that run
    prefill: str  # a place in a step that prefills
    longest: str  # the longest context
    preempted: str  # how often requests lost their place


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Of one engine; its arguments all have a value."""

    words: Callable[[Any], Words]  # of arguments
    changes: Callable[[Any, MemoryBudget, str], Iterator[Change]]  # that may help where that binds
    searched: Mapping[str, tuple[Any, ...]]  # values that 'optimize' tries beside the default
    tried: Mapping[str, tuple[Any, ...]]  # the same of arguments that no estimate knows, so that they are simulated
