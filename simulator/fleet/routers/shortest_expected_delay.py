"""The engine with the fewest requests for its weight, this one included; ties go to the lowest number.

Source: the scheduler `sed` of Linux' IP Virtual Server (net/netfilter/ipvs/ip_vs_sed.c): the least of (C + 1) / U over
servers with C connections and the fixed service rate U.
"""

from simulator.core.types import EngineViews
from simulator.fleet.view import View

SEES = ("candidates", "outstanding", "weight")


def choose(engines: EngineViews, _request: object, _parameters: object, _memory: object) -> int:
    best, least = -1, 0.0
    for engine in range(engines.shape[0]):
        view = engines[engine]
        if view.routable == 1:
            delay = (view.outstanding + 1) / view.weight
            if best < 0 or delay < least:
                best, least = engine, delay
    return best


class Router:
    def __init__(self, _seed: int) -> None:
        pass

    def choose(self, view: View) -> int:
        outstanding, weight = view.outstanding, view.weight
        return min(view.candidates, key=lambda engine: (outstanding[engine] + 1) / weight[engine])
