"""The engine settings of one replica, under vLLM's names."""

from dataclasses import dataclass

MAX_PLANS_IN_FLIGHT = 2  # vLLM's batch queue under asynchronous scheduling: one step runs, the next is decided


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """What the scheduler of one replica knows; defaults that depend on the GPU are filled in by the caller.

    Raises ValueError for a value that vLLM would refuse.
    """

    num_gpu_blocks: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int = 16
    enable_prefix_caching: bool = True
    async_scheduling: bool = True

    def __post_init__(self) -> None:
        for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.num_gpu_blocks < 2:
            raise ValueError(
                f"num_gpu_blocks is {self.num_gpu_blocks}; vLLM keeps one null block, so at least 2 are needed"
            )

    @property
    def plans_in_flight(self) -> int:
        """How many steps may be decided and not yet complete."""
        return MAX_PLANS_IN_FLIGHT if self.async_scheduling else 1
