"""Closed-loop runs simulated: all clients start at time 0 and send 10 prompts each.

Scheduling is asynchronous and max_model_len is input + output + 256, unless `launch_of` says otherwise.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.check.replay import Replay, client_lag_s
from calibrate.measured_run import MeasuredRun
from kvcache.models.catalog import find_gpu
from simulator.deployment import Deployment, resolve
from simulator.engines.vllm.arguments import EngineArgs
from simulator.latency.forms import latency_model
from simulator.latency.gpu_constants import constants_for
from simulator.results import request_times
from simulator.simulation import Simulation
from validation.constants.kernel_priors import prior_for
from validation.measured.launches import Launch, is_of_dynamo, launch_of
from validation.measured.settings import Setting
from workloads.requests import RequestTable
from workloads.synthetic import closed_load

PROMPTS_PER_CLIENT = 10


def deployment_of(setting: Setting, launch: Launch, **latency: Any) -> Deployment:
    """The replica of a run; `latency`: options of the latency form. Raises ValueError where the model does not fit."""
    asked = EngineArgs(
        tensor_parallel_size=setting.tp,
        data_parallel_size=setting.dp,
        enable_expert_parallel=setting.ep > 1 if launch.enable_expert_parallel is None else True,
        quantization=None if launch.checkpoint else setting.quantization,
        kv_cache_dtype=launch.kv_cache_dtype,
        max_model_len=setting.isl + setting.osl + 256,
        max_num_batched_tokens=launch.max_num_batched_tokens,
        max_num_seqs=launch.max_num_seqs,
        gpu_memory_utilization=launch.gpu_memory_utilization,
        max_cudagraph_capture_size=launch.max_cudagraph_capture_size,
        async_scheduling=launch.async_scheduling,
        moe_backend=launch.moe_backend,
        compilation=launch.compilation,
        top_p_sampling=launch.top_p_sampling,
        environment=launch.environment,
        vllm_version=setting.version,
    )
    found = resolve(launch.checkpoint or setting.model, setting.gpu, asked)
    return replace(found, latency=latency_model(found.served, **latency))


def load_of(setting: Setting, launch: Launch) -> RequestTable:
    """What the clients send: InferenceMAX's the very lengths that its client draws from numpy's seed 0."""
    num_requests, spread = PROMPTS_PER_CLIENT * setting.concurrency, launch.length_spread
    table = closed_load(
        concurrency=setting.concurrency,
        num_requests=num_requests,
        input_len=setting.isl,
        output_len=setting.osl,
        length_spread=spread,
    )
    if is_of_dynamo(setting):
        return table
    drawn = np.random.RandomState(0)  # benchmark_serving.py --seed, sample_random_requests: prompts first
    prompts, outputs = (
        drawn.randint(int(nominal * spread), nominal + 1, size=num_requests).astype(np.int32)
        for nominal in (setting.isl, setting.osl)
    )
    return replace(table, prompt_tokens=prompts, output_tokens=outputs)


def tool_of(setting: Setting) -> str:
    """The client that measured a run: InferenceMAX's is a copy of vLLM's."""
    return "aiperf" if is_of_dynamo(setting) else "vllm bench serve"


def simulate(
    setting: Setting, launch: Launch | None = None, *, from_kernel_tables: bool = False, **options: Any
) -> tuple[float, float]:
    """Mean TTFT with mean TPOT, in seconds, as clients see them; `launch` stands in for the launch script's settings.

    `from_kernel_tables`: with constants that no run was fitted to; `options`: of the latency form. Raises ValueError
    where the model does not fit.
    """
    gpu = find_gpu(setting.gpu)
    constants = prior_for(gpu, vllm_version=setting.version) if from_kernel_tables else constants_for(gpu)
    launch = launch or launch_of(setting)
    deployment = deployment_of(setting, launch, **({"constants": constants} | options))
    simulation = Simulation(deployment.fleet(1, "least-outstanding"), load_of(setting, launch))
    simulation.run()
    times = request_times(simulation.requests)
    lag_s = client_lag_s(tool_of(setting), setting.concurrency)
    return float(times.ttft_s.mean()) + lag_s, float(np.nanmean(times.tpot_s))


def replay_of(setting: Setting) -> Replay:
    """The run for fits and checks, with the settings of its launch script. Raises ValueError where it does not fit."""
    launch = launch_of(setting)
    return Replay(
        run=MeasuredRun(
            source=Path(f"{setting.model}-{setting.concurrency}"),
            tool=tool_of(setting),
            load={"concurrency": setting.concurrency, "input_len": setting.isl, "output_len": setting.osl},
            aggregates={"ttft_s.mean": setting.ttft_s, "tpot_s.mean": setting.tpot_s},
        ),
        deployment=deployment_of(setting, launch),
        table=load_of(setting, launch),
    )
