"""llm-d's endpoint picker with the precise index: as llm-d, with what the engines have cached as KV events tell.

Source: llm-d-router ebab687, scorer/preciseprefixcache. The events take no time here.
"""

from dataclasses import replace

from simulator.fleet.routers import llm_d
from simulator.fleet.routers.llm_d import choose, upkeep
from simulator.fleet.view import View

__all__ = ["PARAMETERS", "SEES", "Router", "choose", "upkeep"]

SEES = (*(name for name in llm_d.SEES if name != "matched_tokens"), "cached_tokens")
PARAMETERS = {**llm_d.PARAMETERS, "blockSizeTokens": replace(llm_d.PARAMETERS["blockSizeTokens"], default=16)}


class Router:
    def __init__(self, seed: int, **parameters: float) -> None:
        self.picker = llm_d.Router(seed, match="cached_tokens", **parameters)

    def choose(self, view: View) -> int:
        return self.picker.choose(view)
