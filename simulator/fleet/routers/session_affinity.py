"""Where the session was served last; its first turn goes where the fewest requests are outstanding."""

from typing import Any

from simulator.fleet.router import View

SEES = ("last", "outstanding")


def choose(outstanding: Any, last: int, _memory: Any) -> int:
    if last >= 0:
        return last
    best = 0
    for engine in range(1, outstanding.shape[0]):
        if outstanding[engine] < outstanding[best]:
            best = engine
    return best


class Router:
    def __init__(self, _seed: int) -> None:
        pass

    def choose(self, view: View) -> int:
        if view.last is not None:
            return view.last
        outstanding = view.outstanding
        return outstanding.index(min(outstanding))
