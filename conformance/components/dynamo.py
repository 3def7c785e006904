"""Our `dynamo-kv` beside NVIDIA Dynamo's own KV router, choice by choice.

    python -m conformance.components.dynamo --python PYTHON [--requests 10000] [--seed 0]

PYTHON is an interpreter that has ai-dynamo-runtime 1.6.1, pyzmq and msgpack. A fleet of ours serves random prompts; the
original's selection service, compiled as it is shipped, hears of the same blocks, first tokens and ends, and chooses
for the same prompts. Where several engines cost the same, both draw: its choice must be one of those. Every engine's
prefill, requests and blocks are compared, too. Exit code 1 on any difference.
"""

import argparse
import sys
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from conformance.components.gateway import happened_before, whole
from conformance.components.production_stack import NUM_ENGINES, SPANS, random_prompts
from conformance.components.ray_serve import asked, loaded
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.fleet import Fleet, Pool
from simulator.fleet.router import find_router
from simulator.fleet.routers import dynamo_kv
from simulator.fleet.view import Upkeep, View
from simulator.latency.step_time import constant_step_times
from simulator.simulation import Simulation
from workloads.requests import RequestTable

PROBE = Path(__file__).parent / "probes" / "dynamo_probe.py"
STEP_S, MAX_TOKENS = 0.02, 8192  # a step computes any prompts whole
SETTINGS = (
    "", "overlap_score_credit=0.5", "prefill_load_scale=3", "active_request_weight=2", "kv_cache_block_size=64",
)  # fmt: skip
ROLES: dict[str, dict[str, str]] = {  # as Dynamo sets up its router of decode engines; this service has none of prefill
    "serve": {},
    "decode": {
        "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT": "0",
        "DYN_ROUTER_ASSUME_KV_REUSE": "false",
        "DYN_ROUTER_TRACK_PREFILL_TOKENS": "false",
    },
}
VARIABLES = {
    "overlap_score_credit": "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT",
    "prefill_load_scale": "DYN_ROUTER_PREFILL_LOAD_SCALE",
    "active_request_weight": "DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT",
}


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What our router made of one request: the engines that cost least, and what it knew of each engine."""

    cheapest: tuple[int, ...]
    prefill_tokens: list[int]
    active_requests: list[int]
    blocks: list[int]


class Recording(dynamo_kv.Router):
    """Our router as one for engines of a role, that keeps what it saw."""

    SEES = dynamo_kv.SEES

    def __init__(self, seed: int, role: str, **parameters: float) -> None:
        super().__init__(seed, **parameters)
        self.role = role
        self.seen: list[Seen] = []

    def choose(self, view: View) -> int:
        view = cast("View", InRole(view, self.role))
        costs, prompt, block_size = self.costs(view), view.prompt_tokens, int(self.parameters["kv_cache_block_size"])
        prefill, held = [0] * NUM_ENGINES, view.held_tokens
        if self.role == "serve":
            prefill = [
                more + prompt - cached for more, cached in zip(view.prefill_tokens, view.cached_tokens, strict=True)
            ]
            held = [active - shared for active, shared in zip(view.active_tokens, view.shared_tokens, strict=True)]
        self.seen.append(
            Seen(
                cheapest=tuple(engine for engine, cost in enumerate(costs) if cost == min(costs)),
                prefill_tokens=prefill,
                active_requests=view.outstanding,
                blocks=[(tokens + prompt) // block_size for tokens in held],  # full ones
            )
        )
        return super().choose(view)


class InRole:
    """What a router knows, where it is one for engines of that role."""

    def __init__(self, view: View, role: str) -> None:
        self._view, self.role = view, role

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)


def check_dynamo(python: str, values: str, role: str, *, num_requests: int, seed: int) -> tuple[list[str], int]:
    """What differs, and how many choices were between engines of equal cost."""
    parameters = find_router(f"dynamo-kv:{values}" if values else "dynamo-kv").parameters
    block_size = int(parameters["kv_cache_block_size"])
    table = with_ends(whole(loaded(random_prompts(num_requests, seed))), block_size)
    router = Recording(seed, role, **parameters)
    requests = served(table, router, seed, dynamo_kv.upkeep(parameters))
    theirs = asked(python, PROBE, _case(table, requests, parameters, ROLES[role]))
    found = [
        text
        for row, (one, other) in enumerate(zip(router.seen, theirs, strict=True))
        for text in _told(row, one, other)
    ]
    return found, sum(len(each.cheapest) > 1 for each in router.seen)


def with_ends(table: RequestTable, block_size: int) -> RequestTable:
    """The same requests; prompts with a content of their own end within a block, and answers fill none."""
    own = table.prompt_tokens > table.span_end.reshape(-1, SPANS)[:, -2]
    table.prompt_tokens[:] += own * (table.span_content.reshape(-1, SPANS)[:, -1] % block_size).astype(np.int32)
    table.output_tokens[:] = np.minimum(table.output_tokens, block_size - table.prompt_tokens % block_size)
    return table


def served(table: RequestTable, router: Recording, seed: int, upkeep: Upkeep) -> NDArray[np.void]:
    """Its requests, in the order in which they came."""
    engine = EngineConfig(
        block_size=upkeep.chunk_tokens,
        num_gpu_blocks=60_000,
        max_model_len=1024,
        max_num_seqs=8,
        max_num_batched_tokens=MAX_TOKENS,
    )
    times = constant_step_times(STEP_S, max_num_batched_tokens=MAX_TOKENS, max_num_seqs=8)
    made = type("Made", (), {"SEES": Recording.SEES, "UPKEEP": upkeep, "__new__": lambda _, __: router})
    pools = (Pool(engine=engine, step_times=times, num_servers=NUM_ENGINES),)
    simulation = Simulation(Fleet(pools=pools, router=made), table, seed=seed)
    simulation.run()
    return simulation.requests


def _case(
    table: RequestTable, requests: NDArray[np.void], parameters: dict[str, float], of_role: dict[str, str]
) -> dict[str, Any]:
    come_s = requests["arrival_s"]
    ended, prefilled = (happened_before(come_s, requests[name]) for name in ("finish_s", "first_token_s"))
    stored = happened_before(come_s, requests["scheduled_s"], is_decided=True)
    tokens, block_size = [tokens_of(table, row) for row in range(len(requests))], int(parameters["kv_cache_block_size"])
    engines = requests["replica"].tolist()
    return {
        "engines": NUM_ENGINES,
        "block_size": block_size,
        "environment": {name: str(parameters[key]) for key, name in VARIABLES.items()} | of_role,
        "requests": [
            {
                "tokens": tokens[row],
                "chosen": engines[row],
                "ended": ended[row],
                "prefilled": prefilled[row],
                "stored": [[engines[other], other, hashes_of(tokens[other], block_size)] for other in stored[row]],
            }
            for row in range(len(requests))
        ],
    }


def tokens_of(table: RequestTable, row: int) -> list[int]:
    """A prompt's tokens, which depend on the content and the place."""
    found: list[int] = []
    for span in range(SPANS * row, SPANS * (row + 1)):
        end, content = min(int(table.span_end[span]), int(table.prompt_tokens[row])), int(table.span_content[span])
        found += [_number(f"{content}.{place}", 4) for place in range(len(found), end)]
    return found


def hashes_of(tokens: list[int], block_size: int) -> list[int]:
    """Of each full block with all that is before it."""
    ends = range(block_size, len(tokens) + 1, block_size)
    return [_number(str(tokens[:end]), 8) for end in ends]


def _number(text: str, size: int) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=size).digest(), "big")


def _told(row: int, ours: Seen, theirs: dict[str, Any]) -> list[str]:
    found = [
        f"request {row}: {name} by engine: ours {getattr(ours, name)}, Dynamo's {theirs[name]}"
        for name in ("prefill_tokens", "active_requests", "blocks")
        if getattr(ours, name) != theirs[name]
    ]
    if theirs["engine"] not in ours.cheapest:
        found.append(f"request {row}: ours is one of {ours.cheapest}, Dynamo's {theirs['engine']}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="an interpreter with ai-dynamo-runtime, pyzmq and msgpack")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given, num_differences = parser.parse_args(), 0
    for values, role in [
        *((values, "serve") for values in SETTINGS),
        ("", "decode"),
        ("active_request_weight=2", "decode"),
    ]:
        differences, num_tied = check_dynamo(given.python, values, role, num_requests=given.requests, seed=given.seed)
        num_differences += len(differences)
        print(
            f"dynamo-kv{values and ':'}{values} to engines that {role}, seed {given.seed}: {given.requests:,} choices "
            f"compared, {num_tied:,} between engines of equal cost; {len(differences)} differ"
        )
        print(*differences[:3], sep="\n", end="\n" if differences else "")
    return int(num_differences > 0)


if __name__ == "__main__":
    sys.exit(main())
