"""How long requests wait in a queue, and how much longer others' prefills make their answers."""

import numpy as np

from simulator.study.traffic import FloatArray


def waits_s(at: FloatArray, service_s: FloatArray) -> FloatArray:
    """Of each arrival at one server, first come, first served: Lindley's recursion in closed form."""
    ahead: FloatArray = np.cumsum(service_s) - service_s - at
    return ahead - np.minimum.accumulate(ahead)


def stretched_s(start: FloatArray, service_s: FloatArray, held_up_s: FloatArray, decode_s: FloatArray) -> FloatArray:
    """How long decoding takes that alone would take `decode_s`, after each service of a path that repeats itself.

    Each later service holds it up for a part of its time.
    """
    edges = np.column_stack([start, start + service_s]).ravel()
    progress = edges - np.repeat(np.cumsum(held_up_s), 2)
    progress[::2] += held_up_s
    laps, rest = np.divmod(progress[1::2] + decode_s, progress[-1])
    ends = laps * edges[-1] + np.interp(rest, progress, edges)
    return np.asarray(ends - edges[1::2])
