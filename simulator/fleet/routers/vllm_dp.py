"""vLLM's balancer of data-parallel engines: fewest requests, as it counts them or as last reported; ties in turn.

Source: `DPLBAsyncMPClient.get_core_engine_for_request` in vllm/v1/engine/core_client.py and `DPCoordinatorProc` in
coordinator.py, vLLM 0.32.0. One API server is one client. Reports come at most every 100 ms, when counts have changed.
"""

from collections.abc import Mapping

from simulator.core.layout import OWN
from simulator.core.types import EngineViews, RouterMemory
from simulator.fleet.router import Parameter
from simulator.fleet.view import Upkeep, View

SEES = ("num_engines", "candidates", "outstanding", "sent", "waiting", "running", "kv_usage")
PARAMETERS = {
    "stats_update_interval_ms": Parameter(
        default=100, is_whole=True, least=1, most=60_000, what="least time between two reports"
    ),
}
START = OWN  # the word of its memory that holds where the next scan starts
PENALTY, FREE_USAGE = 6.0, 0.5  # of a waiting request by the KV usage above that


def upkeep(values: Mapping[str, float]) -> Upkeep:
    return Upkeep(scrape_every_s=values["stats_update_interval_ms"] / 1000, only_changes=True)


def choose(engines: EngineViews, _request: object, _parameters: object, memory: RouterMemory) -> int:
    count = engines.shape[0]
    best, best_score = -1, 0.0
    for place in range(count):
        engine = (memory[START] + place) % count
        view = engines[engine]
        if view.routable == 0:
            continue
        waiting = view.waiting + view.sent
        score = float(max(view.outstanding, waiting + view.running))
        if waiting > 0:
            score += waiting * PENALTY * max(0.0, view.kv_usage - FREE_USAGE)
        if best < 0 or score < best_score:
            best, best_score = engine, score
    memory[START] = (memory[START] + 1) % count
    return best


class Router:
    def __init__(self, _seed: int, **_parameters: object) -> None:
        self.start = 0

    def choose(self, view: View) -> int:
        outstanding, running, kv_usage = view.outstanding, view.running, view.kv_usage
        waiting = [reported + sent for reported, sent in zip(view.waiting, view.sent, strict=True)]

        def score(engine: int) -> float:
            load = max(outstanding[engine], waiting[engine] + running[engine])
            return load + waiting[engine] * PENALTY * max(0.0, kv_usage[engine] - FREE_USAGE)

        start, candidates = self.start, view.candidates
        self.start = (start + 1) % view.num_engines
        return min(sorted(candidates, key=lambda engine: (engine - start) % view.num_engines), key=score)
