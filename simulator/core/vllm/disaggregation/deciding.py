"""Whether a decode engine computes a request's prompt itself, compiled: as in `simulator.fleet.deciders`."""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.routing import views
from simulator.core.state import Arrays
from simulator.core.types import Decider
from simulator.core.vllm import prefix
from simulator.core.vllm.disaggregation.layout import ISL_BOUNDING, ISL_OR_LOAD, PREFILL_LOAD, PREFIX_BASED


@rare_kernel
def decide(a: Arrays, request: int, now_s: float) -> None:
    """A request comes for the first time: its prompt is computed where the decider says."""
    handover, rule = a.handovers[request], a.deciding[0]
    if handover.stage == 1:
        return
    handover.stage = 1
    decode = views.choose(a, request, now_s)
    handover.stage = 0
    if decode == NONE:  # the router chose no engine: an error, raised when it chooses for the request itself
        return
    cached, busy_tokens, step_tokens = prefix.cached_tokens(a, decode, request), 0, 0
    prefill = NONE
    if rule.sees_load == 1:
        prefill = views.choose(a, request, now_s)
        if prefill == NONE:
            return
        busy_tokens = a.engine_views[prefill].prefill_tokens
        step_tokens = a.pools[a.replicas[prefill].pool].max_num_batched_tokens
    if computes_here(rule, a.requests[request].prompt, cached, busy_tokens, step_tokens):
        handover.stage = 1
        handover.chosen = decode
    elif rule.keeps_engine == 1:
        handover.chosen = decode
    elif rule.sees_load == 1:
        handover.chosen = prefill


@kernel
def computes_here(rule: Decider, prompt: int, cached: int, busy_tokens: int, step_tokens: int) -> bool:
    """Whether the decode engine computes the prompt."""
    if rule.number == PREFIX_BASED:
        if rule.least_tokens == 0 or prompt < rule.prompt_tokens:
            return True
        return bool(prompt - cached < rule.least_tokens)
    is_here = False
    if rule.number in (ISL_BOUNDING, ISL_OR_LOAD):
        new = max(prompt - cached, 0)
        is_here = new < rule.least_tokens and new / max(prompt, 1) < rule.ratio
    if rule.number in (PREFILL_LOAD, ISL_OR_LOAD):
        is_here = is_here or busy_tokens > rule.busy * step_tokens
    return bool(is_here)
