"""What is compared with which engine, by name."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from conformance.balancer import BALANCER, check_balancer
from conformance.cases.scheduler_cases import ABOUT
from conformance.cases.sglang_cases import SGLANG_CASES
from conformance.disaggregation import DISAGGREGATED, PUSH, check_disaggregated
from conformance.lockstep import LOCKSTEP, check_lockstep
from conformance.radix_tree import check_radix_tree
from conformance.scheduler import check_scheduler
from conformance.sglang_ranks import RANKS, check_ranks
from conformance.sglang_scheduler import check_sglang_scheduler
from simulator.engines.engines import SGLANG, VLLM

RADIX_TREE: Final = "radix-tree"  # what its cases are about


class Found(Protocol):
    """What was compared so far."""

    @property
    def differences(self) -> Sequence[Any]: ...  # the first one of each case that has any

    def says(self) -> str:
        """How much, as text."""
        ...

    def first(self) -> list[str]:
        """The first difference, as lines; none without any."""
        ...

    def to_json(self) -> dict[str, Any]: ...


Check = Callable[..., Found]  # of an interpreter; num_cases, seed, watch: called with what was found after each case
CHECKS: Final[Mapping[str, Mapping[str, Check]]] = {
    VLLM: {about: partial(check_scheduler, about=about) for about in ABOUT}
    | {LOCKSTEP: check_lockstep}
    | {DISAGGREGATED: check_disaggregated, PUSH: partial(check_disaggregated, pushes=True), BALANCER: check_balancer},
    SGLANG: {about: partial(check_sglang_scheduler, about=about) for about in SGLANG_CASES}
    | {RANKS: check_ranks, RADIX_TREE: check_radix_tree},
}
