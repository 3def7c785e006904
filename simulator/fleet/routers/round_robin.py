"""Each engine in turn."""

from typing import Any

from simulator.fleet.router import View

SEES = ("num_engines",)
NEXT = 2  # the word of its memory that holds whose turn it is


def choose(outstanding: Any, _last: int, memory: Any) -> int:
    chosen: int = memory[NEXT]
    memory[NEXT] = (chosen + 1) % outstanding.shape[0]
    return chosen


class Router:
    def __init__(self, _seed: int) -> None:
        self.next = 0

    def choose(self, view: View) -> int:
        chosen = self.next
        self.next = (chosen + 1) % view.num_engines
        return chosen
