"""Our defaults of SGLang's arguments beside those of its own code: any model of the catalog, GPUs of every size."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from conformance.components.probes import FOLDER
from conformance.probing import Record, answers
from files.errors import HeadcountError
from kvcache.gpus.gpu import GPU, find_gpu
from kvcache.memory.static_budget import default_running_requests
from kvcache.models.catalog import load_model, model_files
from kvcache.shape.architecture import Architecture
from simulator.engines.sglang.arguments import DEEPEP_MODES, SGLangArgs
from simulator.engines.sglang.attention_groups import LESS_CAREFUL
from simulator.engines.sglang.defaults import NO_CHUNKS, has_prefill_graphs, prefill_graph_sizes
from simulator.engines.sglang.drafts import MOST_REQUESTS
from simulator.engines.vllm.speculation import Speculation

MIB = 2**20
GPUS = {"h100-sxm": (9, 0), "b200-sxm": (10, 0), "l40s": (8, 9), "a100-80gb": (8, 0), "rtx-pro-6000": (12, 0)}
SIZES_GIB = (24, 35, 48, 60, 80, 90, 141, 160, 180)  # a threshold of some default, or a usual size
SGLANG_S = {"tensor_parallel_size": "tp_size"}
ALIKE = (
    "page_size", "cuda_graph_max_bs_decode", "mem_fraction_static", "chunk_of_rank", "disable_overlap_schedule",
)  # fmt: skip
BACKENDS = ("triton", "flashinfer", "fa3", "trtllm_mha", "trtllm_mla", "flashmla", "fa4")
TREE = Speculation(method="eagle", num_speculative_tokens=3, acceptance_rate=0.5, topk=4, num_draft_tokens=8)
CHAIN = Speculation(method="eagle", num_speculative_tokens=3, acceptance_rate=0.5)


@dataclass(frozen=True, kw_only=True)
class ArgumentsCase:
    """A GPU with its memory, a model, arguments as a user gives them, and a KV pool."""

    name: str
    kind: str
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
        return replace(find_gpu(self.kind), memory_bytes=self.memory_mib * MIB)

    def to_json(self) -> Record:
        """What the probe reads."""
        asked = {name: value for name in _NAMES if (value := getattr(self.args, name)) is not None}
        args: dict[str, Any] = {SGLANG_S.get(name, name): value for name, value in asked.items()}
        if (drafts := self.args.speculation) is not None:
            args |= {
                "speculative_algorithm": "EAGLE", "speculative_num_steps": drafts.num_speculative_tokens,
                "speculative_eagle_topk": drafts.topk, "speculative_num_draft_tokens": drafts.width,
            }  # fmt: skip
        return {
            "name": self.name, "config": _configs()[self.model], "capability": GPUS[self.kind],
            "memory_mib": self.memory_mib, "args": args, "kv_tokens": self.kv_tokens,
            "context_length": self.context_length,
        }  # fmt: skip

    def ours(self) -> Record:
        """The same as the probe says it. Raises HeadcountError where it is not simulated."""
        found = self.args.filled(self.architecture, self.gpu)
        groups, most = self.args.attn_dp_size, self.args.max_running_requests
        most = MOST_REQUESTS if most is None and found.speculation is not None else most
        asked = None if most is None else max(1, most // groups)
        longest = min(found.chunked_prefill_size, self.args.max_total_tokens or found.chunked_prefill_size)
        longest = min(longest, 8192) if self.architecture.is_mla else longest
        own = {
            **{name: getattr(found, name) for name in ALIKE},
            "conservativeness_of_rank": self.args.schedule_conservativeness * (LESS_CAREFUL if groups > 1 else 1.0),
            "max_running_requests": default_running_requests(self.kv_tokens, self.context_length)
            if asked is None
            else max(min(asked, self.kv_tokens // 2), 1),
        }
        # Later than its default share of memory, SGLang cuts those of groups.
        if groups == 1 and has_prefill_graphs(self.args, self.architecture):
            own["prefill_graphs"] = prefill_graph_sizes(longest)
        if self.architecture.is_sparse and self.architecture.is_mla:
            own["kv_cache_dtype"] = found.kv_cache_dtype
        if self.architecture.state_space is not None and not self.args.disable_radix_cache:
            own["mamba_radix_cache_strategy"] = found.mamba_radix_cache_strategy
        return own


_NAMES = (
    "tensor_parallel_size", "attn_dp_size", "moe_a2a_backend", "deepep_mode", "moe_dense_tp_size",
    "schedule_conservativeness", "page_size", "kv_cache_dtype", "chunked_prefill_size", "cuda_graph_max_bs_decode",
    "max_running_requests", "max_total_tokens", "attention_backend", "disable_cuda_graph", "disable_radix_cache",
    "disable_overlap_schedule", "language_model_only",
)  # fmt: skip


@cache
def _configs() -> dict[str, Record]:
    entries = (json.loads(path.read_text(encoding="utf-8")) for path in model_files())
    return {entry["name"]: entry["config"] for entry in entries}


def random_arguments_cases(seed: int, count: int) -> Iterator[ArgumentsCase]:
    """Cases decided by the seed alone; models take turns, and every threshold of memory is met on both sides."""
    rng, models = np.random.default_rng(seed), list(_configs())
    rng.shuffle(models)
    sizes = [gib * 1024 + side for gib in SIZES_GIB for side in (-1, 0, 1)]
    for number in range(count):
        model = models[number % len(models)]
        yield ArgumentsCase(
            name=str(number),
            kind=str(rng.choice([*GPUS])),
            memory_mib=sizes[number % len(sizes)],
            model=model,
            args=SGLangArgs(**_random_args(rng, load_model(model))),
            kv_tokens=int(rng.integers(4096, 4_000_000)),
            context_length=int(rng.choice([2048, 8192, 131_072])),
        )


def _random_args(rng: np.random.Generator, model: Architecture) -> dict[str, Any]:
    heads = model.num_attention_heads
    given: dict[str, Any] = {
        "tensor_parallel_size": int(rng.choice([size for size in (1, 2, 4, 8) if heads % size == 0])),
        "language_model_only": bool(model.modalities and rng.random() < 0.3),
    }
    sometimes: tuple[tuple[float, str, tuple[Any, ...]], ...] = (
        (0.4, "chunked_prefill_size", (NO_CHUNKS, 1024, 2048, 4096, 6144)),
        (0.3, "cuda_graph_max_bs_decode", (16, 128, 300, 512)),
        (0.3, "max_running_requests", (8, 100, 400)),
        (0.2, "max_total_tokens", (1000, 5000, 200_000)),
        (0.15, "disable_cuda_graph", (True,)),
        (0.2, "page_size", (1, 16, 64, 128)),
        (0.1, "disable_radix_cache", (True,)),
        (0.1, "disable_overlap_schedule", (True,)),
        (0.3, "kv_cache_dtype", ("fp8_e4m3", "bf16")),
        (0.15, "speculation", (CHAIN, TREE)),
        (0.2, "attention_backend", BACKENDS),
    )
    for share, name, values in sometimes:
        if rng.random() < share:
            given[name] = values[rng.integers(len(values))]
    if model.is_moe and rng.random() < 0.4:
        groups = [size for size in (2, 4, 8) if size <= given["tensor_parallel_size"]] or [1]
        given["attn_dp_size"] = int(rng.choice(groups))
        given["schedule_conservativeness"] = float(rng.choice([0.5, 1.0]))
        if given["attn_dp_size"] > 1 and rng.random() < 0.3:
            given |= {"moe_a2a_backend": "deepep", "deepep_mode": DEEPEP_MODES[rng.integers(len(DEEPEP_MODES))]}
        if rng.random() < 0.3 and given["attn_dp_size"] == given["tensor_parallel_size"]:
            given["moe_dense_tp_size"] = 1
    return given


@dataclass(frozen=True, kw_only=True)
class ArgumentsComparison:
    """How many cases were compared; of what was not, why; and what differs, ours and SGLang's, by case."""

    compared: int
    left_out: dict[str, str]
    differences: dict[str, dict[str, tuple[Any, Any]]]


def check_sglang_arguments(python: Path, *, num_cases: int, seed: int) -> ArgumentsComparison:
    """Raises HeadcountError where SGLang's code could not be run."""
    cases = list(random_arguments_cases(seed, num_cases))
    left_out: dict[str, str] = {}
    found: dict[str, dict[str, tuple[Any, Any]]] = {}
    lines = [case.to_json() for case in cases]
    said = answers(python, "sglang_arguments_probe", lines, failure="SGLang's arguments failed", folder=FOLDER)
    for case, theirs in zip(cases, said, strict=True):
        name = f"{case.name} ({case.model} on {case.kind})"
        try:
            ours = case.ours()
        except HeadcountError as error:
            left_out[name] = str(error)
            continue
        unasked = theirs.get("refused", "") if case.args.attention_backend is not None else ""
        if why := theirs.get("unreadable", unasked):  # kernels that do not go with a model or a GPU are not looked for
            left_out[name] = why
            continue
        differences = {each: (ours[each], theirs.get(each)) for each in ours if ours[each] != theirs.get(each)}
        if differences:
            found[name] = {"refused": (None, theirs["refused"])} if "refused" in theirs else differences
    return ArgumentsComparison(compared=len(cases) - len(left_out), left_out=left_out, differences=found)
