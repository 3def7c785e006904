"""Our defaults of SGLang's arguments beside those of SGLang's own code, on GPUs of every size."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from conformance.components.probes import FOLDER
from conformance.probing import Record, answers
from kvcache.gpus.gpu import GPU, find_gpu
from kvcache.memory.static_budget import default_running_requests
from kvcache.models.catalog import load_model
from kvcache.shape.architecture import Architecture
from simulator.engines.sglang.arguments import SGLangArgs
from simulator.engines.sglang.attention_groups import LESS_CAREFUL
from simulator.engines.sglang.defaults import NO_CHUNKS, prefill_graph_sizes

MIB = 2**20
MODELS = ("llama-3.1-8b", "deepseek-v2-lite")  # with heads, with latents
COMPARED = ("chunked_prefill_size", "cuda_graph_max_bs_decode", "mem_fraction_static")


@dataclass(frozen=True, kw_only=True)
class ArgumentsCase:
    """A GPU's memory, a model, arguments as a user gives them, and a KV pool."""

    name: str
    memory_mib: int
    model: str
    args: SGLangArgs
    kv_tokens: int
    context_length: int

    @property
    def architecture(self) -> Architecture:
        return load_model(self.model)

    @property
    def gpu(self) -> GPU:
        return replace(find_gpu("h100-sxm"), memory_bytes=self.memory_mib * MIB)

    def to_json(self) -> Record:
        """What the probe reads."""
        args: dict[str, Any] = {
            "chunked_prefill_size": self.args.chunked_prefill_size,
            "max_prefill_tokens": self.args.max_prefill_tokens,
            "max_total_tokens": self.args.max_total_tokens,
            "max_running_requests": self.args.max_running_requests,
            "cuda_graph_max_bs": self.args.cuda_graph_max_bs_decode,
            "no_graphs": self.args.disable_cuda_graph,
        }
        return {
            "name": self.name, "memory_mib": self.memory_mib, "tp_size": self.args.tensor_parallel_size,
            "attn_dp_size": self.args.attn_dp_size, "schedule_conservativeness": self.args.schedule_conservativeness,
            "is_mla": self.architecture.is_mla, "kv_tokens": self.kv_tokens, "context_length": self.context_length,
            "args": {name: value for name, value in args.items() if value is not None},
        }  # fmt: skip

    def ours(self) -> Record:
        """The same as the probe says it. Raises HeadcountError where nothing is left for the static share."""
        found = self.args.filled(self.architecture, self.gpu)
        asked, groups = self.args.requests_of_rank, self.args.attn_dp_size
        by_pool = default_running_requests(self.kv_tokens, self.context_length)
        longest = min(found.chunked_prefill_size, self.args.max_total_tokens or found.chunked_prefill_size)
        longest = min(longest, 8192) if self.architecture.is_mla else longest
        return {
            **{name: getattr(found, name) for name in COMPARED},
            "prefill_graphs": prefill_graph_sizes(longest),
            "chunk_of_rank": found.chunk_of_rank,
            "conservativeness_of_rank": self.args.schedule_conservativeness * (LESS_CAREFUL if groups > 1 else 1.0),
            "max_running_requests": by_pool if asked is None else max(min(asked, self.kv_tokens // 2), 1),
        }


def random_arguments_cases(seed: int, count: int) -> Iterator[ArgumentsCase]:
    """Cases decided by the seed alone; every threshold of memory is met on both sides."""
    rng = np.random.default_rng(seed)
    sizes = [gib * 1024 + side for gib in (24, 35, 48, 60, 80, 90, 141, 160, 180) for side in (-1, 0, 1)]
    for number in range(count):
        given: dict[str, Any] = {"tensor_parallel_size": int(rng.choice([1, 2, 4, 8]))}
        if rng.random() < 0.4:
            given["chunked_prefill_size"] = int(rng.choice([NO_CHUNKS, 1024, 2048, 4096, 6144]))
        if rng.random() < 0.3:
            given["cuda_graph_max_bs_decode"] = int(rng.choice([16, 128, 300, 512]))
        if rng.random() < 0.3:
            given["max_running_requests"] = int(rng.choice([8, 100, 400]))
        if rng.random() < 0.2:
            given["max_total_tokens"] = int(rng.choice([1000, 5000, 200_000]))
        if rng.random() < 0.15:
            given["disable_cuda_graph"] = True
        model = MODELS[number // len(sizes) % len(MODELS)]
        if load_model(model).is_moe and rng.random() < 0.6:
            given["attn_dp_size"] = int(
                rng.choice([size for size in (2, 4, 8) if size <= given["tensor_parallel_size"]] or [1])
            )
            given["schedule_conservativeness"] = float(rng.choice([0.5, 1.0]))
        yield ArgumentsCase(
            name=str(number),
            memory_mib=sizes[number % len(sizes)],
            model=model,
            args=SGLangArgs(**given),
            kv_tokens=int(rng.integers(4096, 4_000_000)),
            context_length=int(rng.choice([2048, 8192, 131_072])),
        )


def check_sglang_arguments(python: Path, *, num_cases: int, seed: int) -> dict[str, dict[str, tuple[Any, Any]]]:
    """Cases that differ, by name: what differs, ours and SGLang's."""
    cases = list(random_arguments_cases(seed, num_cases))
    found: dict[str, dict[str, tuple[Any, Any]]] = {}
    lines = [case.to_json() for case in cases]
    said = answers(python, "sglang_arguments_probe", lines, failure="SGLang's arguments failed", folder=FOLDER)
    for case, theirs in zip(cases, said, strict=True):
        try:
            ours = case.ours()
        except ValueError:  # SGLang goes on with a share below 0, and fails later
            ours = {"mem_fraction_static": min(theirs["mem_fraction_static"], 0)}
        differences = {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}
        if differences:
            found[case.name] = differences
    return found
