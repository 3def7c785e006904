"""What public vLLM servers logged of their memory, each beside its prediction or the reason for none."""

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from files.names import UnknownNameError
from kvcache.gpus.gpu import GPU
from kvcache.memory.budget import MemoryBudget
from kvcache.models.catalog import find_gpu, load_model
from kvcache.parallelism import Parallelism
from kvcache.shape.architecture import Architecture
from simulator.engines.memory import memory_budget

GIB = 2**30
UNDATED_BUILDS = "0.19.0"  # taken for builds between releases, all of spring 2026
_GPUS = {
    "H100-80GB-SXM": "h100-sxm", "H100-80GB": "h100-sxm", "A100-80GB": "a100-80gb", "RTX A6000 48GB": "rtx-a6000",
    "RTX 3090 24GB": "rtx-3090", "RTX 5090 32GB": "rtx-5090", "GH200 96GB": "gh200",
}  # fmt: skip
# Endings of checkpoint names, with the format here; those that others quantized. Not "-awq-4bit": groups of 32 or 128
# are not told apart, which decides a tenth of the weights.
_FORMATS = {
    "-quantized.w8a8": "int8", "-quantized.w4a16": "w4a16", "-fp8-dynamic": "fp8", "-gptq": "gptq",
    "-super-marlin": "gptq", "-nvfp4": "nvfp4", "-fp8": "fp8",
}  # fmt: skip
_SAME_SHAPE = {"mixtral-8x7b-v0.1": "mixtral-8x7b-instruct-v0.1", "llama-2-7b": "llama-2-7b-hf"}
# Totals of GPUs that a catalog may lack, in GiB; PyTorch's out-of-memory messages.
_TOTAL_GIB = {"rtx-a6000": 47.54}


@dataclass(frozen=True, kw_only=True)
class LoggedServer:
    """One server. Memory is per GPU in GiB; None where it was not recorded."""

    row: Mapping[str, str]
    architecture: Architecture
    gpu: GPU
    budget: MemoryBudget
    assumed: tuple[str, ...]  # what the row does not say
    weights_gib: float | None
    activation_gib: float | None
    non_torch_gib: float | None
    available_gib: float | None
    kv_tokens: float | None

    @property
    def model(self) -> str:
        return self.budget.model

    @property
    def shape(self) -> str:
        """What models share that differ in their training or weight format alone."""
        arch = self.architecture
        return f"{arch.num_hidden_layers} layers, hidden size {arch.hidden_size}, vocabulary {arch.vocab_size}"

    @property
    def vllm_version(self) -> str:
        return self.budget.vllm_version

    @property
    def parallelism(self) -> Parallelism:
        return Parallelism(
            tensor_parallel_size=self.budget.tensor_parallel_size,
            pipeline_parallel_size=self.budget.pipeline_parallel_size,
        )

    @property
    def eight_bit(self) -> bool:
        return self.budget.gemm_dtype in ("int8", "fp8")

    @property
    def source(self) -> str:
        """The group that would be left out together."""
        if self.row["confidence"] == "full log":
            return "full logs"
        if "version-sweep" in self.row["source"]:
            return "version sweep"
        return {
            "run json (log-parsed)": "parsed logs",
            "server-traced": "traced servers",
            "published table": "published table",
        }.get(self.row["confidence"], "issue threads")

    @property
    def is_judged(self) -> bool:
        """Whether the row says how large the pool was."""
        return self.kv_tokens is not None or self.available_gib is not None

    def kv_ratio(self, available_bytes: float) -> float:
        """KV tokens, were so many bytes left for them, over those logged; of the bytes where no tokens are recorded."""
        b = self.budget
        if self.kv_tokens is None:
            assert self.available_gib is not None, "a row without a pool is not judged"
            return available_bytes / (self.available_gib * GIB)
        blocks, predicted = (self._num_blocks(size) for size in (available_bytes, b.available_kv_bytes))
        return b.kv_cache_tokens * blocks / max(1, predicted) / self.kv_tokens

    def _num_blocks(self, available_bytes: float) -> int:
        """Blocks, were so many bytes left for them on every pipeline stage."""
        return self.budget.layout.num_blocks([int(available_bytes)] * self.budget.pipeline_parallel_size)


def read_logged_servers(data: Path) -> tuple[list[LoggedServer], list[tuple[Mapping[str, str], str]]]:
    """Servers of `measured/kv_capacity.csv` with their predictions, and rows without one with the reason."""
    found: list[LoggedServer] = []
    left_out: list[tuple[Mapping[str, str], str]] = []
    settings = _experiment_settings(data)
    for row in _read(data / "measured" / "kv_capacity.csv"):
        try:
            server = _server(row, settings.get((row["model"], row["tp"]), {}))
        except (UnknownNameError, ValueError) as error:
            left_out.append((row, str(error)))
            continue
        found.append(server)
    return found, left_out


def _read(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        yield from csv.DictReader(file)


def _experiment_settings(data: Path) -> dict[tuple[str, str], dict[str, int]]:
    """Of the traced servers: their experiments say what the capacity table leaves out."""
    path = data / "measured" / "h100_experiments.csv"
    if not path.is_file():
        return {}
    return {(row["model"], row["tp"]): {"max_num_seqs": int(row["max_num_seqs"])} for row in _read(path)}


def _server(row: dict[str, str], more: Mapping[str, int]) -> LoggedServer:
    assumed: list[str] = []
    gpu = _gpu(row)
    version, settings = _version(row, assumed), _settings(row, assumed)
    if row["confidence"] == "server-traced":
        settings |= more
    architecture, quantization = _model(row)
    budget = memory_budget(architecture, gpu, quantization=quantization, vllm_version=version, **settings)
    return LoggedServer(
        row=row,
        architecture=architecture,
        gpu=gpu,
        budget=budget,
        assumed=tuple(assumed),
        weights_gib=_number(row["weights_gib"]),
        activation_gib=_number(row["activation_peak_gib"]),
        non_torch_gib=_number(row["non_torch_gib"]),
        available_gib=_number(row["available_kv_gib"]),
        kv_tokens=_number(row["kv_tokens"]),
    )


def _gpu(row: Mapping[str, str]) -> GPU:
    if row["gpu"] not in _GPUS:
        raise ValueError(f"the GPU is not recorded ({row['gpu']})")
    name = _GPUS[row["gpu"]]
    try:
        gpu = find_gpu(name)
    except UnknownNameError:
        if name not in _TOTAL_GIB:
            raise
        like = find_gpu("rtx-4090")  # only its memory, name, family matter here
        gpu = replace(like, name=name, family="ampere", memory_bytes=round(_TOTAL_GIB[name] * GIB))
    total = _number(row["gpu_total_gib"])
    return gpu if total is None else replace(gpu, memory_bytes=round(total * GIB))


def _version(row: Mapping[str, str], assumed: list[str]) -> str:
    match = re.search(r"[0-9]+\.[0-9]+(?:\.[0-9]+)?", row["vllm_version"].split("(")[0])
    if row["vllm_version"] == "n/s":
        raise ValueError("the release is not stated")
    if match is None:
        assumed.append(f"vLLM {UNDATED_BUILDS} for {row['vllm_version']!r}")
        return UNDATED_BUILDS
    if match[0] != row["vllm_version"]:
        assumed.append(f"vLLM {match[0]} for {row['vllm_version']!r}")
    return match[0]


def _settings(row: Mapping[str, str], assumed: list[str]) -> dict[str, Any]:
    utilization, length = _number(row["gpu_memory_utilization"]), _number(row["max_model_len"])
    tokens = _number(row["max_num_batched_tokens"])
    if utilization is None:
        assumed.append("the release's default utilization")
    if length is None:
        assumed.append("the model's own length limit")
    if tokens is None:
        assumed.append("the release's default token budget with its number of sequences")
    return {
        "tensor_parallel_size": int(row["tp"]),
        "pipeline_parallel_size": int(row["pp"]),
        "data_parallel_size": int(row["dp"]),
        "gpu_memory_utilization": utilization,
        "max_model_len": None if length is None else int(length),
        "max_num_batched_tokens": None if tokens is None else int(tokens),
        "kv_cache_dtype": row["kv_cache_dtype"],
        "enforce_eager": row["enforce_eager"] == "True",
    }


def _model(row: Mapping[str, str]) -> tuple[Architecture, str | None]:
    name = row["model"].split("/")[-1].lower()
    names = (name, name.replace("meta-llama", "llama"))
    ending = next((end for end in _FORMATS if name.endswith(end)), "")
    for candidate, quantization in [(each, None) for each in names] + [
        (each.removesuffix(ending), _FORMATS.get(ending)) for each in names
    ]:
        try:
            return load_model(_SAME_SHAPE.get(candidate, candidate)), quantization
        except UnknownNameError:
            continue
    raise ValueError(f"no model {row['model']!r} in the catalog, nor in a format that its name tells")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
