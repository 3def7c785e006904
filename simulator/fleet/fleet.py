"""Equal replicas behind a router."""

from dataclasses import dataclass

from simulator.core import layout
from simulator.engines.vllm.engine import EngineConfig
from simulator.latency.step_time import StepTimes

ROUTERS: dict[str, int] = {
    "round-robin": layout.ROUND_ROBIN,
    "least-outstanding": layout.LEAST_OUTSTANDING,
    "session-affinity": layout.SESSION_AFFINITY,  # a session stays where its first turn went, by least outstanding
}


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Equal replicas behind one router.

    A replica of a mixture of experts under attention data parallelism is `data_parallel_size` engines, each with its
    own scheduler or blocks, which share the experts: their steps begin and end together. The router sees engines.
    """

    engine: EngineConfig
    step_times: StepTimes
    num_replicas: int = 1
    data_parallel_size: int = 1
    router: str = "least-outstanding"

    def __post_init__(self) -> None:
        if self.num_replicas < 1:
            raise ValueError(f"num_replicas is {self.num_replicas}; a fleet has at least 1")
        if self.data_parallel_size < 1:
            raise ValueError(f"data_parallel_size is {self.data_parallel_size}; it must be at least 1")
        if self.data_parallel_size > 1 and self.engine.pipeline_parallel_size > 1:
            raise ValueError(
                "attention data parallelism with pipeline parallelism is not simulated; choose one of them"
            )
        check_router(self.router)

    @property
    def num_engines(self) -> int:
        """Schedulers with a pool of their own, over all replicas."""
        return self.num_replicas * self.data_parallel_size


def check_router(name: str) -> None:
    """Raise ValueError unless a router of that name is built in."""
    if name not in ROUTERS:
        raise ValueError(f"no router '{name}'; there are {', '.join(sorted(ROUTERS))}")
