"""Random loads for a real engine at inference, with the small models that it serves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.cases.request_tables import TICK_S, case_table
from conformance.cases.scheduler_case import STEP_S, SchedulerCase
from conformance.cases.scheduler_cases import simulate
from kvcache.layout.kv_layout import KVGroup
from simulator.engines.vllm.engine import EngineConfig
from workloads.requests import NO_PREDECESSOR, OPEN_END, RequestTable

NUM_REQUESTS = 160
MIN_PREEMPTIONS = 40  # by our own scheduler
NUM_FAMILIES = 4  # of prompts that begin alike
BLOCK_SIZE = 32  # vLLM's CPU attention is made for its multiples
ATTENTIONS = ("full", "hybrid")  # hybrid: some layers attend to a sliding window, and have block tables of their own
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
    "vocab_size": 32000, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "hidden_act": "silu", "tie_word_embeddings": True, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EngineCase:
    """A model's `config.json` with the load that its engine gets."""

    model: dict[str, Any]
    scheduler: SchedulerCase

    def to_json(self) -> dict[str, Any]:
        """What the probe reads."""
        return self.scheduler.to_json() | {"model": self.model}


def engine_case(seed: int, attention: str = "full") -> EngineCase:
    """A load that runs for over a thousand steps in a pool too small for it; `attention` is one of ATTENTIONS.

    Asynchronous scheduling is off, since vLLM's CPU platform has none.
    """
    rng = np.random.default_rng(np.random.SeedSequence([seed]))
    while True:
        case = _drawn(rng, attention)
        steps = simulate(case.scheduler).steps
        if sum(len(step.preempted) for step in steps) >= MIN_PREEMPTIONS:
            return case


def _drawn(rng: np.random.Generator, attention: str) -> EngineCase:
    table = _table(rng)
    windows = _windows(rng, attention)
    engine = _engine(rng, table, tuple(KVGroup(window) for window in windows))
    return EngineCase(model=_model(windows), scheduler=SchedulerCase(engine=engine, table=table))


def _windows(rng: np.random.Generator, attention: str) -> list[int | None]:
    """The sliding window of each layer group, in the order of its first layer."""
    if attention == "full":
        return [None]
    assert attention == "hybrid", f"no attention '{attention}'"
    return [int(rng.choice([33, 64, 100]))] * int(rng.choice([1, 2, 5])) + [None]


def _model(windows: Sequence[int | None]) -> dict[str, Any]:
    """The `config.json` of a model that vLLM divides into these groups: as few layers as the groups, if hybrid."""
    if windows == [None]:
        return MODEL
    layer_types = ["full_attention" if window is None else "sliding_attention" for window in windows]
    return MODEL | {"num_hidden_layers": len(windows), "layer_types": layer_types, "sliding_window": windows[0]}


def _engine(rng: np.random.Generator, table: RequestTable, groups: tuple[KVGroup, ...]) -> EngineConfig:
    longest = int((table.prompt_tokens + table.output_tokens).max())
    max_model_len = longest + int(rng.integers(1, 20))
    if rng.random() < 0.25:  # some answers are cut off by it
        max_model_len = max(int(table.prompt_tokens.max()) + 1, longest - int(rng.integers(0, 12)))
    budget = int(rng.choice([64, 96, 256]))
    needed = sum(group.blocks_per_request(max_model_len, budget, BLOCK_SIZE) for group in groups)
    return EngineConfig(
        num_gpu_blocks=1 + needed + int(rng.integers(6, 11)) * (len(groups) + 1) // 2,
        max_model_len=max_model_len,
        max_num_seqs=int(rng.choice([8, 12, 32])),
        max_num_batched_tokens=budget,
        block_size=BLOCK_SIZE,
        async_scheduling=False,
        scheduling_policy="priority" if rng.random() < 0.3 else "fcfs",
        long_prefill_token_threshold=int(rng.choice([0, 0, 40])),
        watermark=float(rng.choice([0.0, 0.0, 0.05])),
        kv_groups=groups,
    )


def _table(rng: np.random.Generator) -> RequestTable:
    """Sessions over a few shared prefixes, in two waves with an idle engine between them.

    Only turns of one session have the same tail, and it begins within the prompt: to the same prompt a model gives
    the same answer, which would be content that two requests share unforeseen.
    """
    families = rng.integers(0, NUM_FAMILIES, NUM_REQUESTS)
    prompt = rng.integers(2, 240, NUM_REQUESTS)
    output = rng.integers(1, 140, NUM_REQUESTS)
    follows = np.full(NUM_REQUESTS, NO_PREDECESSOR, np.int64)
    tail = np.arange(NUM_FAMILIES, NUM_FAMILIES + NUM_REQUESTS, dtype=np.int64)
    shared = np.minimum(rng.integers(20, 180, NUM_FAMILIES)[families], prompt - 1)
    for row in range(1, NUM_REQUESTS):
        grown = int(prompt[row - 1] + output[row - 1] + rng.integers(1, 30))
        if rng.random() < 0.3 and grown < 400:
            follows[row], prompt[row] = row - 1, grown
            tail[row], families[row], shared[row] = tail[row - 1], families[row - 1], shared[row - 1]
    arrival_s = np.sort(rng.integers(0, 8 * NUM_REQUESTS, NUM_REQUESTS)) * TICK_S
    arrival_s[NUM_REQUESTS // 2 :] += 70 * NUM_REQUESTS * STEP_S  # longer than all answers together take
    return case_table(
        rng,
        arrival_s,
        follows,
        prompt=prompt,
        output=output,
        content=np.stack([families, tail], axis=1),
        ends=np.stack([shared, np.full(NUM_REQUESTS, OPEN_END)], axis=1),
    )
