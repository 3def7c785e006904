"""Any engine, all alike."""

from simulator.core.routing.candidates import any_candidate
from simulator.core.types import EngineViews, RouterMemory
from simulator.fleet.router import Draws
from simulator.fleet.view import View

SEES = ("candidates",)


def choose(engines: EngineViews, _request: object, _parameters: object, memory: RouterMemory) -> int:
    return any_candidate(engines, memory)


class Router:
    def __init__(self, seed: int) -> None:
        self.draws = Draws(seed)

    def choose(self, view: View) -> int:
        return self.draws.of(view.candidates)
