"""Our `ray-pow-2` and `ray-prefix` beside Ray Serve's own routers, choice by choice.

    python -m conformance.components.ray_serve --python PYTHON [--requests 10000] [--seed 0]

PYTHON is an interpreter that has ray[serve] 2.60. A fleet of ours serves random prompts; Ray's classes get the queues
that our router saw, and our random numbers. Exit code 1 on any difference.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conformance.components.production_stack import NUM_ENGINES, SPANS, RouterComparison, random_prompts
from simulator.engines.vllm.engine import EngineConfig
from simulator.engines.vllm.speculation import draft_hash
from simulator.fleet.fleet import Fleet, Pool
from simulator.latency.step_time import constant_step_times
from simulator.simulation import Simulation
from workloads.requests import RequestTable

PROBE = Path(__file__).parent / "probes" / "ray_serve_probe.py"
ROUTERS: dict[str, dict[str, Any]] = {
    "ray-pow-2": {"router": "pow-2"},
    "ray-prefix": {"router": "prefix", "imbalanced_threshold": None},
    "ray-prefix:imbalanced_threshold=3": {"router": "prefix", "imbalanced_threshold": 3},
}
LOADS = (0.5, 1.0, 4.0)  # times as fast as `random_prompts` come, a third of the requests each


def check_ray(python: str, router: str, *, num_requests: int, seed: int) -> RouterComparison:
    """Let both routers route the same random prompts."""
    table = loaded(random_prompts(num_requests, seed))
    simulation = served(table, router, seed)
    requests = simulation.requests
    case = ROUTERS[router] | {
        "replicas": NUM_ENGINES,
        "hashes": [draft_hash(seed % 2**32, count) for count in range(1, 2 * num_requests + 1)],
        "requests": [
            {"queues": queues, "chosen": chosen, "prompt": text_of(table, row)}
            for row, (queues, chosen) in enumerate(
                zip(queues_seen(requests).tolist(), requests["replica"].tolist(), strict=True)
            )
        ],
    }
    theirs = asked(python, PROBE, case)
    return RouterComparison(ours=requests["replica"].tolist(), theirs=theirs)


def loaded(table: RequestTable) -> RequestTable:
    """The same requests, a part of them slowly, a part fast; what follows other beginnings is of other content."""
    contents = table.span_content.reshape(-1, SPANS)
    _, contents[:, -1] = np.unique(contents, axis=0, return_inverse=True)
    contents[:, -1] += contents.max() + 1
    gaps_s = np.diff(table.arrival_s, prepend=0.0)
    speed = np.array(LOADS)[np.arange(len(gaps_s)) * len(LOADS) // len(gaps_s)]
    table.arrival_s[:] = np.cumsum(gaps_s / speed)
    return table


def served(table: RequestTable, router: str, seed: int) -> Simulation:
    engine = EngineConfig(num_gpu_blocks=4000, max_model_len=1024, max_num_seqs=8, max_num_batched_tokens=512)
    times = constant_step_times(0.02, max_num_batched_tokens=512, max_num_seqs=8)
    pools = (Pool(engine=engine, step_times=times, num_servers=NUM_ENGINES),)
    simulation = Simulation(Fleet(pools=pools, router=router), table, seed=seed)
    simulation.run()
    return simulation


def queues_seen(requests: NDArray[np.void]) -> NDArray[np.int64]:
    """[requests, engines] how many each engine had when a request came: steps that end then have ended."""
    arrival_s, found = requests["arrival_s"], np.zeros((len(requests), NUM_ENGINES), np.int64)
    for engine in range(NUM_ENGINES):
        mine = requests["replica"] == engine
        sent = np.concatenate([[0], np.cumsum(mine)[:-1]])
        found[:, engine] = sent - np.searchsorted(np.sort(requests["finish_s"][mine]), arrival_s, side="right")
    return found


def text_of(table: RequestTable, row: int) -> str:
    """A prompt of 4 characters a token; tokens that differ begin with another character."""
    words, begin, length = [], 0, int(table.prompt_tokens[row])
    for span in range(SPANS * row, SPANS * (row + 1)):
        end, content = min(int(table.span_end[span]), length), int(table.span_content[span])
        for place in range(begin, end):
            number = int.from_bytes(blake2b(f"{content}.{place}".encode(), digest_size=4).digest(), "big")
            words.append(f"{chr(0x10000 + number % 0xF0000)}...")
        begin = max(begin, end)
    return "".join(words)


def asked(python: str, probe: Path, case: dict[str, Any]) -> list[Any]:
    """What the original chose, in an interpreter that has it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.json"
        path.write_text(json.dumps(case))
        ran = subprocess.run([python, probe, path], capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(f"{probe.name} failed:\n{ran.stderr[-2000:]}")
    found: list[Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="an interpreter with ray[serve]")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given, num_differences = parser.parse_args(), 0
    for router in ROUTERS:
        found = check_ray(given.python, router, num_requests=given.requests, seed=given.seed)
        num_differences += len(found.differences)
        print(f"{router}, seed {given.seed}: {len(found.ours):,} choices compared; {len(found.differences)} differ")
    return int(num_differences > 0)


if __name__ == "__main__":
    sys.exit(main())
