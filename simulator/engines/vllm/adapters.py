"""LoRA adapters: how many there are, how many an engine holds where, how popular each is."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from files.errors import HeadcountError

MOST_ADAPTERS: Final = 10_000
STEEPEST_SKEW: Final = 4.0


@dataclass(frozen=True, kw_only=True)
class Adapters:
    """The LoRA adapters that an engine's requests use, one each; vLLM's LoRAConfig says how many are where.

    `max_loras` of them take part in a step, from as many slots on the GPU; `max_cpu_loras` stay in CPU memory, those on
    the GPU among them. The k-th most popular one has a share of the sessions in proportion to k**-skew.
    """

    num_adapters: int
    skew: float = 1.0  # an assumption: no public trace of adapters' requests was read
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
