"""Where the session was served last; its first turn goes where the fewest requests are outstanding."""

from simulator.core.routing.candidates import least_outstanding
from simulator.core.types import EngineViews, RequestView
from simulator.fleet.view import View

SEES = ("candidates", "last", "outstanding")


def choose(engines: EngineViews, request: RequestView, _parameters: object, _memory: object) -> int:
    if request.last >= 0 and engines[request.last].routable == 1:
        return int(request.last)
    return least_outstanding(engines)


class Router:
    def __init__(self, _seed: int) -> None:
        pass

    def choose(self, view: View) -> int:
        candidates = view.candidates
        if view.last in candidates:
            return view.last
        outstanding = view.outstanding
        return min(candidates, key=lambda engine: outstanding[engine])
