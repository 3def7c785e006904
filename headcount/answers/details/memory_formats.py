"""In which formats, and from which tensor-parallel size on, a model fits."""

from collections.abc import Mapping, Sequence
from typing import Final

from headcount.questions.deployments import Subject
from simulator.engines.vllm.comparison import (
    TENSOR_PARALLEL_SIZES,
    Candidate,
    compare,
    fewest_gpus,
    kv_cache_formats,
)

NOWHERE: Final = "it fits in none of these ways: take a larger GPU"


def candidates_of(asked: Subject) -> tuple[Candidate, ...]:
    """Every way to run the model that the question leaves open."""
    args = asked.args
    size, quantization = args.tensor_parallel_size, args.quantization
    return compare(
        asked.architecture,
        asked.gpu,
        args,
        tensor_parallel_sizes=TENSOR_PARALLEL_SIZES if size is None else (size,),
        quantizations=None if quantization is None else (quantization,),
        kv_cache_dtypes=kv_cache_formats(args) if args.kv_cache_dtype == "auto" else (args.kv_cache_dtype,),
    )


def fits_from(candidates: Sequence[Candidate]) -> str:
    """Such as `fits: 16 bits from TP 4, awq from TP 2 (from TP 1 with a KV cache in fp8)`."""
    fewest = fewest_gpus(candidates)
    found: dict[str, dict[str, int]] = {}
    for (quantization, kv_cache_dtype), size in fewest.items():
        if size is not None:
            found.setdefault(quantization, {})[kv_cache_dtype] = size
    usual = next((kv_cache_dtype for _, kv_cache_dtype in fewest), "auto")
    parts = [f"{format_name(name)} {_sizes_text(sizes, usual)}" for name, sizes in found.items()]
    return f"fits: {', '.join(parts)}" if parts else NOWHERE


def _sizes_text(sizes: Mapping[str, int], usual: str) -> str:
    """With the usual KV cache, and with another one where that takes fewer GPUs."""
    dtype = min(sizes, key=lambda each: (sizes[each], each != usual))
    other = f"from TP {sizes[dtype]} with a KV cache in {dtype}"
    if usual not in sizes:
        return other
    return f"from TP {sizes[usual]}" + (f" ({other})" if dtype != usual else "")


def format_name(quantization: str) -> str:
    """As a table names a weight format."""
    return "16 bits" if quantization == "none" else quantization
