"""Random cases for laying our scheduler beside vLLM's."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from simulator.engine import EngineConfig
from workloads.requests import NO_PREDECESSOR, OPEN_END, RequestTable

STEP_S = 2.0**-6  # a power of two, so that times add up exactly in any order
TICK_S = 2.0**-8
MAX_STEPS = 20_000  # of a case; without `scheduler_reserve_full_isl` two requests may preempt each other for ever


@dataclass(frozen=True, kw_only=True)
class SchedulerCase:
    """Engine settings with a load; every step takes STEP_S seconds."""

    engine: EngineConfig
    table: RequestTable

    def to_json(self) -> dict[str, Any]:
        """What the probe reads."""
        table = self.table
        requests = [
            {
                "arrival_s": None if math.isnan(table.arrival_s[row]) else float(table.arrival_s[row]),
                "follows": int(table.follows[row]),
                "think_s": float(table.think_s[row]),
                "prompt_tokens": int(table.prompt_tokens[row]),
                "output_tokens": int(table.output_tokens[row]),
                "priority": int(table.priority[row]),
                "spans": _spans(table, row),
            }
            for row in range(table.num_requests)
        ]
        return {"engine": asdict(self.engine), "step_s": STEP_S, "max_steps": MAX_STEPS, "requests": requests}


def _spans(table: RequestTable, row: int) -> list[tuple[int, int]]:
    start, count = int(table.span_start[row]), int(table.span_count[row])
    spans = slice(start, start + count)
    return list(zip(table.span_content[spans].tolist(), table.span_end[spans].tolist(), strict=True))


def random_case(seed: int, number: int) -> SchedulerCase:
    """Case `number` of a seed: any number of cases of one seed begins with the same ones."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, number]))
    block_size = int(rng.choice([8, 16, 32, 64, 128]))
    table = _table(rng, num_requests=int(rng.integers(4, 90)), block_size=block_size)
    return SchedulerCase(engine=_engine(rng, table, block_size), table=table)


def _engine(rng: np.random.Generator, table: RequestTable, block_size: int) -> EngineConfig:
    longest = int((table.prompt_tokens + table.output_tokens).max())
    max_model_len = longest + int(rng.integers(1, 20))
    if rng.random() < 0.15:  # some answers are cut off by it
        max_model_len = max(int(table.prompt_tokens.max()) + 1, longest - int(rng.integers(0, 12)))
    chunked = bool(rng.random() < 0.85)
    budget = int(rng.choice([16, 32, 64, 256, 2048]))
    needed = -(-(longest + 1) // block_size)
    pool = int(rng.choice([0, 1, 2, 4, 12, 60])) if rng.random() < 0.8 else 4000
    return EngineConfig(
        num_gpu_blocks=1 + needed + pool,
        max_model_len=max_model_len,
        max_num_seqs=min(int(rng.choice([1, 2, 5, 32, 256])), budget),  # vLLM refuses more sequences than tokens
        max_num_batched_tokens=budget if chunked else max(budget, max_model_len),
        block_size=block_size,
        enable_prefix_caching=bool(rng.random() < 0.7),
        async_scheduling=bool(rng.random() < 0.6),
        scheduling_policy="priority" if rng.random() < 0.3 else "fcfs",
        long_prefill_token_threshold=min(int(rng.choice([0, 0, 7, 40])), max_model_len),
        enable_chunked_prefill=chunked,
        scheduler_reserve_full_isl=bool(rng.random() < 0.75),
        watermark=float(rng.choice([0.0, 0.0, 0.02, 0.1])),
    )


def _table(rng: np.random.Generator, *, num_requests: int, block_size: int) -> RequestTable:
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
    timed = follows == NO_PREDECESSOR
    ends = np.stack([rng.integers(1, 200, 4)[families], np.full(num_requests, OPEN_END)], axis=1)
    return RequestTable(
        arrival_s=np.where(timed, arrival_s, np.nan),
        follows=follows,
        think_s=np.where(timed, 0.0, rng.integers(0, 60, num_requests) * TICK_S),
        prompt_tokens=prompt.astype(np.int32),
        output_tokens=output.astype(np.int32),
        priority=rng.integers(0, 3, num_requests).astype(np.int32),
        span_start=2 * np.arange(num_requests, dtype=np.int64),
        span_count=np.full(num_requests, 2, np.int32),
        span_content=np.stack([families, content], axis=1).ravel(),
        span_end=ends.astype(np.int32).ravel(),
    )
