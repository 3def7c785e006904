"""What each step decided, for `--steps-out`: words that `simulator.step_log` reads."""

from simulator.core.jit import kernel
from simulator.core.state import Arrays
from simulator.core.types import Cursor, StepLog


@kernel
def log_word(cursor: Cursor, log: StepLog, word: int) -> None:
    log[cursor.log_size] = word
    cursor.log_size += 1


@kernel
def log_step(a: Arrays, replica: int, slot: int, num_preempted: int, num_running: int) -> None:
    """Append `[scheduled pairs] embeddings free-slots count preempted free running waiting step replica -3`.

    It is read from its end; the first two are of the encoder.
    """
    state = a.replicas[replica]
    plan = a.plans[replica, slot]
    for index in range(plan.count):
        log_word(a.cursor[0], a.log, a.entries[replica, slot, index].request)
        log_word(a.cursor[0], a.log, a.entries[replica, slot, index].tokens)
    has_images = a.pools[state.pool].encoder_budget > 0
    log_word(a.cursor[0], a.log, a.encoders[replica].embeddings if has_images else 0)
    log_word(a.cursor[0], a.log, a.encoders[replica].free_slots if has_images else 0)
    log_word(a.cursor[0], a.log, plan.count)
    log_word(a.cursor[0], a.log, num_preempted)
    log_word(a.cursor[0], a.log, state.num_free_blocks)
    log_word(a.cursor[0], a.log, num_running)
    log_word(a.cursor[0], a.log, state.num_waiting)
    log_word(a.cursor[0], a.log, state.step)
    log_word(a.cursor[0], a.log, replica)
    log_word(a.cursor[0], a.log, -3)
