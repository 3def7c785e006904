"""The engine with the fewest requests sent and not finished; ties go to the lowest number."""

from typing import Any

from simulator.core.routing.candidates import least_outstanding
from simulator.fleet.view import View

SEES = ("candidates", "outstanding")


def choose(engines: Any, _request: Any, _parameters: Any, _memory: Any) -> int:
    return least_outstanding(engines)


class Router:
    def __init__(self, _seed: int) -> None:
        pass

    def choose(self, view: View) -> int:
        outstanding = view.outstanding
        return min(view.candidates, key=lambda engine: outstanding[engine])
