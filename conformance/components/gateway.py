"""Our `cache-aware` and `vllm-cache-aware` beside the gateways of SGLang and vLLM, choice by choice.

    python -m conformance.components.gateway --python PYTHON [--package vllm] [--requests 10000] [--seed 0]

PYTHON is an interpreter that has sglang-router 0.3.2, or vllm-router 0.1.17. A fleet of ours serves random prompts; the
real server routes the same prompts over HTTP, before workers that answer when ours did. Exit code 1 on any difference.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from conformance.components.production_stack import CHUNK_TOKENS, NUM_ENGINES, SPANS, RouterComparison, random_prompts
from conformance.components.ray_serve import asked, loaded, queues_seen, served, text_of
from simulator.fleet.router import find_router
from simulator.fleet.routers.cache_aware import loads_differ
from workloads.requests import RequestTable

PROBE = Path(__file__).parent / "probes" / "gateway_probe.py"
ROUTERS = {"sglang": "cache-aware", "vllm": "vllm-cache-aware"}
PARAMETERS = (
    "",
    ":balance_abs_threshold=3,balance_rel_threshold=1.1",
    ":cache_threshold=0.7,balance_abs_threshold=1000",
)


def check_gateway(
    python: str, package: str, values: str, *, num_requests: int, seed: int
) -> tuple[RouterComparison, int]:
    """Let both routers route the same random prompts; beside it, how many came while loads were imbalanced."""
    table, router = whole(loaded(random_prompts(num_requests, seed))), ROUTERS[package] + values
    requests, parameters = served(table, router, seed).requests, find_router(router).parameters
    case = {
        "package": package,
        "parameters": {key: value if value % 1 else int(value) for key, value in parameters.items()},
        "engines": NUM_ENGINES,
        "requests": [
            [row, text_of(table, row), ended]
            for row, ended in enumerate(happened_before(requests["arrival_s"], requests["finish_s"]))
        ],
    }
    found = RouterComparison(ours=requests["replica"].tolist(), theirs=asked(python, PROBE, case))
    return found, sum(loads_differ(loads, parameters) for loads in queues_seen(requests).tolist())


def whole(table: RequestTable) -> RequestTable:
    """The same requests, each as long as its first content, or two, or all three."""
    ends, last = table.span_end.reshape(-1, SPANS), table.span_content.reshape(-1, SPANS)[:, -1]
    lengths = np.column_stack([ends[:, :-1], ends[:, -2] + CHUNK_TOKENS * (1 + last % 8)])
    table.prompt_tokens[:] = lengths[np.arange(len(lengths)), table.prompt_tokens // CHUNK_TOKENS % SPANS]
    return table


def happened_before(
    arrival_s: NDArray[np.float64], times_s: NDArray[np.float64], *, is_decided: bool = False
) -> list[list[int]]:
    """For each request those of which that time comes after the one before it has come, and not after it comes.

    Steps that end when a request comes have ended; what `is_decided` then was not decided before.
    """
    ends: list[list[int]] = [[] for _ in arrival_s]
    for row, next_one in enumerate(np.searchsorted(arrival_s, times_s, side="right" if is_decided else "left")):
        if next_one < len(ends):
            ends[next_one].append(row)
    return ends


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="an interpreter with the package")
    parser.add_argument("--package", choices=("sglang", "vllm"), default="sglang", help="whose gateway")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given, num_differences = parser.parse_args(), 0
    for values in PARAMETERS:
        found, imbalanced = check_gateway(
            given.python, given.package, values, num_requests=given.requests, seed=given.seed
        )
        num_differences += len(found.differences)
        print(
            f"{ROUTERS[given.package]}{values}, seed {given.seed}: {len(found.ours):,} choices compared, "
            f"{imbalanced:,} while loads were imbalanced; {len(found.differences)} differ"
        )
    return int(num_differences > 0)


if __name__ == "__main__":
    sys.exit(main())
