"""Which steps compute prompts, compiled: as in `conformance.reference.vllm.prefill_cadence`."""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays


@kernel
def is_held(a: Arrays, replica: int) -> bool:
    """Whether the step is one of those between. The ranks of a server count their steps together."""
    state = a.replicas[replica]
    p = a.pools[state.pool]
    if p.ranks > 1:
        return bool(a.replicas[state.leader].wave_step % p.prefill_interval != 0)
    if p.prefill_interval_counts_own_steps == 0:
        return False
    return bool(state.num_executed + 1 - state.last_prefill_step < p.prefill_interval)


@rare_kernel
def open_step(a: Arrays, replica: int) -> None:
    """Say whether the step defers prompts: only where somebody decodes."""
    state = a.replicas[replica]
    state.defers = state.has_prefill = 0
    if state.capacity_bound == 1 or not is_held(a, replica):
        return
    decodes = state.num_quiet > 0
    for index in range(state.num_running - state.num_quiet):
        decodes |= a.requests[a.running[replica, index]].prefilling == 0
    state.defers = 1 if decodes else 0


@rare_kernel
def close_step(a: Arrays, replica: int, slot: int, num_preempted: int, any_prefills: int) -> None:
    """Note whether requests are left waiting though prompts could be computed, and when prompts were last."""
    state = a.replicas[replica]
    if num_preempted == 0 and state.defers == 0:
        request = state.waiting_head
        while request != NONE and a.requests[request].passed_over == 1:
            request = a.requests[request].next
        state.capacity_bound = 0 if request == NONE else 1
    if a.plans[replica, slot].count > 0:
        state.num_executed += 1
    if any_prefills == 1 or state.has_prefill == 1:
        state.last_prefill_step = state.num_executed


@rare_kernel
def end_wave(a: Arrays, leader: int) -> None:
    """A server's ranks count their steps anew once none of them has a request that it knew when it decided the step."""
    for rank in range(leader, leader + a.pools[a.replicas[leader].pool].ranks):
        if a.replicas[rank].num_running + a.replicas[rank].known_waiting > 0:
            return
    a.replicas[leader].wave_step = 0
