"""LoRA adapters: how many there are, how many an engine holds where, whose requests use which."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from files.errors import HeadcountError
from workloads.numbering import numbered
from workloads.randomness import hashed_uniforms
from workloads.requests import Int32Array, RequestTable

MOST_ADAPTERS: Final = 10_000
STEEPEST_SKEW: Final = 4.0


@dataclass(frozen=True, kw_only=True)
class Adapters:
    """The LoRA adapters that an engine's requests use, one each; vLLM's LoRAConfig says how many are where.

    `max_loras` of them take part in a step, from as many slots on the GPU; `max_cpu_loras` stay in CPU memory, those on
    the GPU among them. The k-th most popular one has a share of the sessions in proportion to k**-skew.
    """

    num_adapters: int
    skew: float = 1.0
    max_loras: int = 1
    max_cpu_loras: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.num_adapters <= MOST_ADAPTERS:
            raise HeadcountError(f"{self.num_adapters:,} adapters; give 1 to {MOST_ADAPTERS:,}")
        if not 0 <= self.skew <= STEEPEST_SKEW:
            raise HeadcountError(
                f"adapter_skew is {self.skew:g}; it must be from 0, all alike, to {STEEPEST_SKEW:g}, such as 1"
            )
        if self.max_cpu_loras < self.max_loras:
            raise HeadcountError(
                f"max_cpu_loras is {self.max_cpu_loras:,}, below max_loras, {self.max_loras:,}, which vLLM refuses; "
                "raise it or lower --max-loras"
            )

    @property
    def all_fit(self) -> bool:
        """Whether no request ever waits for another adapter's slot."""
        return self.max_loras >= self.num_adapters

    @property
    def shares(self) -> "np.typing.NDArray[np.float64]":
        """Of the sessions, the most popular adapter first."""
        weights = np.arange(1, self.num_adapters + 1, dtype=np.float64) ** -self.skew
        return np.asarray(weights / weights.sum())


def adapters_of(table: RequestTable, adapters: Adapters, seed: int) -> Int32Array:
    """[n] which adapter each request uses: that of its session, drawn by the adapters' shares."""
    session = (np.cumsum(table.follows < 0) - 1)[table.first_turns()]
    drawn = hashed_uniforms(seed, "adapter", session)
    return np.searchsorted(np.cumsum(adapters.shares)[:-1], drawn, side="right").astype(np.int32)


def apart_by_adapter(table: RequestTable, of: Int32Array) -> RequestTable:
    """The same requests, which share prefixes only with those of their own adapter.

    vLLM hashes the adapter with each block (v1/core/kv_cache_utils.py, _gen_lora_extra_hash_keys).
    """
    counts = table.span_count.astype(np.int64)
    ends = np.cumsum(counts)
    spans = np.repeat(table.span_start - (ends - counts), counts) + np.arange(int(ends[-1]) if len(ends) else 0)
    content = numbered(table.span_content[spans]).astype(np.int64)
    most = int(of.max(initial=0)) + 1
    return replace(
        table,
        span_start=ends - counts,
        span_content=content * most + np.repeat(of, counts),
        span_end=np.ascontiguousarray(table.span_end[spans]),
    )
