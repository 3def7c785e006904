"""Random sequences of what requests do with chunks of KV in host memory."""

from typing import Any

import numpy as np

from simulator.engines.vllm.connectors.host_cache import EVICTION_POLICIES

Operation = dict[str, Any]


def random_eviction_case(seed: int, number: int) -> dict[str, Any]:
    """Case `number` of a seed: requests load what is there, offer their chunks piece by piece, and end.

    Several are under way at once, some share the beginnings of their prompts, and copies take a while.
    """
    rng = np.random.default_rng(np.random.SeedSequence([seed, number]))
    shared, longest = int(rng.integers(0, 12)), int(rng.choice([3, 8, 20]))
    asked = {
        request: (int(rng.integers(0, 4)), int(rng.integers(1, longest + 1))) for request in range(rng.integers(10, 60))
    }
    operations: list[Operation] = []
    under_way: dict[int, int] = {}  # requests, with the next chunk to offer
    coming = list(asked)
    while coming or under_way:
        kind = rng.choice(["new", "offer", "offer", "copied", "loaded", "end"])
        if kind in ("copied", "loaded"):
            operations.append({"do": str(kind)})
        elif kind == "new" and coming:
            request = coming.pop(0)
            under_way[request] = 0
            operations.append({"do": "load", "request": request, "chunks": _chunks(request, asked, shared, 0)})
        elif under_way:
            request = int(rng.choice(list(under_way)))
            if kind == "end":
                del under_way[request]
                operations.append({"do": "end", "request": request})
            else:
                chunks = _chunks(request, asked, shared, under_way[request])[: int(rng.integers(1, 6))]
                operations.append({"do": "offer", "request": request, "chunks": chunks})
                under_way[request] += int(rng.integers(0, 2)) * len(chunks)  # or it is offered again
    return {
        "name": f"seed {seed}, case {number}",
        "num_chunks": int(rng.choice([2, 5, 12, 40])),
        "eviction_policy": EVICTION_POLICIES[number % len(EVICTION_POLICIES)],
        "operations": operations,
    }


def _chunks(request: int, asked: dict[int, tuple[int, int]], shared: int, first: int) -> list[tuple[int, int, int]]:
    """Content, index and group of a request's chunks from one on; the first ones are those of its family."""
    family, count = asked[request]
    return [(family if index < shared else 100 + request, index, 0) for index in range(first, count)]
