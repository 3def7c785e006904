"""How many bytes a weight format takes."""

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from kvcache.errors import unknown_name
from kvcache.gpu import GPU
from kvcache.tensors import Tensor

FOLDER = Path(__file__).parent / "quantizations"
_DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, kw_only=True)
class QuantizationScheme:
    """One weight format.

    `scale_bits` and `zero_bits` are paid once per group of weights; with `group_size` 0 a scale is paid per output row.
    `gemm_dtype` is what the matrix multiply computes in where the GPU has it, else the fallback's.
    """

    name: str
    weight_bits: float
    group_size: int = 0
    scale_bits: int = 0
    zero_bits: int = 0
    gemm_dtype: str
    fallback_gemm_dtype: str
    moe_only: bool = False
    expert_padding: Mapping[str, Sequence[int]] = field(default_factory=dict)  # by GPU family or "default"
    source: str

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise ValueError(f"kvcache/quantizations/{self.name}.toml: no source; add it")

    @property
    def bits_per_weight(self) -> float:
        """Bits of one weight with its share of group scales; row scales are left out."""
        return self.weight_bits + ((self.scale_bits + self.zero_bits) / self.group_size if self.group_size else 0.0)

    def linear_weight_bytes(self, rows: int, cols: int) -> float:
        """Bytes of one packed matrix with its scales; rows are outputs, columns inputs."""
        return rows * cols * self.weight_bits / 8 + self.scale_bytes(rows, cols)

    def scale_bytes(self, rows: int, cols: int) -> float:
        """Bytes of one packed matrix's scales with zero points."""
        groups = rows * -(-cols // self.group_size) if self.group_size else rows
        return groups * (self.scale_bits + self.zero_bits) / 8

    def packs(self, tensor: Tensor) -> bool:
        """Whether this format packs the tensor, rather than leaving it in the model's dtype."""
        return tensor.quantizable and (tensor.component == "experts" or not self.moe_only)

    def expert_padding_on(self, gpu: GPU) -> tuple[int, int]:
        """What expert width with hidden size are rounded up to by the kernel that vLLM picks on this GPU."""
        width, hidden = self.expert_padding.get(gpu.family, self.expert_padding.get("default", (1, 1)))
        return width, hidden

    def gemm_dtype_on(self, gpu: GPU) -> str:
        """What the matrix multiply computes in on this GPU.

        Without the hardware type, weights are unpacked on the way to a 16-bit multiply (vLLM's Marlin kernels).
        """
        return self.gemm_dtype if self.gemm_dtype in gpu.flops_per_s else self.fallback_gemm_dtype


def weight_bytes(scheme: QuantizationScheme, tensors: Iterable[Tensor], dtype: str) -> int:
    """Bytes a rank's tensors take on the GPU; what the scheme does not pack stays in `dtype`.

    Counts what PyTorch's caching allocator hands out (see `_allocated`).
    """
    plain = _dtype_bytes(scheme, dtype)
    total = 0.0
    for tensor in tensors:
        packed = scheme.packs(tensor) and scheme.name not in _PLAIN
        one = tensor.rows * tensor.cols * (scheme.weight_bits / 8 if packed else plain)
        total += _allocated(one * tensor.count) if tensor.stacked else tensor.count * _allocated(one)
        if packed:
            total += tensor.count * scheme.scale_bytes(tensor.rows, tensor.cols)
    return math.ceil(total)


def _allocated(size_bytes: float) -> float:
    """What one tensor takes of the allocator.

    Large blocks come in steps of 2 MiB, and a rest of at most 1 MiB is not handed on: 0.08 GiB of Phi-4's 27.39 GiB.
    Source: PyTorch c10/cuda/CUDACachingAllocator, kMinLargeAlloc, kRoundLarge, should_split.
    """
    if size_bytes < 10 * 2**20:
        return size_bytes
    rest = -size_bytes % (2 * 2**20)
    return size_bytes + rest if rest <= 2**20 else size_bytes


_PLAIN = {"none": None, "fp32": 4, "fp16": 2, "bf16": 2}


def _dtype_bytes(scheme: QuantizationScheme, dtype: str) -> int:
    return _PLAIN.get(scheme.name) or _DTYPE_BYTES.get(dtype, 2)


def quantization_names() -> tuple[str, ...]:
    """Every known weight format."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


@cache
def find_quantization(name: str) -> QuantizationScheme:
    """The weight format of that name. Raises `UnknownNameError` with the nearest names."""
    path = FOLDER / f"{name.lower()}.toml"
    if path.stem not in quantization_names() or path.parent != FOLDER:
        raise unknown_name("quantization", name, quantization_names(), "kvcache/quantizations", ".toml")
    fields: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    try:
        return QuantizationScheme(name=path.stem, **fields)
    except TypeError as error:
        raise ValueError(f"kvcache/quantizations/{path.name}: {error}") from None


def resolve_quantization(name: str | None, native: str | None, *, is_moe: bool = True) -> QuantizationScheme:
    """The asked format, or the checkpoint's own where none is asked for.

    Raises `ValueError` where it packs experts alone, and there are none.
    """
    scheme = find_quantization(name if name is not None else (native or "none"))
    if scheme.moe_only and not is_moe:
        raise ValueError(f"quantization '{scheme.name}' packs experts only, and the model has none; take fp8 or awq")
    return scheme
