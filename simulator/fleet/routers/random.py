"""Any engine, all alike."""

from typing import Any

from simulator.core.draws import draw
from simulator.fleet.router import Draws, View

SEES = ("num_engines",)


def choose(outstanding: Any, _last: int, memory: Any) -> int:
    return draw(memory, outstanding.shape[0])


class Router:
    def __init__(self, seed: int) -> None:
        self.draws = Draws(seed)

    def choose(self, view: View) -> int:
        return self.draws.below(view.num_engines)
