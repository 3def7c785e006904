"""A consistent hash ring of sessions: a session stays, and a new engine moves only its share of them.

Source: `SessionRouter` in production-stack, src/vllm_router/routers/routing_logic.py, commit a6c01db, which uses
uhashring with 160 points to an engine. Which session goes where depends on names and their hashes; here both are
numbers. The shares of engines are as uneven as those of a ring with so many points.
"""

from bisect import bisect_left
from collections.abc import Mapping

from simulator.core import draws
from simulator.core.jit import kernel
from simulator.core.layout import ROUTER_WORDS
from simulator.core.types import EngineViews, RequestView, RouterMemory, RouterParameters
from simulator.engines.vllm.speculation import draft_hash
from simulator.fleet.router import Parameter
from simulator.fleet.view import View

SEES = ("num_engines", "candidates", "session")
PARAMETERS = {
    "virtual_nodes": Parameter(
        default=160, is_whole=True, least=1, most=10_000, what="points of an engine on the ring"
    ),
}
SESSION, POINT = 0x5EED, 0x1000000  # what a hash is of
ENGINE_BITS = 20
RING = ROUTER_WORDS  # from this word of its memory on: points in order, each its place and its engine


def memory_words(num_engines: int, values: Mapping[str, float]) -> int:
    return RING + num_engines * int(values["virtual_nodes"])


def choose(engines: EngineViews, request: RequestView, parameters: RouterParameters, memory: RouterMemory) -> int:
    count = engines.shape[0] * int(parameters.virtual_nodes)
    if memory[RING] == 0:
        lay_out(memory, engines.shape[0], int(parameters.virtual_nodes))
    place = draws.draft_hash(request.session, SESSION) << ENGINE_BITS
    first, end = 0, count
    while first < end:
        middle = (first + end) >> 1
        if memory[RING + middle] < place:
            first = middle + 1
        else:
            end = middle
    for step in range(count):
        engine: int = memory[RING + (first + step) % count] & ((1 << ENGINE_BITS) - 1)
        if engines[engine].routable == 1:
            return engine
    return -1


@kernel
def lay_out(memory: RouterMemory, num_engines: int, points: int) -> None:
    """Put all points on the ring, then in order (Shell's sort)."""
    count = num_engines * points
    for engine in range(num_engines):
        for point in range(points):
            memory[RING + engine * points + point] = (draws.draft_hash(engine, POINT + point) << ENGINE_BITS) + engine
    gap = count >> 1
    while gap > 0:
        for index in range(gap, count):
            value, place = memory[RING + index], index
            while place >= gap and memory[RING + place - gap] > value:
                memory[RING + place] = memory[RING + place - gap]
                place -= gap
            memory[RING + place] = value
        gap >>= 1


class Router:
    def __init__(self, _seed: int, virtual_nodes: float) -> None:
        self.points = int(virtual_nodes)
        self.ring: list[tuple[int, int]] = []

    def choose(self, view: View) -> int:
        if not self.ring:
            points = range(POINT, POINT + self.points)
            self.ring = sorted(
                (draft_hash(engine, point), engine) for engine in range(view.num_engines) for point in points
            )
        first = bisect_left(self.ring, (draft_hash(view.session, SESSION), 0))
        candidates = set(view.candidates)
        return next(engine for _, engine in self.ring[first:] + self.ring[:first] if engine in candidates)
