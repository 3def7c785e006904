"""What compiled routers share: the engines that take requests."""

from simulator.core.draws import draw
from simulator.core.jit import kernel
from simulator.core.layout import NONE
from simulator.core.types import EngineViews, RouterMemory


@kernel
def num_candidates(engines: EngineViews) -> int:
    count = 0
    for engine in range(engines.shape[0]):
        count += int(engines[engine].routable)
    return count


@kernel
def candidate(engines: EngineViews, place: int) -> int:
    """The candidate at that place in the order of engines, NONE: there are not so many."""
    for engine in range(engines.shape[0]):
        place -= int(engines[engine].routable)
        if place < 0:
            return engine
    return NONE


@kernel
def any_candidate(engines: EngineViews, memory: RouterMemory) -> int:
    """A candidate at random, all alike."""
    return candidate(engines, draw(memory, num_candidates(engines)))


@kernel
def replaces_tied(memory: RouterMemory, num_tied: int) -> bool:
    """Whether the latest of so many that tie takes the place of the one kept so far: all have an even chance."""
    return draw(memory, num_tied) == 0


@kernel
def least_outstanding(engines: EngineViews) -> int:
    """The candidate with the fewest requests outstanding; ties go to the lowest number."""
    best = NONE
    for engine in range(engines.shape[0]):
        if engines[engine].routable == 1 and (best == NONE or engines[engine].outstanding < engines[best].outstanding):
            best = engine
    return best
