"""Of two engines at random the one with fewer requests outstanding; ties go to the one drawn first."""

from typing import Any

from simulator.core.draws import draw
from simulator.fleet.router import Draws, View

SEES = ("num_engines", "outstanding")


def choose(outstanding: Any, _last: int, memory: Any) -> int:
    num_engines = outstanding.shape[0]
    if num_engines == 1:
        return 0
    first = draw(memory, num_engines)
    second = draw(memory, num_engines - 1)
    if second >= first:
        second += 1
    return second if outstanding[second] < outstanding[first] else first


class Router:
    def __init__(self, seed: int) -> None:
        self.draws = Draws(seed)

    def choose(self, view: View) -> int:
        if view.num_engines == 1:
            return 0
        first = self.draws.below(view.num_engines)
        others = [engine for engine in range(view.num_engines) if engine != first]
        second = others[self.draws.below(len(others))]
        outstanding = view.outstanding
        return min(first, second, key=lambda engine: outstanding[engine])
