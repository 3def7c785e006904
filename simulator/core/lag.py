"""Engines that are behind the fleet's time while nobody looks at them.

Between two steps of an engine come those of all others, which push it out of the processor's nearest caches. So it
takes its steps in one go, as late as can be: when a request comes to it, when one of its own may end, when a sample is
taken. It decides the same at the same times.
"""

import math

from simulator.core import occupancy
from simulator.core import replica as replicas
from simulator.core.heap import set_next
from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays

TOO_SOON = -2


@kernel
def end_of_step_s(a: Arrays, replica: int) -> float:
    """When the oldest step in flight ends; infinity: there is none."""
    state = a.replicas[replica]
    return float(a.plans[replica, state.oldest_plan].end_s) if state.num_plans > 0 else math.inf


@rare_kernel
def end_steps(a: Arrays, replica: int, now_s: float, with_now: bool) -> int:
    """End the engine's steps up to `now_s`, with or without the one that ends then, deciding others between.

    Returns that one's slot if a request has ended with it, NONE if none has, TOO_SOON if no step has ended at `now_s`.
    """
    cursor = a.cursor[0]
    while True:
        end_s = end_of_step_s(a, replica) if cursor.may_lag == 1 else now_s
        if end_s > now_s or (end_s == now_s and not with_now):
            return TOO_SOON
        occupancy.account(a, replica, end_s)
        slot = a.replicas[replica].oldest_plan
        num_finished = replicas.complete(a, replica, end_s)
        if end_s == now_s:
            return slot if num_finished > 0 else NONE
        cursor.num_unforeseen += num_finished
        replicas.decide_steps(a, replica, end_s)


@kernel
def catch_up(a: Arrays, until_s: float) -> None:
    """End all steps that end before: somebody looks into the engines."""
    if a.cursor[0].may_lag == 1:
        for replica in range(a.replicas.shape[0]):
            end_steps(a, replica, until_s, False)


@kernel
def call(a: Arrays, replica: int, now_s: float) -> None:
    """Let the engine be looked at now."""
    if a.replicas[replica].num_plans > 0:
        set_next(a.next_event_s, replica, now_s)


@kernel
def call_all(a: Arrays, now_s: float) -> None:
    for replica in range(a.replicas.shape[0]):
        call(a, replica, now_s)
