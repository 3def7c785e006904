"""A public ladder of llm-d replayed with and without KV in host memory.

    python -m validation.offload_ladder [--rates 5,10,20] [--router cache-aware]

llm-d's guide `guides/tiered-prefix-cache` measures Qwen3-32B on 8 x 2 H100 with 250 prefixes of 16,000 tokens, of each
5 prompts with 256 tokens more, and answers of 256: the prefixes fit host memory, and not the GPUs. Nothing here is
fitted to it. Prints one line for each arm and rate.
"""

import argparse
from dataclasses import replace

import numpy as np

from simulator.deployment import Deployment, resolve
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.connectors.host_tier import HostTier
from simulator.simulation import Simulation
from workloads.requests import NO_PREDECESSOR, OPEN_END, RequestTable

PREFIXES, PROMPTS_EACH = 250, 5
PREFIX, QUESTION, ANSWER = 16_000, 256, 256  # tokens
REPLICAS, TENSOR_PARALLEL = 8, 2
GPU_TOKENS = 2_384_000  # of all replicas, as the guide has it
HOST_BYTES = 200 * 2**30  # of each
LINK_BYTES_PER_S = 50e9  # one way, of each H100: LMCache and vLLM measured it, see docs/measurements/offloading.md
WARM_UP_RATE = 5.0  # all prompts once at this rate, before those that count
BLOCK_TOKENS = 16


def ladder_table(rate: float, seed: int) -> RequestTable:
    """All prompts at `WARM_UP_RATE`, then all again with new questions at `rate` requests/s; in random order."""
    rng = np.random.default_rng(seed)
    count = PREFIXES * PROMPTS_EACH
    prefixes = [rng.permutation(np.repeat(np.arange(PREFIXES), PROMPTS_EACH)) for _ in range(2)]
    gaps_s = np.concatenate([rng.exponential(1 / WARM_UP_RATE, count), rng.exponential(1 / rate, count)])
    rows = np.arange(2 * count)
    return RequestTable(
        arrival_s=np.cumsum(gaps_s),
        follows=np.full(2 * count, NO_PREDECESSOR, np.int64),
        think_s=np.zeros(2 * count),
        prompt_tokens=np.full(2 * count, PREFIX + QUESTION, np.int32),
        output_tokens=np.full(2 * count, ANSWER, np.int32),
        priority=np.zeros(2 * count, np.int32),
        span_start=2 * rows,
        span_count=np.full(2 * count, 2, np.int32),
        span_content=np.stack([np.concatenate(prefixes), PREFIXES + rows], axis=1).ravel(),
        span_end=np.tile([PREFIX, OPEN_END], 2 * count).astype(np.int32),
    )


def with_tier(deployment: Deployment) -> Deployment:
    """The same with the guide's host memory; each GPU copies its own part of a block over its own link."""
    block_bytes = deployment.budget.layout.block_bytes()  # of one rank
    tier = HostTier(num_chunks=HOST_BYTES // (TENSOR_PARALLEL * block_bytes), chunk_s=block_bytes / LINK_BYTES_PER_S)
    return replace(deployment, engine=replace(deployment.engine, host_tier=tier))


def line(deployment: Deployment, router: str, rate: float, seed: int) -> str:
    """One arm at one rate: tokens per second from the first arrival to the last answer, TTFT, hits."""
    simulation = Simulation(deployment.fleet(REPLICAS, router), ladder_table(rate, seed), seed=seed)
    simulation.run()
    counted = simulation.requests[PREFIXES * PROMPTS_EACH :]
    seconds = counted["finish_s"].max() - counted["arrival_s"].min()
    tokens_per_s = len(counted) * (PREFIX + QUESTION + ANSWER) / seconds
    ttft_s = float((counted["first_token_s"] - counted["arrival_s"]).mean())
    totals = simulation.arrays.totals
    gpu, host = (totals[name].sum() / totals["queried_tokens"].sum() for name in ("hit_tokens", "host_hit_tokens"))
    arm = "GPU and host" if deployment.engine.host_tier else "GPU only    "
    speed = f"{tokens_per_s / 1e3:5.1f} k tok/s  TTFT {ttft_s:5.2f} s"
    return f"{rate:4g} req/s  {arm}  {speed}  hits {gpu:.0%} + {host:.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="5,10,20", help="requests/s of all replicas")
    parser.add_argument("--router", default="cache-aware")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    args = EngineArgs(
        tensor_parallel_size=TENSOR_PARALLEL, num_gpu_blocks_override=GPU_TOKENS // REPLICAS // BLOCK_TOKENS
    )
    deployment = resolve("Qwen/Qwen3-32B", "H100", args)
    for rate in map(float, given.rates.split(",")):
        for arm in (deployment, with_tier(deployment)):
            print(line(arm, given.router, rate, given.seed), flush=True)


if __name__ == "__main__":
    main()
