"""When the tokens of answers came, and when an answer ended."""

import math

from simulator.core.jit import kernel, prefetch
from simulator.core.layout import FINISHED, ITL_BINS, ITL_GROWTH, ITL_MIN_S
from simulator.core.routing import views
from simulator.core.state import Arrays
from simulator.core.step_log import log_word

_LOG_GROWTH = math.log(ITL_GROWTH)


@kernel
def record_gaps(a: Arrays, replica: int, gap_s: float, count: int) -> None:
    """Enter `count` inter-token gaps into the histogram."""
    cursor = a.cursor[0]
    cursor.itl_count += count
    a.totals[replica].itl_sum_s += gap_s * count
    place = 0
    if gap_s > ITL_MIN_S:
        place = min(int(math.log(gap_s / ITL_MIN_S) / _LOG_GROWTH), ITL_BINS - 1)
    a.itl_histogram[place] += count


@kernel
def note_time(a: Arrays, request: int, now_s: float, previous_s: float) -> int:
    """Enter when a request's token came; 1 if the gap before it is the replica's last step."""
    req = a.requests[request]
    last_s = req.last_token_s
    req.last_token_s = now_s
    if req.output == 0:
        req.first_token_s = now_s
        views.note_first_token(a, request)
    elif last_s == previous_s:
        return 1
    else:
        record_gaps(a, req.replica, now_s - last_s, 1)
    return 0


@kernel
def look_ahead(a: Arrays, request: int) -> None:
    """A request is about to end: begin to load its session's next turn."""
    following = a.next_turn[request % a.next_turn.shape[0]]
    prefetch(a.think_s, following)
    prefetch(a.requests, following)


@kernel
def finish(a: Arrays, request: int, now_s: float) -> None:
    """A request has all its tokens."""
    views.note_ended(a, request)
    end(a, request, FINISHED, now_s)
    log_finished(a, request)


@kernel
def log_finished(a: Arrays, request: int) -> None:
    if a.cursor[0].log_steps == 1:
        log_word(a.cursor[0], a.log, request)
        log_word(a.cursor[0], a.log, a.requests[request].replica)
        log_word(a.cursor[0], a.log, -4)


@kernel
def end(a: Arrays, request: int, status: int, now_s: float) -> None:
    """Enter how and when a request ended."""
    a.requests[request].status = status
    a.requests[request].finish_s = now_s
    a.cursor[0].num_finished += 1
