"""One model's memory over tensor-parallel sizes, weight formats or KV-cache formats."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from files.errors import HeadcountError
from kvcache.formats.kv_cache_dtype import PER_TENSOR_FP8, kv_cache_dtype_of
from kvcache.formats.quantization import find_quantization
from kvcache.gpus.gpu import GPU
from kvcache.memory.budget import MemoryBudget
from kvcache.shape.architecture import Architecture
from simulator.engines.engines import VLLM, AnyArgs, engine_of, with_settings
from simulator.engines.memory import memory_budget, startable

TENSOR_PARALLEL_SIZES = (1, 2, 4, 8)
KV_CACHE_DTYPES = ("auto", "fp8")
_OF_SGLANG = ("auto", "fp8_e4m3")
OTHER_FORMATS = ("bf16", "fp8", "awq")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to run the model: its budget, or why vLLM refuses it."""

    tensor_parallel_size: int
    quantization: str | None  # None: the checkpoint's own
    kv_cache_dtype: str
    budget: MemoryBudget | None = None
    refusal: str | None = None

    @property
    def fits(self) -> bool:
        """Whether vLLM would start."""
        return self.budget is not None and self.budget.fits


def kv_cache_formats(args: AnyArgs) -> tuple[str, ...]:
    """The model's own, then 8 bits, under the engine's name."""
    return KV_CACHE_DTYPES if engine_of(args) == VLLM else _OF_SGLANG


def weight_formats(architecture: Architecture) -> tuple[str | None, ...]:
    """The checkpoint's own (None), then those of 16, 8, 4 bits that other checkpoints of the model may have."""
    own = find_quantization(architecture.native_quantization or "none")
    others = [name for name in OTHER_FORMATS if find_quantization(name).weight_bits != own.weight_bits]
    return (None, *others)


def compare(
    architecture: Architecture,
    gpu: GPU,
    args: AnyArgs | None = None,
    *,
    tensor_parallel_sizes: Sequence[int] = TENSOR_PARALLEL_SIZES,
    quantizations: Sequence[str | None] | None = None,
    kv_cache_dtypes: Sequence[str] = KV_CACHE_DTYPES,
    **settings: object,
) -> tuple[Candidate, ...]:
    """Every combination, with other arguments as given; by format, then KV format, then size.

    Raises `ValueError`, with the first reason, where vLLM refuses them all.
    """
    formats = weight_formats(architecture) if quantizations is None else quantizations
    found = []
    args = with_settings(args, settings)
    pairs = [
        (name, kv) for name in formats for kv in _unlike(architecture, gpu, name, kv_cache_dtypes, args.vllm_version)
    ]
    for (quantization, kv_cache_dtype), size in product(pairs, tensor_parallel_sizes):
        varied: dict[str, Any] = {
            "tensor_parallel_size": size,
            "quantization": quantization,
            "kv_cache_dtype": kv_cache_dtype,
        }
        try:
            asked = startable(architecture, gpu, with_settings(args, varied))
            found.append(Candidate(**varied, budget=memory_budget(architecture, gpu, asked)))
        except ValueError as error:
            found.append(Candidate(**varied, refusal=str(error)))
    if all(candidate.budget is None for candidate in found):
        raise HeadcountError(found[0].refusal)
    return tuple(found)


def _unlike(
    architecture: Architecture, gpu: GPU, quantization: str | None, kv_cache_dtypes: Sequence[str], vllm_version: str
) -> tuple[str, ...]:
    """The KV-cache formats; where "auto" is an 8-bit one, the model's own dtype stands in for that beside it."""
    try:
        auto = kv_cache_dtype_of(architecture, "auto", quantization=quantization, vllm_version=vllm_version, gpu=gpu)
    except ValueError:  # which the budgets say of themselves
        return tuple(kv_cache_dtypes)
    if "auto" not in kv_cache_dtypes or auto not in PER_TENSOR_FP8:
        return tuple(kv_cache_dtypes)
    return tuple(architecture.dtype if dtype in PER_TENSOR_FP8 else dtype for dtype in kv_cache_dtypes)


def fewest_gpus(candidates: Sequence[Candidate]) -> dict[tuple[str, str], int | None]:
    """The smallest size that holds the model by weight format with KV-cache format, or None where none does."""
    found: dict[tuple[str, str], int | None] = {}
    for candidate in candidates:
        if candidate.budget is None:
            continue
        key = (candidate.budget.quantization, candidate.budget.kv_cache_dtype)
        found.setdefault(key, None)
        size = found[key]
        if candidate.fits and (size is None or candidate.tensor_parallel_size < size):
            found[key] = candidate.tensor_parallel_size
    return found
