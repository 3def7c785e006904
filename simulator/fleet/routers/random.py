"""Any engine, all alike."""

from typing import Any

from simulator.core.routing.candidates import any_candidate
from simulator.fleet.router import Draws
from simulator.fleet.view import View

SEES = ("candidates",)


def choose(engines: Any, _request: Any, _parameters: Any, memory: Any) -> int:
    return any_candidate(engines, memory)


class Router:
    def __init__(self, seed: int) -> None:
        self.draws = Draws(seed)

    def choose(self, view: View) -> int:
        return self.draws.of(view.candidates)
