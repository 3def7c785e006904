"""The engine with the fewest requests sent and not finished; ties go to the lowest number."""

from typing import Any

from simulator.fleet.router import View

SEES = ("outstanding",)


def choose(outstanding: Any, _last: int, _memory: Any) -> int:
    best = 0
    for engine in range(1, outstanding.shape[0]):
        if outstanding[engine] < outstanding[best]:
            best = engine
    return best


class Router:
    def __init__(self, _seed: int) -> None:
        pass

    def choose(self, view: View) -> int:
        outstanding = view.outstanding
        return outstanding.index(min(outstanding))
