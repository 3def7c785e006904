"""Of two engines at random the one with fewer requests outstanding; ties go to the one drawn first."""

from simulator.core.draws import draw
from simulator.core.routing.candidates import candidate, num_candidates
from simulator.core.types import EngineViews, RouterMemory
from simulator.fleet.router import Draws
from simulator.fleet.view import View

SEES = ("candidates", "outstanding")


def choose(engines: EngineViews, _request: object, _parameters: object, memory: RouterMemory) -> int:
    count = num_candidates(engines)
    if count == 1:
        return candidate(engines, 0)
    place = draw(memory, count)
    other = draw(memory, count - 1)
    first = candidate(engines, place)
    second = candidate(engines, other + 1 if other >= place else other)
    return second if engines[second].outstanding < engines[first].outstanding else first


class Router:
    def __init__(self, seed: int) -> None:
        self.draws = Draws(seed)

    def choose(self, view: View) -> int:
        return self.draws.power_of_two(view.candidates, view.outstanding)
