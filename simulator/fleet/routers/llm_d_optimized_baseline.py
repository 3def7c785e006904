"""llm-d's current guide: engines that were sent at least 80 % of the prompt, of these the one with least prefill ahead.

Source: llm-d guides/optimized-baseline of 2026: `prefix-cache-affinity-filter` and `token-load-scorer`. The guide lets
an engine have 286,720 uncached tokens more in flight than another before prompts leave it; llm-d-router f06e578 says
the same as a penalty of 18,000 ms at 15,928 tokens/s, the defaults of the filter.
"""

from dataclasses import replace

from simulator.fleet.routers import llm_d
from simulator.fleet.routers.llm_d import SEES, Router, choose, upkeep

__all__ = ["PARAMETERS", "SEES", "Router", "choose", "upkeep"]

_DEFAULTS = {
    "queue_scorer": 0.0,
    "kv_cache_utilization_scorer": 0.0,
    "prefix_cache_scorer": 0.0,
    "token_load_scorer": 1.0,
    "affinityThreshold": 0.8,
}
PARAMETERS = {
    name: replace(parameter, default=_DEFAULTS.get(name, parameter.default))
    for name, parameter in llm_d.PARAMETERS.items()
}
