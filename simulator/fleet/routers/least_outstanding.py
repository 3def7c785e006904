"""The engine with the fewest requests sent and not finished; ties go to the lowest number."""

from simulator.core.routing.candidates import least_outstanding
from simulator.core.types import EngineViews
from simulator.fleet.view import View

SEES = ("candidates", "outstanding")


def choose(engines: EngineViews, _request: object, _parameters: object, _memory: object) -> int:
    return least_outstanding(engines)


class Router:
    def __init__(self, _seed: int) -> None:
        pass

    def choose(self, view: View) -> int:
        outstanding = view.outstanding
        return min(view.candidates, key=lambda engine: outstanding[engine])
