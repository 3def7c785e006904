"""Even spreads, computed alike by compiled and by readable code."""

from simulator.core.jit import kernel
from simulator.core.layout import COUNT, SEED
from simulator.core.state import Arrays
from simulator.core.types import RouterMemory


@kernel
def draft_hash(request: int, position: int) -> int:
    """As in `simulator.engines.vllm.speculation.draft_hash`."""
    mixed = (int(request) * 0x1E3779B1 + int(position) * 0x25EBCA6B + 0x3C6EF372) & 0xFFFFFFFF
    mixed ^= mixed >> 16
    mixed = (mixed * 0x7FEB352D) & 0xFFFFFFFF
    mixed ^= mixed >> 15
    mixed = (mixed * 0x2C1B3C6D) & 0xFFFFFFFF
    return mixed ^ (mixed >> 16)


@kernel
def accepted_drafts(a: Arrays, pool: int, request: int, output: int, drafts: int) -> int:
    """As in `simulator.engines.vllm.speculation.accepted_drafts`."""
    accepted = 0
    while accepted < drafts and draft_hash(request, output + accepted) < a.acceptance_limits[pool, accepted]:
        accepted += 1
    return accepted


@kernel
def draw(memory: RouterMemory, limit: int) -> int:
    """The next of a router's random numbers, in [0, limit); as in `simulator.fleet.router.Draws.below`."""
    memory[COUNT] += 1
    return draft_hash(memory[SEED], memory[COUNT]) * limit >> 32
