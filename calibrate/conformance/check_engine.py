"""Our schedule laid beside that of a real engine at inference, step by step."""

import json
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.conformance.cases.scheduler_cases import STEP_S, TICK_S, SchedulerCase
from calibrate.conformance.our_steps import core_steps, readable_steps
from calibrate.conformance.step_records import Difference, Record, first_difference, num_prefix_hits, probe_records
from kvcache.layout.kv_layout import KVGroup
from simulator.engines.vllm.arguments import default_retention_interval
from simulator.engines.vllm.engine import EngineConfig, with_release_rules
from workloads.requests import NO_PREDECESSOR, OPEN_END, RequestTable

PROBE = Path(__file__).parent / "probes" / "engine_probe.py"
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


@dataclass(kw_only=True)
class EngineComparison:
    """What was compared, with the first difference if there is one."""

    seed: int
    attention: str
    vllm_version: str = ""
    settings: dict[str, Any] = field(default_factory=dict)  # as the engine ran with them
    kv_cache_groups: list[dict[str, Any]] = field(default_factory=list)  # as vLLM formed them
    steps: int = 0
    preemptions: int = 0
    prefix_hits: int = 0
    finished: int = 0
    difference: Difference | None = None

    def to_json(self) -> dict[str, Any]:
        return self.__dict__ | {"difference": asdict(self.difference) if self.difference else None}


def check_engine(
    python: Path, *, seed: int, attention: str = "full", watch: Callable[[EngineComparison], None] = lambda _: None
) -> EngineComparison:
    """Run a seed's load through real inference on the CPU under `python`, and through the compiled core.

    `watch` is called once for each of the NUM_REQUESTS as it finishes.
    Raises ValueError where the engine cannot be run there, or runs with other settings than the case's.
    """
    case = engine_case(seed, attention)
    found = EngineComparison(seed=seed, attention=attention)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.json"
        path.write_text(json.dumps(case.to_json()), encoding="utf-8")
        with closing(probe_records(python, PROBE, path, failure="vLLM's engine could not be run")) as lines:
            _take_start(found, case, next(lines, {}), python)
            theirs = []
            for record in lines:
                if "case" in record:
                    continue
                theirs.append(record)
                _count(found, record)
                for _ in record["finished"]:
                    watch(found)
    ours = _of_release(case, found.vllm_version)
    found.difference = first_difference(
        ours.engine, readable_steps(ours), theirs, of="readable scheduler"
    ) or first_difference(ours.engine, core_steps(ours), theirs, of="compiled core")
    return found


def engine_case(seed: int, attention: str = "full") -> EngineCase:
    """A load that runs for over a thousand steps in a pool too small for it; `attention` is one of ATTENTIONS.

    Asynchronous scheduling is off, since vLLM's CPU platform has none.
    """
    rng = np.random.default_rng(np.random.SeedSequence([seed]))
    while True:
        case = _drawn(rng, attention)
        steps = core_steps(case.scheduler)
        if sum(len(step["preempted"]) for step in steps) >= MIN_PREEMPTIONS:
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
    timed = follows == NO_PREDECESSOR
    arrival_s = np.sort(rng.integers(0, 8 * NUM_REQUESTS, NUM_REQUESTS)) * TICK_S
    arrival_s[NUM_REQUESTS // 2 :] += 70 * NUM_REQUESTS * STEP_S  # longer than all answers together take
    return RequestTable(
        arrival_s=np.where(timed, arrival_s, np.nan),
        follows=follows,
        think_s=np.where(timed, 0.0, rng.integers(0, 60, NUM_REQUESTS) * TICK_S),
        prompt_tokens=prompt.astype(np.int32),
        output_tokens=output.astype(np.int32),
        priority=rng.integers(0, 3, NUM_REQUESTS).astype(np.int32),
        span_start=2 * np.arange(NUM_REQUESTS, dtype=np.int64),
        span_count=np.full(NUM_REQUESTS, 2, np.int32),
        span_content=np.stack([families, tail], axis=1).ravel(),
        span_end=np.stack([shared, np.full(NUM_REQUESTS, OPEN_END)], axis=1).astype(np.int32).ravel(),
    )


def _take_start(found: EngineComparison, case: EngineCase, start: Record, python: Path) -> None:
    """Note what the engine is; ValueError unless it is the case's."""
    if "settings" not in start:
        raise ValueError(f"vLLM's engine could not be run by {python}: it said nothing")
    found.vllm_version, found.settings = start["vllm_version"], start["settings"]
    found.kv_cache_groups = start["kv_cache_groups"]
    wanted = case.scheduler.engine.__dict__
    others = [
        f"{name} is {value}, not {wanted[name]}" for name, value in found.settings.items() if value != wanted[name]
    ]
    formed = [group["sliding_window"] for group in found.kv_cache_groups]
    windows = [group.window for group in case.scheduler.engine.kv_groups]
    if formed != windows:
        others.append(f"its layer groups have the windows {formed}, not {windows}")
    if others:
        raise ValueError(f"the engine of vLLM {found.vllm_version} runs with settings of its own: {'; '.join(others)}")


def _of_release(case: EngineCase, vllm_version: str) -> SchedulerCase:
    engine = replace(
        with_release_rules(case.scheduler.engine, vllm_version),
        prefix_cache_retention_interval=default_retention_interval(vllm_version),
    )
    return replace(case.scheduler, engine=engine)


def _count(found: EngineComparison, record: Record) -> None:
    found.steps += 1
    found.preemptions += len(record["preempted"])
    found.prefix_hits += num_prefix_hits([record])
    found.finished += len(record["finished"])
