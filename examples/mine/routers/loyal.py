"""Sessions stay on their engine, unless it is much busier than the emptiest one."""

from simulator.fleet.view import View

SEES = ("outstanding", "last")
TOLERATED_DIFFERENCE = 8  # requests


class Router:
    def __init__(self, _seed: int) -> None:
        pass

    def choose(self, view: View) -> int:
        outstanding, last = view.outstanding, view.last
        emptiest = outstanding.index(min(outstanding))
        if last is None or outstanding[last] - outstanding[emptiest] > TOLERATED_DIFFERENCE:
            return emptiest
        return last
