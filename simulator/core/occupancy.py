"""Whether a replica is busy, and the time that it was."""

from simulator.core.jit import kernel
from simulator.core.state import Arrays
from simulator.core.types import Replica


@kernel
def is_busy(a: Arrays, replica: int) -> bool:
    """Whether a step is in flight, with work."""
    state = a.replicas[replica]
    num_empty = a.tiers[replica].num_empty_plans if a.pools[state.pool].connector > 0 else 0
    return bool(state.num_plans > num_empty)


@kernel
def is_idle(a: Arrays, replica: int, now_s: float) -> bool:
    """Whether an arrival lets the replica decide at once: else the end of a step does."""
    state, p = a.replicas[replica], a.pools[a.replicas[replica].pool]
    if p.connector > 0:
        return bool(a.tiers[replica].is_idle == 1)
    return bool(state.num_plans == 0 and (p.ranks == 1 or num_rounds(a.replicas[state.leader], now_s) == 0))


@kernel
def account(a: Arrays, replica: int, now_s: float) -> None:
    """Carry the time integrals to `now_s`; call before anything changes."""
    state = a.replicas[replica]
    totals = a.totals[replica]
    elapsed_s = now_s - state.accounted_s
    used_blocks = state.num_usable_blocks - state.num_free_blocks
    totals.running_s += elapsed_s * state.num_running
    totals.waiting_s += elapsed_s * state.num_waiting
    totals.used_blocks_s += elapsed_s * used_blocks
    totals.blocked_s[state.block_reason] += elapsed_s
    if is_busy(a, replica):
        totals.busy_s += elapsed_s
    totals.max_used_blocks = max(totals.max_used_blocks, used_blocks)
    state.accounted_s = now_s


@kernel
def num_rounds(leader: Replica, now_s: float) -> int:
    """Steps of a server's ranks that are decided and not over."""
    return int(leader.last_end_s > now_s) + int(leader.previous_end_s > now_s)
