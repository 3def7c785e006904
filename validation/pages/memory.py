"""The tables of docs/reference/memory.md, from the memory model."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass

from kvcache.formats.quantization import find_quantization, quantization_names
from kvcache.layout.kv_content import KV_CACHE_DTYPES, kv_bytes_per_token_per_layer
from kvcache.memory import terms
from kvcache.models.catalog import find_gpu, load_model
from kvcache.releases import DEFAULT_RELEASE
from simulator.engines.memory import memory_budget
from simulator.engines.vllm.arguments import EngineArgs
from validation.markdown import table

GIB, MIB = 2**30, 2**20
KV_EXAMPLES = (("Llama-3.1-8B", "llama-3.1-8b", 1), ("Llama-3.1-8B at TP 16", "llama-3.1-8b", 16),
               ("DeepSeek-V3", "deepseek-v3", 1))  # fmt: skip
GPUS = ("l4", "a100-80gb", "h100-sxm", "b200-sxm")


def memory_tables() -> dict[str, Callable[[], str]]:
    """By the names of the page's markers."""
    return {
        "budget": _budget,
        "kv-formats": _kv_formats,
        "weight-formats": _weight_formats,
        "constants": _constants,
        "defaults": _defaults,
    }


def _budget() -> str:
    found = memory_budget(load_model("llama-3.1-8b"), find_gpu("h100-sxm"), vllm_version=DEFAULT_RELEASE)
    sizes = {
        "requested": found.requested_bytes,
        "weights": found.weights_bytes,
        "activation_peak": found.activation_peak_bytes,
        "non_torch": found.non_torch_bytes,
        "cuda_graphs": found.cuda_graph_bytes,
        "available": found.available_kv_bytes,
    }
    rows = [(f"`{name}`", f"{size / GIB:.2f} GiB") for name, size in sizes.items()]
    rows.append(("`num_gpu_blocks`", f"{found.num_gpu_blocks:,} of {found.block_size} tokens"))
    rows.append(("`max_concurrency`", f"{found.max_concurrency:.2f} requests of {found.max_model_len:,} tokens"))
    return table((f"Llama-3.1-8B, one H100, vLLM {DEFAULT_RELEASE}", ""), rows)


def _kv_formats() -> str:
    rows = [(f"`{dtype}`", *(_kv_bytes(model, tp, dtype) for _, model, tp in KV_EXAMPLES)) for dtype in KV_CACHE_DTYPES]
    return table(("format", *(title for title, _, _ in KV_EXAMPLES)), rows)


def _kv_bytes(model: str, tp: int, dtype: str) -> str:
    try:
        return f"{kv_bytes_per_token_per_layer(load_model(model), tp, dtype):,}"
    except ValueError:  # not for that kind of attention
        return "–"


def _weight_formats() -> str:
    schemes = [find_quantization(name) for name in quantization_names()]
    rows = [
        (f"`{scheme.name}`", f"{scheme.bits_per_weight:.4g}", str(scheme.group_size or "–"), scheme.source)
        for scheme in sorted(schemes, key=lambda scheme: (scheme.bits_per_weight, scheme.name))
    ]
    return table(("format", "bits per weight, scales included", "group", "source"), rows)


def _constants() -> str:
    rows = []
    for name, value in _named_constants():
        if isinstance(value, Mapping):
            rows += [(f"`{name}`, ranks: {ranks}", _sized(name, each)) for ranks, each in value.items()]
        elif isinstance(value, int | float):
            rows.append((f"`{name}`", _sized(name, value)))
    return table(("constant", "value"), rows)


def _named_constants() -> Iterator[tuple[str, object]]:
    """Numbers of kvcache/memory/terms.py, whether they stand alone or in a record of fitted ones."""
    for name, value in vars(terms).items():
        if not name.isupper() or name == "GIB" or isinstance(value, type):
            continue
        if is_dataclass(value):
            yield from ((field.name, getattr(value, field.name)) for field in fields(value))
        else:
            yield name.lower(), value


def _sized(name: str, value: float) -> str:
    if "bytes" not in name or value < 2**15:
        return f"{value:.4g}"
    return f"{value / GIB:.4g} GiB" if value >= 2**25 else f"{value / MIB:.4g} MiB"


def _defaults() -> str:
    rows = []
    for name in GPUS:
        gpu = find_gpu(name)
        found = EngineArgs().filled(load_model("llama-3.1-8b"), gpu)
        limits = f"{found.max_num_batched_tokens:,}", f"{found.max_num_seqs:,}", f"{found.gpu_memory_utilization:.2f}"
        rows.append((f"{name}, {gpu.memory_bytes / GIB:.1f} GiB", *limits))
    return table(("GPU", "`max_num_batched_tokens`", "`max_num_seqs`", "`gpu_memory_utilization`"), rows)
