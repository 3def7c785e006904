"""How a server stalls before it is warm."""

from simulator.engines.argument import AUTO
from simulator.latency.model import ServedModel

# Of eight H100 servers with vLLM 0.15.1 (docs/measurements/requests.md): dense ones stalled once, by GPUs, those with
# experts six times, while prompts were new. More GPUs than four are taken to stall as four.
DENSE_STALL_S = {1: 0.05, 2: 0.25, 4: 0.55}
EXPERTS_STALL_S, EXPERTS_STALLS, EXPERTS_APART_S = 1.0, 6, 1.5


def cold_start(served: ServedModel, asked: float | str) -> tuple[float, int, float]:
    """Seconds of a stall, how many there are, and seconds from one to the next.

    One of the time that was asked for, AUTO as servers were measured.
    """
    if asked != AUTO:
        return float(asked), 1, 0.0
    if served.architecture.is_moe:
        return EXPERTS_STALL_S, EXPERTS_STALLS, EXPERTS_APART_S
    gpus = served.args.tensor_parallel_size * served.args.pipeline_parallel_size
    return DENSE_STALL_S[max(count for count in DENSE_STALL_S if count <= gpus)], 1, 0.0
