"""llm-d's endpoint picker: a filter, then the highest weighted sum of scores; ties at random.

Source: llm-d-router ebab687, pkg/epp/framework/plugins: filter/prefixcacheaffinity, scorer/*, picker/maxscore,
dataproducer/approximateprefix and inflightload. The weights are those of its built-in profile. A scorer's weight is the
parameter of its name; `affinityThreshold` above 0 turns the filter on. A block is of 64 tokens, and the last of a
prompt that is not full is left out.
"""

from collections.abc import Mapping
from typing import Final

from simulator.core.jit import kernel
from simulator.core.layout import OWN, ROUTER_WORDS
from simulator.core.routing.candidates import replaces_tied
from simulator.core.types import EngineView, EngineViews, RequestView, RouterMemory, RouterParameters
from simulator.fleet.router import Draws, Parameter
from simulator.fleet.view import Upkeep, View

SEES = (
    "candidates", "outstanding", "waiting", "running", "kv_usage", "prefill_tokens", "prompt_tokens",
    "matched_tokens",
)  # fmt: skip
PARAMETERS = {
    "queue_scorer": Parameter(default=2, what="weight of few waiting requests, between the most and the fewest"),
    "kv_cache_utilization_scorer": Parameter(default=2, what="weight of free KV cache"),
    "prefix_cache_scorer": Parameter(default=3, what="weight of the share of the prompt's blocks that match"),
    "running_requests_size_scorer": Parameter(default=0, what="weight of few running requests"),
    "active_request_scorer": Parameter(default=0, what="weight of few requests in flight"),
    "load_aware_scorer": Parameter(default=0, what="weight of few waiting requests, of 128"),
    "token_load_scorer": Parameter(default=0, what="weight of few uncached prompt tokens in flight"),
    "no_hit_lru_scorer": Parameter(default=0, what="weight of a long time since a prompt that matched nowhere"),
    "affinityThreshold": Parameter(
        default=0, most=1, what="share of blocks from which an engine is kept, 0: no filter"
    ),
    "maxTTFTPenaltyMs": Parameter(default=18_000, what="how much later a kept engine may answer, 0: no limit"),
    "peakPrefillThroughput": Parameter(default=15_928, least=1, what="tokens/s that the filter assumes"),
    "queueThresholdTokens": Parameter(default=4_194_304, is_whole=True, least=1, what="tokens in flight that score 0"),
    "blockSizeTokens": Parameter(default=64, is_whole=True, least=1, most=65_536, what="tokens of a block"),
    "lruCapacityPerServer": Parameter(
        default=31_250, is_whole=True, least=1, what="blocks that the index holds for an engine"
    ),
    "refresh_metrics_interval_ms": Parameter(default=50, least=1, most=60_000, what="between two reads of metrics"),
}
CLOCK: Final = OWN  # the word of its memory that counts prompts which matched nowhere
LOAD_OF: Final = 128.0  # waiting requests that score 0 in load-aware-scorer


def upkeep(values: Mapping[str, float]) -> Upkeep:
    return Upkeep(
        scrape_every_s=values["refresh_metrics_interval_ms"] / 1000,
        chunk_tokens=int(values["blockSizeTokens"]),
        most_chunks=values["lruCapacityPerServer"],
    )


def choose(engines: EngineViews, request: RequestView, parameters: RouterParameters, memory: RouterMemory) -> int:
    block = int(parameters.blockSizeTokens)
    sticks = only_sticky(engines, request, parameters)
    best, best_score, num_tied, is_cold = -1, 0.0, 0, True
    for engine in range(engines.shape[0]):
        if is_kept(engines[engine], request, parameters, sticks) and matched_blocks(engines[engine], block) > 0:
            is_cold = False
    ranges = extremes(engines, request, parameters, sticks)
    for engine in range(engines.shape[0]):
        view = engines[engine]
        if not is_kept(view, request, parameters, sticks):
            continue
        score = load_score(view, parameters, ranges) + token_score(view, request, parameters)
        if parameters.no_hit_lru_scorer > 0.0:
            rank = cold_rank(engines, request, parameters, memory, engine) if is_cold else 0.5
            score += parameters.no_hit_lru_scorer * rank
        if best < 0 or score > best_score:
            best, best_score, num_tied = engine, score, 1
        elif score == best_score:
            num_tied += 1
            if replaces_tied(memory, num_tied):
                best = engine
    if is_cold:
        memory[CLOCK] += 1
        memory[ROUTER_WORDS + best] = memory[CLOCK]
    return best


# -- the filter


@kernel
def matched_blocks(view: EngineView, block: int) -> int:
    return int(max(view.matched_tokens, view.cached_tokens) // block)


@kernel
def prefix_score(view: EngineView, request: RequestView, block: int) -> float:
    num_blocks = request.prompt_tokens // block
    return matched_blocks(view, block) / num_blocks if num_blocks > 0 else 0.0


@kernel
def only_sticky(engines: EngineViews, request: RequestView, parameters: RouterParameters) -> bool:
    """Whether only engines that match enough are kept: there are some, and none of the others is much less busy."""
    sticky_tokens, other_tokens, num_sticky, num_others = 0, 0, 0, 0
    for engine in range(engines.shape[0]):
        view = engines[engine]
        if view.routable == 0:
            continue
        if prefix_score(view, request, int(parameters.blockSizeTokens)) >= parameters.affinityThreshold:
            sticky_tokens = view.prefill_tokens if num_sticky == 0 else min(sticky_tokens, view.prefill_tokens)
            num_sticky += 1
        else:
            other_tokens = view.prefill_tokens if num_others == 0 else min(other_tokens, view.prefill_tokens)
            num_others += 1
    if parameters.affinityThreshold <= 0.0 or num_sticky == 0:
        return False
    later_ms = (sticky_tokens - other_tokens) / parameters.peakPrefillThroughput * 1000.0
    return num_others == 0 or parameters.maxTTFTPenaltyMs == 0.0 or later_ms <= parameters.maxTTFTPenaltyMs


@kernel
def is_kept(view: EngineView, request: RequestView, parameters: RouterParameters, sticks: bool) -> bool:
    if view.routable == 0:
        return False
    return not sticks or prefix_score(view, request, int(parameters.blockSizeTokens)) >= parameters.affinityThreshold


# -- the scorers


@kernel
def extremes(
    engines: EngineViews, request: RequestView, parameters: RouterParameters, sticks: bool
) -> tuple[int, int, int, int, int]:
    """Fewest and most waiting, fewest and most running, most in flight."""
    num, fewest_waiting, most_waiting, fewest_running, most_running, most_active = 0, 0, 0, 0, 0, 0
    for engine in range(engines.shape[0]):
        view = engines[engine]
        if is_kept(view, request, parameters, sticks):
            fewest_waiting = view.waiting if num == 0 else min(fewest_waiting, view.waiting)
            fewest_running = view.running if num == 0 else min(fewest_running, view.running)
            most_waiting, most_running = max(most_waiting, view.waiting), max(most_running, view.running)
            most_active = max(most_active, view.outstanding)
            num += 1
    return fewest_waiting, most_waiting, fewest_running, most_running, most_active


@kernel
def few(value: int, fewest: int, most: int) -> float:
    return (most - value) / (most - fewest) if most > fewest else 1.0


@kernel
def load_score(view: EngineView, parameters: RouterParameters, ranges: tuple[int, int, int, int, int]) -> float:
    score: float = parameters.queue_scorer * few(view.waiting, ranges[0], ranges[1])
    score += parameters.kv_cache_utilization_scorer * (1.0 - view.kv_usage)
    score += parameters.running_requests_size_scorer * few(view.running, ranges[2], ranges[3])
    score += parameters.active_request_scorer * few(view.outstanding, 0, ranges[4])
    score += parameters.load_aware_scorer * (0.5 * (1.0 - min(view.waiting, LOAD_OF) / LOAD_OF))
    return score


@kernel
def token_score(view: EngineView, request: RequestView, parameters: RouterParameters) -> float:
    block = int(parameters.blockSizeTokens)
    score: float = parameters.prefix_cache_scorer * prefix_score(view, request, block)
    tokens = view.prefill_tokens + request.prompt_tokens - matched_blocks(view, block) * block
    score += parameters.token_load_scorer * (1.0 - min(1.0, tokens / parameters.queueThresholdTokens))
    return score


@kernel
def cold_rank(
    engines: EngineViews, request: RequestView, parameters: RouterParameters, memory: RouterMemory, engine: int
) -> float:
    """1 for the engine whose last cold prompt is longest ago, those without any first; 0 for the latest."""
    own, rank, num = memory[ROUTER_WORDS + engine], 0, 0
    for other in range(engines.shape[0]):
        is_candidate = engines[other].routable == 1
        num += int(is_candidate)
        stamp = memory[ROUTER_WORDS + other]
        if stamp == 0:
            rank += int(is_candidate and (own > 0 or other < engine))
        else:
            rank += int(stamp < own)
    return max(0.0, 1.0 - rank / (num - 1)) if num > 1 else 1.0


# -- the reference implementation


class Router:
    """Filter, scorers, picker; `match` is the part of the view that says how much of the prompt an engine has."""

    def __init__(self, seed: int, *, match: str = "matched_tokens", **parameters: float) -> None:
        self.draws, self.match, self.parameters = Draws(seed), match, parameters
        self.block = int(parameters["blockSizeTokens"])
        self.cold: list[int] = []  # engines by their last cold prompt, the oldest first

    def choose(self, view: View) -> int:
        self.matched = [tokens // self.block for tokens in getattr(view, self.match)]
        self.num_blocks = view.prompt_tokens // self.block
        kept = self.filtered(view, view.candidates)
        scores = self.scores(view, kept)
        chosen = self.draws.highest(scores)
        if not any(self.matched[engine] for engine in kept):
            self.cold = [engine for engine in self.cold if engine != chosen] + [chosen]
        return chosen

    def prefix_score(self, engine: int) -> float:
        return self.matched[engine] / self.num_blocks if self.num_blocks else 0.0

    def filtered(self, view: View, candidates: list[int]) -> list[int]:
        threshold, penalty_ms = self.parameters["affinityThreshold"], self.parameters["maxTTFTPenaltyMs"]
        sticky = [engine for engine in candidates if self.prefix_score(engine) >= threshold]
        others = [engine for engine in candidates if engine not in sticky]
        tokens = view.prefill_tokens
        if threshold <= 0 or not sticky:
            return candidates
        if others and penalty_ms:
            later = min(tokens[engine] for engine in sticky) - min(tokens[engine] for engine in others)
            if later / self.parameters["peakPrefillThroughput"] * 1000 > penalty_ms:
                return candidates
        return sticky

    def scores(self, view: View, kept: list[int]) -> dict[int, float]:
        waiting, running, active = view.waiting, view.running, view.outstanding
        kv_usage, tokens, prompt = view.kv_usage, view.prefill_tokens, view.prompt_tokens
        most = self.parameters["queueThresholdTokens"]
        loads = {
            "queue_scorer": fewest_first({engine: waiting[engine] for engine in kept}),
            "kv_cache_utilization_scorer": {engine: 1 - kv_usage[engine] for engine in kept},
            "running_requests_size_scorer": fewest_first({engine: running[engine] for engine in kept}),
            "active_request_scorer": fewest_first({engine: active[engine] for engine in kept}, fewest=0),
            "load_aware_scorer": {engine: 0.5 * (1 - min(waiting[engine], 128) / 128) for engine in kept},
        }
        uncached = {engine: tokens[engine] + prompt - self.matched[engine] * self.block for engine in kept}
        by_tokens = {
            "prefix_cache_scorer": {engine: self.prefix_score(engine) for engine in kept},
            "token_load_scorer": {engine: 1 - min(1.0, uncached[engine] / most) for engine in kept},
        }
        found = {}
        for engine in kept:
            found[engine] = self.weighted(loads, engine) + self.weighted(by_tokens, engine)
            if self.parameters["no_hit_lru_scorer"]:
                found[engine] += self.parameters["no_hit_lru_scorer"] * self.cold_rank(kept, engine)
        return found

    def weighted(self, scores: Mapping[str, Mapping[int, float]], engine: int) -> float:
        total = 0.0
        for name, score in scores.items():
            total += self.parameters[name] * score[engine]
        return total

    def cold_rank(self, kept: list[int], engine: int) -> float:
        if any(self.matched[each] for each in kept):
            return 0.5
        if len(kept) == 1:
            return 1.0
        fresh = [each for each in kept if each not in self.cold]
        rank = fresh.index(engine) if engine in fresh else len(fresh) + self.cold.index(engine)
        return max(0.0, 1 - rank / (len(kept) - 1))


def fewest_first(values: Mapping[int, int], fewest: int | None = None) -> dict[int, float]:
    low, high = min(values.values()) if fewest is None else fewest, max(values.values())
    return {engine: (high - value) / (high - low) if high > low else 1.0 for engine, value in values.items()}
