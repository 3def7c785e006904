"""Recordings and runs made by the model itself, with constants that a fit should find."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calibrate.check.replay import replay
from calibrate.measured_run import MeasuredRun
from calibrate.recording import Recording
from kvcache.models.catalog import find_gpu, load_model
from simulator.latency.forms.physical import latency_model
from simulator.latency.gpu_constants import constants_for
from simulator.latency.model import served_model
from simulator.latency.profile import with_terms

H100 = find_gpu("h100-sxm")
OPTIONS = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "max_num_batched_tokens": 2048, "max_num_seqs": 128}
DEPLOYMENT = served_model(
    architecture=load_model("llama-3.1-8b"), gpu=H100, max_num_batched_tokens=2048, max_num_seqs=128
)


def step_sums(rng: np.random.Generator, count: int) -> dict[str, Any]:
    """Random batches: decodes of many sizes, every third step with prefill."""
    decodes = np.round(np.exp(rng.uniform(0, np.log(120), count))).astype(int)
    context = decodes * np.exp(rng.uniform(np.log(50), np.log(4000), count))
    prefill = np.where(rng.random(count) < 0.33, np.minimum(2048 - decodes, rng.integers(16, 2048, count)), 0)
    sequences = decodes + (prefill > 0)
    return {
        "tokens": decodes + prefill,
        "sequences": sequences,
        "sampled": sequences,
        "decode_context": context,
        "window_context": np.minimum(context, decodes),
        "prefill_tokens": prefill,
        "prefill_work": prefill * (prefill / 2 + rng.integers(0, 2000, count)),
        "window_prefill_work": prefill,
    }


def recording(terms: dict[str, float], *, count: int = 1500, noise: float = 0.02, seed: int = 0) -> Recording:
    """Steps of an 8B model on an H100 whose constants are the shipped ones with these terms."""
    rng = np.random.default_rng(seed)
    sums = step_sums(rng, count)
    times = latency_model(DEPLOYMENT, constants=with_terms(constants_for(H100), terms)).step_times
    cycle_s = times.steps_s(sums) * np.exp(noise * rng.standard_normal(count))
    table = pd.DataFrame({"start_s": np.cumsum(cycle_s) - cycle_s, "cycle_s": cycle_s, "schedule_s": np.nan, **sums})
    return Recording(options=OPTIONS, environment={"vllm_version": "0.32.0"}, steps=table)


def closed_run(concurrency: int, **changes: Any) -> MeasuredRun:
    """A closed-loop run without figures."""
    load = {"concurrency": concurrency, "input_len": 512, "output_len": 64, "num_requests": 3 * concurrency}
    return MeasuredRun(source=Path(f"c{concurrency}.json"), tool="made up", options=OPTIONS, load=load, **changes)


def measured_closed_run(concurrency: int, terms: dict[str, float]) -> MeasuredRun:
    """The same with the figures of a simulation under these terms."""
    item = replay(closed_run(concurrency))
    result = item.simulate(with_terms(constants_for(H100), terms))
    aggregates = {
        "ttft_s.mean": float(result.times.ttft_s.mean()),
        "tpot_s.mean": float(np.nanmean(result.times.tpot_s)),
    }
    return closed_run(concurrency, aggregates=aggregates)
