"""When an engine's next request can end at the earliest: until then it may lag behind the fleet's time, see `lag`."""

from simulator.core.jit import kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.core.types import Pool, Request

NEVER = 2**31 - 1
ROUNDING = 2.0**-50  # of the time: more than a step's end is rounded by


@kernel
def lay_out(a: Arrays, replica: int) -> None:
    """Of an engine that is used for the first time, nobody runs."""
    for row in range(a.last_steps.shape[1]):
        a.last_steps[replica, row] = NEVER
    a.replicas[replica].first_end = NEVER


@kernel
def num_to_come(p: Pool, req: Request) -> int:
    """Tokens of an answer that are not delivered: each step brings one at most."""
    return min(req.max_tokens, p.max_model_len - req.prompt) - req.output


@kernel
def note_running(a: Arrays, replica: int, request: int) -> None:
    """A request enters the step that is being decided."""
    if a.cursor[0].may_lag == 0:
        return
    state, req = a.replicas[replica], a.requests[request]
    row = req.row - replica * a.last_steps.shape[1]
    last_step = state.step + num_to_come(a.pools[state.pool], req) - 1
    a.last_steps[replica, row] = last_step
    state.num_rows_used = max(state.num_rows_used, row + 1)
    state.first_end = min(state.first_end, last_step)


@kernel
def note_released(a: Arrays, replica: int, row: int) -> None:
    """The request of this row, counted over all engines, runs no more."""
    if a.cursor[0].may_lag == 0:
        return
    state = a.replicas[replica]
    row -= replica * a.last_steps.shape[1]
    if a.last_steps[replica, row] == state.first_end:
        state.first_end = NONE
    a.last_steps[replica, row] = NEVER


@kernel
def note_waiting(a: Arrays, replica: int, request: int) -> None:
    """A request comes into the queue, maybe with tokens in flight."""
    state = a.replicas[replica]
    p = a.pools[state.pool]
    if a.cursor[0].may_lag == 0:
        return
    if state.num_waiting == 0:
        state.least_to_come = NEVER
    state.least_to_come = min(state.least_to_come, num_to_come(p, a.requests[request]) - p.plans_in_flight)


@kernel
def steps_left(a: Arrays, replica: int) -> int:
    """How many steps must be decided before one in which a request may end; 0 or less: one in flight may be."""
    state = a.replicas[replica]
    if state.first_end == NONE:
        state.first_end = NEVER
        for row in range(state.num_rows_used):
            state.first_end = min(state.first_end, a.last_steps[replica, row])
    num_steps = state.first_end - state.step
    return min(num_steps, state.least_to_come) if state.num_waiting > 0 else num_steps


@kernel
def goes_on(a: Arrays, replica: int, num_steps: int) -> bool:
    """Whether the steps to come decode all that run, as the latest did, with longer contexts; unless somebody comes."""
    state = a.replicas[replica]
    p = a.pools[state.pool]
    slot = state.oldest_plan + state.num_plans - 1
    plan = a.plans[replica, slot - p.plans_in_flight if slot >= p.plans_in_flight else slot]
    num_blocks = state.num_running * p.num_groups * (num_steps // p.block_size + 2)
    decodes_all = plan.decodes == state.num_running and plan.sampled == state.num_running
    return bool(decodes_all and state.num_waiting == 0 and num_blocks <= state.num_free_blocks)


@kernel
def none_before_s(a: Arrays, replica: int) -> float:
    """No request of an engine with steps in flight ends before; if it may not lag, its oldest step ends then."""
    state = a.replicas[replica]
    end_s = float(a.plans[replica, state.oldest_plan].end_s)
    if a.cursor[0].may_lag == 0:
        return end_s
    num_steps = steps_left(a, replica)
    if num_steps <= 0:
        return end_s
    step_s = state.latest_step_s if goes_on(a, replica, num_steps) else a.pools[state.pool].shortest_step_s
    until_s = state.last_end_s + num_steps * step_s
    return max(end_s, float(until_s - num_steps * ROUNDING * until_s))
