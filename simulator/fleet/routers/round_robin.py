"""Each engine in turn."""

from simulator.core.layout import OWN
from simulator.core.types import EngineViews, RouterMemory
from simulator.fleet.view import View

SEES = ("num_engines", "candidates")
NEXT = OWN  # the word of its memory that holds whose turn it is


def choose(engines: EngineViews, _request: object, _parameters: object, memory: RouterMemory) -> int:
    count = engines.shape[0]
    for _ in range(count):
        engine: int = memory[NEXT]
        memory[NEXT] = (engine + 1) % count
        if engines[engine].routable == 1:
            return engine
    return -1


class Router:
    def __init__(self, _seed: int) -> None:
        self.next = 0

    def choose(self, view: View) -> int:
        candidates = view.candidates
        while self.next not in candidates:
            self.next = (self.next + 1) % view.num_engines
        chosen = self.next
        self.next = (chosen + 1) % view.num_engines
        return chosen
