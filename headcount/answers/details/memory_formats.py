"""In which formats, and from which tensor-parallel size on, a model fits."""

from collections.abc import Sequence
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
    """Such as `fits: 16 bits from TP 4, fp8 from TP 2`."""
    sizes: dict[str, int] = {}
    for (quantization, _), size in fewest_gpus(candidates).items():
        if size is not None:
            sizes[quantization] = min(size, sizes.get(quantization, size))
    parts = [f"{format_name(name)} from TP {size}" for name, size in sizes.items()]
    return f"fits: {', '.join(parts)}" if parts else NOWHERE


def format_name(quantization: str) -> str:
    """As a table names a weight format."""
    return "16 bits" if quantization == "none" else quantization
