"""Random requests for laying our scheduler beside vLLM's: when they arrive, what they share, which are cancelled."""

import numpy as np
from numpy.typing import NDArray

from workloads.requests import NO_PREDECESSOR, OPEN_END, RequestTable, Waits

TICK_S = 2.0**-8  # of arrivals, think times and time-outs


def random_table(rng: np.random.Generator, *, num_requests: int, block_size: int) -> RequestTable:
    """Open arrivals or sessions of growing context, over a few shared prefixes of any length."""
    families = rng.integers(0, 4, num_requests)
    prompt = rng.integers(1, int(rng.choice([40, 120, 400])), num_requests)
    aligned = rng.random(num_requests) < 0.25
    prompt = np.where(aligned, np.maximum(prompt // block_size, 1) * block_size, prompt)
    output = rng.integers(1, int(rng.choice([6, 30, 80])), num_requests)
    follows = np.full(num_requests, NO_PREDECESSOR, np.int64)
    content = np.arange(10, 10 + num_requests, dtype=np.int64)
    if rng.random() < 0.5:
        for row in range(1, num_requests):
            grown = int(prompt[row - 1] + output[row - 1] + rng.integers(1, 30))
            if rng.random() < 0.7 and grown < 600:
                follows[row], prompt[row] = row - 1, grown
                content[row], families[row] = content[row - 1], families[row - 1]
    if rng.random() < 0.3:  # duplicates: the same prompt twice, at once or later
        twin = rng.integers(0, num_requests, num_requests)
        for copy in np.flatnonzero((rng.random(num_requests) < 0.3) & (follows < 0)):
            if follows[twin[copy]] < 0:
                for column in (families, content, prompt):
                    column[copy] = column[twin[copy]]
    spacing = int(rng.choice([0, 1, 8, 40]))
    arrival_s = rng.integers(0, 1 + spacing * num_requests, num_requests) * TICK_S
    ends = np.stack([rng.integers(1, 200, 4)[families], np.full(num_requests, OPEN_END)], axis=1)
    return case_table(
        rng, arrival_s, follows, prompt=prompt, output=output, content=np.stack([families, content], axis=1), ends=ends
    )


def case_table(
    rng: np.random.Generator,
    arrival_s: NDArray[np.floating],
    follows: NDArray[np.int64],
    *,
    prompt: NDArray[np.int64],
    output: NDArray[np.int64],
    content: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> RequestTable:
    """Requests of two spans each, `content` and `ends` [requests, 2], with random think times and priorities."""
    count = len(follows)
    timed = follows == NO_PREDECESSOR
    return RequestTable(
        arrival_s=np.where(timed, arrival_s, np.nan),
        follows=follows,
        think_s=np.where(timed, 0.0, rng.integers(0, 60, count) * TICK_S),
        prompt_tokens=prompt.astype(np.int32),
        output_tokens=output.astype(np.int32),
        priority=rng.integers(0, 3, count).astype(np.int32),
        span_start=2 * np.arange(count, dtype=np.int64),
        span_count=np.full(count, 2, np.int32),
        span_content=content.ravel(),
        span_end=ends.astype(np.int32).ravel(),
    )


def cancellations(rng: np.random.Generator, table: RequestTable) -> Waits:
    """Time-outs of some clients; their sessions go on with the next turn."""
    count = table.num_requests
    longest = int(rng.choice([8, 60, 400]))  # ticks
    timeout_s = np.where(rng.random(count) < rng.choice([0.2, 0.6]), rng.integers(1, longest, count) * TICK_S, np.inf)
    resumes = np.full(count, -1, np.int32)
    turns = np.flatnonzero(table.follows >= 0)
    resumes[table.follows[turns]] = turns
    return Waits(np.full(count, np.inf), timeout_s, np.zeros((0, count)), resumes)
