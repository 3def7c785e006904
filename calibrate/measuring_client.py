"""What a benchmark client adds to the latencies that it measures."""

# On a CPU, vLLM 0.32's server with its own client, steps held at 16 ms: from 4 to 32 and 64 clients the mean time that
# a request spent before and after the engine grew by 0.26 and 0.43 ms per client, its median by 0.20 and 0.31 ms.
# Public closed loops took 0.3 ms per client longer than simulated: 0.24 – 0.44 ms by model, 0.25 – 0.33 ms by GPU.
STREAM_S = 0.3e-3
ONE_PROCESS = ("vllm bench serve",)


def client_lag_s(tool: str, concurrency: float) -> float:
    """Seconds by which TTFT and E2E of a closed loop are longer for its client than at the engine.

    A client of one process, and the API server, take the tokens of all streams one after the other: a first token waits
    for those of its step. 0 for other clients, which were not measured, or showed nothing of the kind at a rate.
    """
    return STREAM_S * concurrency if tool in ONE_PROCESS else 0.0
