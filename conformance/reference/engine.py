"""What an engine is to whoever steps it: a state machine that decides steps and takes in what they computed."""

from typing import Protocol, TypeVar

RequestT = TypeVar("RequestT")
StepT = TypeVar("StepT")


class Engine(Protocol[RequestT, StepT]):
    """One scheduler with its KV cache: no clock, no randomness.

    `schedule` decides the next step, which may be empty, and may be called again before that step is over, as often as
    the engine lets steps overlap. `complete` takes steps in the order in which they were decided. How prompts and
    answers share a step, how the cache finds a prefix, and who gives way where it is full are the engine's own.
    """

    def abort(self, request: RequestT) -> None: ...

    @property
    def has_unfinished_requests(self) -> bool: ...

    def add_request(self, request: RequestT) -> None: ...

    def schedule(self) -> StepT: ...

    def complete(self, plan: StepT, /) -> list[RequestT]:
        """Take in a step's output. Returns the requests that it finished."""
