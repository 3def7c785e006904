"""The physical step times of a deployment, and what they make of a step of like sequences."""

from typing import Any

from kvcache.gpus.gpu import GPU
from kvcache.models.catalog import find_gpu, load_model
from kvcache.shape.architecture import Architecture
from simulator.latency.forms import latency_model
from simulator.latency.model import served_model
from simulator.latency.step_time import BatchSums, StepTimes

BUDGET, SEQS = 4096, 512


def physical_step_times(architecture: Architecture, gpu: GPU, **settings: Any) -> StepTimes:
    return latency_model(served_model(architecture, gpu, **settings)).step_times


def step_times(model: str = "llama-3.1-8b", gpu: str = "h100-sxm", **options: Any) -> StepTimes:
    sizes = {"max_num_batched_tokens": BUDGET, "max_num_seqs": SEQS} | options
    return physical_step_times(load_model(model), find_gpu(gpu), **sizes)


def decode_s(times: StepTimes, sequences: int, context: int) -> float:
    sums = BatchSums()
    for _ in range(sequences):
        sums.add(start=context - 1, end=context, is_sampled=True, is_decode=True, window=times.window)
    return times.step_s(sums)


def prefill_s(times: StepTimes, tokens: int, start: int = 0) -> float:
    sums = BatchSums()
    sums.add(start=start, end=start + tokens, is_sampled=True, is_decode=tokens == 1, window=times.window)
    return times.step_s(sums)
