"""The KV pools of models with sliding windows or sparse attention beside those that SGLang's own code sizes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from conformance.components.sglang_memory import Differences, differences, is_simulated, text_config
from conformance.probing import Record
from files.errors import HeadcountError
from kvcache.gpus.gpu import GPU, find_gpu
from kvcache.memory.static_budget import static_budget_of
from kvcache.memory.window_pools import window_pool
from kvcache.models.catalog import load_model, model_names
from kvcache.shape.architecture import Architecture
from simulator.engines.sglang.arguments import SGLangArgs
from simulator.engines.vllm.speculation import Speculation

GIB = 2**30
KV_DTYPES = {"auto": "bfloat16", "fp8_e4m3": "float8_e4m3fn"}


@dataclass(frozen=True, kw_only=True)
class PoolsCase:
    """A model under arguments, with what is left for its KV cache on each GPU."""

    name: str
    model: str
    args: SGLangArgs
    available_bytes: int

    @property
    def architecture(self) -> Architecture:
        return load_model(self.model)

    def to_json(self) -> Record:
        """What the probe reads."""
        args, arch = self.args, self.architecture
        names = ("page_size", "swa_full_tokens_ratio", "max_total_tokens", "disable_hybrid_swa_memory")
        return {
            **{name: getattr(args.filled(arch, find_gpu("h100-sxm")), name) for name in names},
            "name": self.name, "model_type": arch.model_type, "config": _config(self.model),
            "context_length": arch.max_position_embeddings, "tp_size": args.tensor_parallel_size,
            "kv_dtype": KV_DTYPES[args.kv_cache_dtype], "available_bytes": self.available_bytes,
            "is_mla": arch.is_mla,
            "draft_layers": 0 if args.speculation is None else 1,
        }  # fmt: skip

    def ours(self) -> Record:
        """The same as the probe says it: the budget of a GPU that leaves exactly so much."""
        arch, args = self.architecture, self.args
        filled = args.filled(arch, find_gpu("h100-sxm"))
        exact = self._gpu_that_leaves(replace(filled, max_total_tokens=None, disable_hybrid_swa_memory=True))
        pool = window_pool(arch, filled, filled.tensor_parallel_size, args.kv_cache_dtype)
        try:
            found = static_budget_of(arch, exact, filled)
        except HeadcountError:
            return {"refused": True}
        if found.kv_cache_tokens == 0:
            return {"refused": True}
        own = {} if pool is None else {"window": pool.window}
        return {
            "max_total_num_tokens": found.kv_cache_tokens, "window_kv_tokens": found.window_kv_tokens, **own
        }  # fmt: skip

    def _gpu_that_leaves(self, args: SGLangArgs) -> GPU:
        """A GPU of which exactly `available_bytes` are left."""
        gpu = replace(find_gpu("h100-sxm"), memory_bytes=2**42)
        while spare := static_budget_of(self.architecture, gpu, args).available_kv_bytes - self.available_bytes:
            gpu = replace(gpu, memory_bytes=gpu.memory_bytes - spare)
        return gpu


def _config(model: str) -> Record:
    """With the kinds of layers that a model's class adds."""
    windows = [layer.attention.window for layer in load_model(model).layers if layer.attention is not None]
    kinds = ["full_attention" if window is None else "sliding_attention" for window in windows]
    return {"layer_types": kinds} | text_config(model)


def unlike_models() -> list[str]:
    """Of the catalog, those with windows or sparse attention that are simulated under SGLang."""
    args = SGLangArgs(mem_fraction_static=0.5)
    models = {name: load_model(name) for name in model_names()}
    return [
        name
        for name, arch in models.items()
        if (arch.is_sparse or (arch.windows and min(arch.windows) < arch.max_position_embeddings))
        and is_simulated(arch, "h200-sxm", args)
    ]


def _splits(model: str) -> list[int]:
    arch = load_model(model)
    asked = {tp: SGLangArgs(tensor_parallel_size=tp, mem_fraction_static=0.5) for tp in (1, 2, 4, 8)}
    return [tp for tp, args in asked.items() if arch.num_attention_heads % tp == 0 and _starts(arch, args)]


def _starts(arch: Architecture, args: SGLangArgs) -> bool:
    try:
        args.filled(arch, find_gpu("h200-sxm"))
    except HeadcountError:
        return False
    return True


def random_pools_cases(seed: int, count: int) -> Iterator[PoolsCase]:
    """Cases decided by the seed alone; models take turns."""
    rng, models = np.random.default_rng(seed), unlike_models()
    for number in range(count):
        model = models[number % len(models)]
        page = int(rng.choice([1, 16, 64, 128]))
        given: dict[str, Any] = {
            "tensor_parallel_size": int(rng.choice(_splits(model))),
            "page_size": page,
            "swa_full_tokens_ratio": float(rng.choice([0.8, 0.8, 0.1, 0.5, 1.0, round(rng.random(), 3) or 0.5])),
            "kv_cache_dtype": str(rng.choice([*KV_DTYPES])),
            "mem_fraction_static": 0.999999,  # exact bytes are given
            "max_running_requests": 64,
        }
        if rng.random() < 0.2:
            given["max_total_tokens"] = int(rng.choice([300, 5_000, 200_000]))
        if rng.random() < 0.3:
            given["speculation"] = Speculation(method="eagle", num_speculative_tokens=2, acceptance_rate=0.5)
        yield PoolsCase(
            name=str(number),
            model=model,
            args=SGLangArgs(**given),
            available_bytes=int(rng.integers(2**20, 60 * GIB) if rng.random() < 0.8 else rng.integers(2**20, 2**28)),
        )


def check_sglang_pools(python: Path, *, num_cases: int, seed: int) -> Differences:
    """Cases that differ, by name: our pools and SGLang's."""
    return differences(python, "sglang_pools_probe", list(random_pools_cases(seed, num_cases)))
