"""How fast the compiled core simulates, case by case: `python validation/core_speed.py [--json] [--case NAME]`.

Closed-loop chat of 4 turns with 200 output tokens and a shared 2,048-token system prompt; asynchronous scheduling
and prefix caching on, one thread. Each case runs in its own process, after a small run that loads the kernels; the
rate is the median of three runs, the peak resident memory is the whole process's.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

import numpy as np

from kvcache.layout.kv_layout import KVGroup
from simulator.engines.sglang.engine import EngineConfig as SGLangConfig
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.fleet import Fleet, Pool
from simulator.latency.step_time import StepTimes
from simulator.simulation import Simulation
from workloads.distributions import Exponential, Fixed
from workloads.populations.population import Population
from workloads.requests import RequestTable

MAX_NUM_SEQS, TOKEN_BUDGET, MAX_MODEL_LEN = 1024, 8192, 8192
RUNS = 3
CHAT = Population(
    name="benchmark",
    system_prompt_tokens=2048,
    turns=Fixed(value=4),
    user_tokens=Fixed(value=100),
    output_tokens=Fixed(value=200),
    think_time_s=Exponential(mean_value=10.0),
)


@dataclass(frozen=True)
class Case:
    requests: int
    users: int
    replicas: int = 1
    blocks: int = 30_000
    asynchronous: bool = True
    groups: tuple[KVGroup, ...] = (KVGroup(None),)
    page_size: int | None = None  # of SGLang, with as many tokens as vLLM's blocks hold
    window: int | None = None  # of layers with a pool of their own there


CASES = {
    "chat_100_users": Case(100_000, 100),
    "chat_400_users": Case(100_000, 400),
    "chat_1000_users": Case(100_000, 1000),
    "chat_full_pool": Case(100_000, 1000, blocks=5_000),
    "sglang_400_users": Case(100_000, 400, page_size=1),
    "sglang_full_pool": Case(100_000, 1000, blocks=5_000, page_size=1),
    "sglang_pages_of_64": Case(100_000, 400, page_size=64),
    "sglang_gpt_oss": Case(100_000, 400, page_size=1, window=127),
    "chat_synchronous": Case(100_000, 400, asynchronous=False),
    "chat_300k": Case(300_000, 400),
    "chat_1m": Case(1_000_000, 400),
    "hybrid_gpt_oss": Case(100_000, 400, blocks=60_000, groups=(KVGroup(128), KVGroup(None))),
    "hybrid_gemma3_27b": Case(100_000, 400, blocks=200_000, groups=(KVGroup(1024),) * 6 + (KVGroup(None),)),
    "64_replicas": Case(200_000, 64 * 100, replicas=64, blocks=8_000),
}


@dataclass(frozen=True)
class Row:
    case: str
    requests: int
    requests_per_s: float
    sequence_steps_per_s: float
    seconds: float
    mean_batch: float
    peak_rss_bytes: int


def fleet_of(case: Case) -> Fleet:
    """An H100-like engine, so that batches are as large as real ones."""
    tokens = np.arange(TOKEN_BUDGET + 1)
    times = StepTimes(
        decode=0.006 + 1e-5 * tokens,
        prefill=0.006 + 2e-5 * tokens,
        floor=np.zeros(TOKEN_BUDGET + 1),
        sampling=1e-6 * np.arange(MAX_NUM_SEQS + 1),
        context_s=4e-8,
    )
    return Fleet(
        pools=(Pool(engine=engine_of(case), step_times=times, num_servers=case.replicas),), router="least-outstanding"
    )


def engine_of(case: Case) -> EngineConfig | SGLangConfig:
    if case.page_size is not None:
        return SGLangConfig(
            max_total_num_tokens=16 * case.blocks,
            context_len=MAX_MODEL_LEN,
            max_running_requests=MAX_NUM_SEQS,
            page_size=case.page_size,
            chunked_prefill_size=TOKEN_BUDGET,
            sliding_window_size=case.window,
            swa_max_total_num_tokens=16 * case.blocks * 4 // 5 if case.window else 0,
        )
    return EngineConfig(
        num_gpu_blocks=case.blocks,
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=TOKEN_BUDGET,
        async_scheduling=case.asynchronous,
        kv_groups=case.groups,
    )


def table_of(case: Case) -> RequestTable:
    turns = -(-case.requests // case.users)
    return CHAT.draw(case.users, turns, 0, MAX_MODEL_LEN, stationary_start=False)


def measure(name: str) -> Row:
    case = CASES[name]
    fleet, table = fleet_of(case), table_of(case)
    Simulation(fleet, table_of(Case(400, 100))).run()
    seconds = []
    for _ in range(RUNS):
        simulation = Simulation(fleet, table)
        start = time.perf_counter()
        simulation.run()
        seconds.append(time.perf_counter() - start)
        assert simulation.num_finished == table.num_requests
        sequences, steps = (float(simulation.totals[key].sum()) for key in ("sequences", "steps"))
        del simulation
    median_s = statistics.median(seconds)
    return Row(
        case=name,
        requests=table.num_requests,
        requests_per_s=table.num_requests / median_s,
        sequence_steps_per_s=sequences / median_s,
        seconds=median_s,
        mean_batch=sequences / steps,
        peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


def measure_apart(name: str) -> dict[str, float]:
    """In a process of its own, so that memory is this case's."""
    run = subprocess.run(
        [sys.executable, __file__, "--case", name, "--inner"], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(run.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--case", choices=CASES, help="only this case")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inner:
        print(json.dumps(asdict(measure(arguments.case))))
        return
    rows = [measure_apart(name) for name in ([arguments.case] if arguments.case else CASES)]
    if arguments.json:
        print(json.dumps({"schema_version": 1, "core_speed": rows}, indent=2))
        return
    for row in rows:
        print(
            f"{row['case']:<18}{row['requests']:>10,} requests {row['requests_per_s']:>10,.0f} /s "
            f"{row['sequence_steps_per_s'] / 1e6:>7.1f} M sequence-steps/s  {row['seconds']:>6.2f} s  "
            f"batch {row['mean_batch']:>5.0f}  {row['peak_rss_bytes'] / 1e6:>5.0f} MB"
        )


if __name__ == "__main__":
    main()
