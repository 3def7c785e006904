"""Our `prefixaware`, `roundrobin` and `session` beside production-stack's own routers, choice by choice.

    python -m conformance.components.production_stack --source FOLDER [--requests 10000] [--seed 0]

FOLDER is a checkout of github.com/vllm-project/production-stack. Its `routing_logic.py` and `hashtrie.py` run as they
are; web servers, logs and hashes are stood in for, and it draws from our random stream. `session` needs the package
uhashring, and is left out without it. Exit code 1 on any difference.
"""

import argparse
import asyncio
import importlib.util
import sys
from abc import ABCMeta
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np

from simulator.engines.vllm.engine import EngineConfig
from simulator.engines.vllm.speculation import draft_hash
from simulator.fleet.fleet import Fleet, Pool
from simulator.fleet.router import Draws, find_router
from simulator.fleet.routers.session import POINT, SESSION
from simulator.latency.step_time import constant_step_times
from simulator.simulation import Simulation
from workloads.requests import NO_PREDECESSOR, OPEN_END, RequestTable

NUM_ENGINES, CHUNK_TOKENS, SPANS = 8, 32, 3
OWN = {"vllm_router.prefix.hashtrie": "prefix/hashtrie.py", "vllm_router.routers": "routers/routing_logic.py"}
STOOD_IN = (
    "requests", "fastapi", "transformers", "vllm_router", "vllm_router.log", "vllm_router.prefix",
    "vllm_router.service_discovery", "vllm_router.stats", "vllm_router.stats.engine_stats",
    "vllm_router.stats.request_stats",
)  # fmt: skip
HAS_RINGS = importlib.util.find_spec("uhashring") is not None


@dataclass(kw_only=True)
class RouterComparison:
    """The engines chosen, request by request; `longer`: for how many a prefix was known."""

    ours: list[int]
    theirs: list[int]
    longer: int = 0

    @property
    def differences(self) -> list[int]:
        """Requests that went elsewhere."""
        return [row for row, (one, other) in enumerate(zip(self.ours, self.theirs, strict=True)) if one != other]


def check_prefixaware(source: Path, *, num_requests: int, seed: int) -> RouterComparison:
    """Let both routers route the same random prompts."""
    table = random_prompts(num_requests, seed)
    ours = our_choices(table, seed)
    theirs, longer = asyncio.run(_their_choices(source, table, seed))
    return RouterComparison(ours=ours, theirs=theirs, longer=longer)


def random_prompts(num_requests: int, seed: int) -> RequestTable:
    """Prompts of whole chunks that share beginnings of a few lengths with some of those before."""
    rng = np.random.default_rng(seed)
    families = np.stack([rng.integers(0, count, num_requests) for count in (6, 40)], axis=1)
    contents = np.stack(
        [
            families[:, 0],
            100 + 100 * families[:, 0] + families[:, 1],
            10_000 + rng.integers(0, num_requests, num_requests),
        ],
        axis=1,
    )
    chunks = np.stack([rng.integers(1, 6, 6)[families[:, 0]], rng.integers(1, 5, 40)[families[:, 1]]], axis=1)
    ends = CHUNK_TOKENS * np.cumsum(chunks, axis=1)
    prompt = CHUNK_TOKENS * rng.integers(1, 14, num_requests)
    return RequestTable(
        arrival_s=np.cumsum(rng.exponential(0.05, num_requests)),
        follows=np.full(num_requests, NO_PREDECESSOR, np.int64),
        think_s=np.zeros(num_requests),
        prompt_tokens=prompt.astype(np.int32),
        output_tokens=rng.integers(1, 20, num_requests).astype(np.int32),
        priority=np.zeros(num_requests, np.int32),
        span_start=SPANS * np.arange(num_requests),
        span_count=np.full(num_requests, SPANS, np.int32),
        span_content=contents.ravel(),
        span_end=np.column_stack([ends, np.full(num_requests, OPEN_END)]).astype(np.int32).ravel(),
    )


def our_choices(table: RequestTable, seed: int) -> list[int]:
    """The engine of each request, in a fleet that serves them."""
    engine = EngineConfig(num_gpu_blocks=4000, max_model_len=1024, max_num_seqs=64, max_num_batched_tokens=2048)
    times = constant_step_times(0.01, max_num_batched_tokens=2048, max_num_seqs=64)
    pools = (Pool(engine=engine, step_times=times, num_servers=NUM_ENGINES),)
    simulation = Simulation(Fleet(pools=pools, router="prefixaware"), table, seed=seed)
    simulation.run()
    chosen: list[int] = simulation.requests["replica"].tolist()
    return chosen


def prompt_of(table: RequestTable, row: int) -> str:
    """Its text, 4 characters a token, which depend on the content and the place."""
    words, begin = [], 0
    length = int(table.prompt_tokens[row])
    for span in range(SPANS * row, SPANS * (row + 1)):
        end = min(int(table.span_end[span]), length)
        content = int(table.span_content[span])
        words += [blake2b(f"{content}.{place}".encode(), digest_size=2).hexdigest() for place in range(begin, end)]
        begin = max(begin, end)
    return "".join(words)


async def _their_choices(source: Path, table: RequestTable, seed: int) -> tuple[list[int], int]:
    logic = _load(source)
    draws = Draws(seed % 2**32)
    logic.random = SimpleNamespace(choice=lambda urls: draws.of(sorted(urls, key=int)))
    router = logic.PrefixAwareRouter()
    endpoints = [SimpleNamespace(url=str(engine)) for engine in range(NUM_ENGINES)]
    chosen, longer = [], 0
    for row in range(table.num_requests):
        prompt = prompt_of(table, row)
        longer += (await router.hashtrie.longest_prefix_match(prompt, {item.url for item in endpoints}))[0] > 0
        chosen.append(int(await router.route_request(endpoints, {}, {}, None, {"prompt": prompt})))
    return chosen, longer


# -- roundrobin and session


def check_roundrobin(source: Path, *, num_requests: int, seed: int) -> RouterComparison:
    """Let both routers route to fleets of 1 to 16 engines, each as often."""
    logic, found = _load(source), RouterComparison(ours=[], theirs=[])
    for num_engines in range(1, 17):
        ours, theirs, engines = find_router("roundrobin").make(seed), logic.RoundRobinRouter(), range(num_engines)
        endpoints = [SimpleNamespace(url=f"{engine:02d}") for engine in engines]
        view: Any = SimpleNamespace(num_engines=num_engines, candidates=list(engines))
        for _ in range(num_requests // 16):
            found.ours.append(ours.choose(view))
            found.theirs.append(int(theirs.route_request(endpoints, {}, {}, None)))
    return found


def check_session(source: Path, *, num_requests: int, seed: int) -> RouterComparison:
    """Let both routers route random sessions, while engines come and go; the original's ring has our hashes."""
    return asyncio.run(_check_session(source, num_requests, np.random.default_rng(seed)))


async def _check_session(source: Path, num_requests: int, rng: np.random.Generator) -> RouterComparison:
    logic, found = _load(source), RouterComparison(ours=[], theirs=[])
    made = logic.HashRing
    logic.HashRing = lambda: made(hash_fn=_place_on_ring)
    ours, theirs = find_router("session").make(0), logic.SessionRouter(session_key="session")
    view: Any = SimpleNamespace(num_engines=NUM_ENGINES, candidates=list(range(NUM_ENGINES)))
    for _ in range(num_requests):
        if rng.random() < 0.1:
            some = rng.choice(NUM_ENGINES, rng.integers(1, NUM_ENGINES + 1), replace=False)
            view.candidates = sorted(some.tolist())
        view.session = int(rng.integers(0, num_requests // 4))
        endpoints = [SimpleNamespace(url=str(engine)) for engine in view.candidates]
        request = SimpleNamespace(headers={"session": f"session {view.session}"})
        found.ours.append(ours.choose(view))
        found.theirs.append(int(await theirs.route_request(endpoints, {}, {}, request, {})))
    return found


def _place_on_ring(name: str) -> int:
    """Of a session, or of an engine's point, which the ring calls ENGINE-POINT."""
    if name.startswith("session "):
        return draft_hash(int(name.removeprefix("session ")), SESSION)
    engine, point = name.split("-")
    return draft_hash(int(engine), POINT + int(point))


def _load(source: Path) -> Any:
    """production-stack's module of routers, with what it imports and does not need here stood in for."""
    for name in (*STOOD_IN, *(() if HAS_RINGS else ("uhashring",))):
        sys.modules[name] = MagicMock(spec=None, __path__=[])
    sys.modules["vllm_router.utils"] = ModuleType("vllm_router.utils")
    sys.modules["vllm_router.utils"].SingletonABCMeta = ABCMeta  # type: ignore[attr-defined]
    hashes = ModuleType("xxhash")
    hashes.xxh64 = lambda text: SimpleNamespace(  # type: ignore[attr-defined]
        intdigest=lambda: int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
    )
    sys.modules["xxhash"] = hashes
    found = None
    for name, path in OWN.items():
        spec = importlib.util.spec_from_file_location(name, source / "src" / "vllm_router" / path)
        assert spec is not None and spec.loader is not None, "a file of a name that ends in .py"
        found = importlib.util.module_from_spec(spec)
        sys.modules[name] = found
        spec.loader.exec_module(found)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True, help="a checkout of production-stack")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    checks = {"prefixaware": check_prefixaware, "roundrobin": check_roundrobin}
    if HAS_RINGS:
        checks["session"] = check_session
    num_differences = 0
    for router, check in checks.items():
        found = check(given.source, num_requests=given.requests, seed=given.seed)
        num_differences += len(found.differences)
        known = f", {found.longer:,} with a known prefix" if found.longer else ""
        print(
            f"{router}, seed {given.seed}: {len(found.ours):,} choices compared{known}; {len(found.differences)} differ"
        )
    return int(num_differences > 0)


if __name__ == "__main__":
    sys.exit(main())
