"""A random case of a scheduler: engine settings with a load, as both sides read it."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from simulator.engines.vllm.adapter_use import adapters_of
from simulator.engines.vllm.engine import EngineConfig
from workloads.requests import RequestTable

SEED = 0  # of simulations
STEP_S = 2.0**-6  # a power of two, so that times add up exactly in any order
MAX_STEPS = 8_000  # of a case; without `scheduler_reserve_full_isl` two requests may preempt each other for ever
DERIVED = (
    "group_block_sizes",
    "cache_unit",
    "caches_states",
    "keeps_state_checkpoints",
)  # beside an engine's given settings


@dataclass(frozen=True, kw_only=True)
class SchedulerCase:
    """Engine settings with a load; every step takes STEP_S seconds."""

    engine: EngineConfig
    table: RequestTable
    has_latent_attention: bool = False  # vLLM's side has a latent's spec (MLA); its blocks are like any others
    context_ranks: int = 1  # over which vLLM's side splits each block's tokens

    def to_json(self) -> dict[str, Any]:
        """What the probe reads."""
        table, adapters = self.table, self.engine.adapters
        of = adapters_of(table, adapters, SEED).tolist() if adapters else [None] * table.num_requests
        requests = [
            {
                "arrival_s": None if math.isnan(table.arrival_s[row]) else float(table.arrival_s[row]),
                "follows": int(table.follows[row]),
                "think_s": float(table.think_s[row]),
                "prompt_tokens": int(table.prompt_tokens[row]),
                "output_tokens": int(table.output_tokens[row]),
                "priority": int(table.priority[row]),
                "spans": _spans(table, row),
                "timeout_s": _timeout_s(table, row),
                "adapter": of[row],
                "images": _images(table, row),
            }
            for row in range(table.num_requests)
        ]
        return {
            "engine": asdict(self.engine) | {name: getattr(self.engine, name) for name in DERIVED},
            "step_s": STEP_S,
            "max_steps": MAX_STEPS,
            "has_latent_attention": self.has_latent_attention,
            "context_ranks": self.context_ranks,
            "requests": requests,
        }


def _timeout_s(table: RequestTable, row: int) -> float | None:
    return None if table.waits is None or math.isinf(table.waits.timeout_s[row]) else float(table.waits.timeout_s[row])


def _images(table: RequestTable, row: int) -> list[tuple[int, int, int, int, int, int]]:
    """What is seen, then token positions: of the placeholder, of its embeddings; and how many these are."""
    found = table.images
    if found is None:
        return []
    start, num = int(found.start[row]), int(found.num[row])
    return [
        (content, offset, offset + shape.length, offset + shape.first, offset + shape.last, shape.embeddings)
        for content, offset, shape in (
            (int(found.content[place]), int(found.offset[place]), found.shapes[found.shape[place]])
            for place in range(start, start + num)
        )
    ]


def _spans(table: RequestTable, row: int) -> list[tuple[int, int]]:
    start, count = int(table.span_start[row]), int(table.span_count[row])
    spans = slice(start, start + count)
    return list(zip(table.span_content[spans].tolist(), table.span_end[spans].tolist(), strict=True))
