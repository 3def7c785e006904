"""The pools of SSM states beside those that SGLang's own code sizes."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from conformance.components.sglang_memory import Differences, differences, is_simulated, text_config
from conformance.probing import Record
from kvcache.memory.state_pools import EXTRA_BUFFER, NO_BUFFER, default_strategy, state_pool
from kvcache.models.catalog import load_model, model_names
from kvcache.shape.architecture import Architecture, with_state_dtype
from simulator.engines.sglang.arguments import SGLangArgs
from simulator.engines.vllm.speculation import Speculation

GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class StatesCase:
    """A model under arguments, with what is left for its states and KV cache on each GPU."""

    name: str
    model: str
    args: SGLangArgs
    available_bytes: int

    @property
    def architecture(self) -> Architecture:
        return with_state_dtype(load_model(self.model), self.args.mamba_ssm_dtype)

    def to_json(self) -> Record:
        """What the probe reads."""
        names = (
            "mamba_full_memory_ratio", "max_mamba_cache_size", "max_running_requests", "disable_radix_cache",
            "disable_overlap_schedule", "mamba_radix_cache_strategy",
        )  # fmt: skip
        return {
            **{name: getattr(self.args, name) for name in names},
            "name": self.name, "model_type": self.architecture.model_type, "config": _config(self.model),
            "tp_size": self.args.attention_ranks, "attn_dp_size": self.args.attn_dp_size,
            "available_bytes": self.available_bytes,
            "speculative_algorithm": None if self.args.speculation is None else "EAGLE",
            "speculative_num_draft_tokens": None if self.args.speculation is None else self.args.decode_width,
        }  # fmt: skip

    def ours(self) -> Record:
        """The same as the probe says it."""
        arch = self.architecture
        pool = state_pool(arch, self.args, self.args.attention_ranks)
        assert pool is not None
        slots = pool.slots(self.available_bytes)
        if slots <= 0:
            return {"refused": True}
        return {
            "slots": slots, "left": pool.left(self.available_bytes), "per_request": pool.per_request,
            "kernel_chunk": pool.kernel_chunk,
            "can_track": default_strategy(arch, has_overlap=True, page_size=1) == EXTRA_BUFFER,
        }  # fmt: skip


def _config(model: str) -> Record:
    """Published configs of Nemotron-H say a chunk size; some of the catalog leave out what no weight depends on."""
    found = text_config(model)
    return {"chunk_size": 128} | found if load_model(model).model_type == "nemotron_h" else found


def stateful_models() -> list[str]:
    """Of the catalog, those whose states are simulated under SGLang."""
    args = SGLangArgs(mem_fraction_static=0.9, max_running_requests=1)
    models = {name: load_model(name) for name in model_names()}
    return [name for name, arch in models.items() if arch.state_space is not None and is_simulated(arch, "b300", args)]


def random_states_cases(seed: int, count: int) -> Iterator[StatesCase]:
    """Cases decided by the seed alone; models take turns."""
    rng, models = np.random.default_rng(seed), stateful_models()
    for number in range(count):
        arch = load_model(models[number % len(models)])
        assert arch.state_space is not None
        heads = arch.state_space.num_heads or arch.num_attention_heads
        groups = arch.state_space.num_key_heads or 1
        sizes = [size for size in (1, 2, 4, 8) if heads % size == 0 and (groups % size == 0 or groups == 1)]
        ranks, attention_groups = int(rng.choice(sizes)), int(rng.choice([1, 1, 2, 8]))
        given: dict[str, Any] = {
            "tensor_parallel_size": ranks * attention_groups,
            "attn_dp_size": attention_groups,
            "mamba_full_memory_ratio": float(rng.choice([0.9, 0.9, 0.1, 2.0, round(float(rng.random()), 3) or 0.5])),
            "max_running_requests": int(rng.choice([1, 48, 256])),
            "max_mamba_cache_size": int(rng.integers(1, 2000)) if rng.random() < 0.2 else None,
            "disable_radix_cache": bool(rng.random() < 0.15),
            "disable_overlap_schedule": bool(rng.random() < 0.3),
        }
        tracks = default_strategy(arch, has_overlap=True, page_size=1) == EXTRA_BUFFER and rng.random() < 0.8
        given["mamba_radix_cache_strategy"] = EXTRA_BUFFER if tracks else NO_BUFFER
        if rng.random() < 0.4:
            given["speculation"] = Speculation(
                method="eagle", num_speculative_tokens=int(rng.integers(1, 8)), acceptance_rate=0.5
            )
        yield StatesCase(
            name=str(number),
            model=models[number % len(models)],
            args=SGLangArgs(**given),
            available_bytes=int(rng.integers(2**20, 90 * GIB) if rng.random() < 0.8 else rng.integers(2**20, 2**30)),
        )


def check_sglang_states(python: Path, *, num_cases: int, seed: int) -> Differences:
    """Cases that differ, by name: our pools and SGLang's."""
    return differences(python, "sglang_states_probe", list(random_states_cases(seed, num_cases)))
