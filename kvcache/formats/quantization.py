"""How many bytes a weight format takes."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from files.documents import read_toml
from files.errors import HeadcountError
from files.registry import Registry, remembered
from files.schema import AtLeastOne, Count, NotNegative, table
from kvcache.errors import SplitError
from kvcache.gpus.gpu import GPU, Multiply
from kvcache.releases import DESC_ACT, precedes
from kvcache.shape.tensors import Tensor

WEIGHT_FORMATS = Registry(
    what="quantization", section="weight_formats", folder=Path(__file__).parent / "weights", suffix=".toml"
)
Release = Annotated[str, Meta(pattern=r"^[0-9]{1,4}(\.[0-9]{1,4}){1,2}$", description="a release such as 0.32.0")]
Bits = Annotated[float, Meta(gt=0, le=64, description="a number of bits, above 0, at most 64")]
_OLDEST = ("volta", "turing", "ampere")
WHOLE_EXPERTS = "--enable-expert-parallel"  # vLLM's flag
_DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, kw_only=True)
class QuantizationScheme:
    """One weight format.

    `scale_bits` and `zero_bits` are paid once per group of weights: `group_size` columns, 0 for all of them, of
    `scale_rows` rows, 0 for all of them. `tensor_bits` are paid once per matrix. `aligned`: groups must divide the
    width that a rank has. `gemm_dtype` is what the matrix multiply computes in where the GPU has it, else the
    fallback's.
    """

    name: str
    weight_bits: Bits
    group_size: Count = 0
    scale_rows: Count = 1
    scale_bits: NotNegative = 0
    zero_bits: Count = 0
    tensor_bits: Count = 0
    index_bits: Count = 0  # per input column: GPTQ's g_idx, which says what group a column is in
    aligned: bool = False
    packs_embeddings: bool = False
    absent_from: Release | None = None  # the first release known to lack it
    kv_cache_dtype: str | None = None  # what published checkpoints in this format declare
    spared: tuple[str, ...] = ()  # components that the checkpoint leaves in 16 bits
    is_native: bool = True  # the checkpoint's own, so that its widths are those of the files
    is_listed: bool = False  # with the formats that the checkpoint lists by module
    file_share: float = 1.0  # bytes of the checkpoint's files over those counted
    asked_as: str | None = None  # the loose name that was given for it, such as int4
    gemm_dtype: Multiply
    fallback_gemm_dtype: Multiply
    moe_only: bool = False
    oldest_family: Literal["turing", "ampere"] | None = None  # of NVIDIA's GPUs, for which vLLM 0.33 has kernels
    expert_padding: Mapping[str, tuple[AtLeastOne, AtLeastOne]] = field(default_factory=dict)  # by family
    source: str

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise HeadcountError("no source; add it")

    def runs_on(self, family: str) -> bool:
        """Whether vLLM has kernels for it on GPUs of this family (`get_min_capability` of its quantization classes)."""
        older = _OLDEST[: _OLDEST.index(self.oldest_family)] if self.oldest_family else ()
        return family not in older

    @property
    def bits_per_weight(self) -> float:
        """Bits of one weight with its share of group scales; row scales are left out."""
        if not self.group_size or not self.scale_rows:
            return self.weight_bits
        return self.weight_bits + (self.scale_bits + self.zero_bits) / (self.group_size * self.scale_rows)

    def linear_weight_bytes(self, rows: int, cols: int) -> float:
        """Bytes of one packed matrix with its scales; rows are outputs, columns inputs."""
        return rows * cols * self.weight_bits / 8 + self.scale_bytes(rows, cols)

    def scale_bytes(self, rows: int, cols: int) -> float:
        """Bytes of one packed matrix's scales with zero points."""
        across = -(-cols // self.group_size) if self.group_size else 1
        down = -(-rows // self.scale_rows) if self.scale_rows else 1
        bits = across * down * (self.scale_bits + self.zero_bits) + self.tensor_bits + cols * self.index_bits
        return bits / 8

    def of(self, tensor: Tensor) -> "QuantizationScheme | None":
        """The format that the tensor is held in: this one, or what the checkpoint lists; None: the model's dtype."""
        if not self.packs(tensor):
            return None
        listed = tensor.format if self.is_listed else None
        return self if listed is None else replace(find_quantization(listed), is_native=self.is_native)

    def packs(self, tensor: Tensor) -> bool:
        """Whether the tensor is packed, rather than left in the model's dtype."""
        if self.is_listed and tensor.format is not None:
            return tensor.format != "none"
        if tensor.component in self.spared or self.name in _PLAIN:
            return False
        if tensor.component in ("embedding", "lm_head") and tensor.cols > 1:
            return self.packs_embeddings
        return tensor.quantizable and (tensor.component == "experts" or not self.moe_only)

    def cuts_groups(self, tensor: Tensor) -> bool:
        """Whether a rank's share of a packed matrix does not hold whole groups, which vLLM refuses.

        Experts of formats with groups are spared: vLLM's fallback kernel halves its groups until they fit.
        """
        own = self.of(tensor)
        if own is None or not own.group_size or not tensor.cols % own.group_size:
            return False
        is_block = own.scale_rows > 1 and tensor.cols_split  # blocks that no rank shares
        return is_block or (own.aligned and tensor.component not in ("experts", "residual"))

    def refuse_split(self, tensor: Tensor, whole_experts: str = WHOLE_EXPERTS) -> None:
        """Raises `SplitError` where `cuts_groups`, unless whoever packs the model could widen its matrices.

        So Qwen did for its own AWQ checkpoints (Qwen2.5-72B: 29,696 for 29,568); blocks of FP8 nobody widens.
        `whole_experts` is the engine's flag that keeps experts whole; empty: none.
        """
        if self.cuts_groups(tensor) and (self.is_native or not self.aligned):
            advised = whole_experts if tensor.component == "experts" else ""
            whole = f", {advised} (whole experts)" if advised else ""
            raise SplitError(
                f"quantization {self.name!r}: one rank's {tensor.component} matrix of {tensor.cols} inputs does not "
                f"hold whole groups of {self.group_size}; take a smaller tensor-parallel size{whole} or another format"
            )

    def expert_padding_on(self, gpu: GPU) -> tuple[int, int]:
        """What expert width with hidden size are rounded up to by the kernel that vLLM picks on this GPU."""
        return self.expert_padding.get(gpu.family, self.expert_padding.get("default", (1, 1)))

    def gemm_dtype_on(self, gpu: GPU) -> Multiply:
        """What the matrix multiply computes in on this GPU.

        Without the hardware type, weights are unpacked on the way to a 16-bit multiply (vLLM's Marlin kernels).
        """
        return self.gemm_dtype if self.gemm_dtype in gpu.flops_per_s else self.fallback_gemm_dtype


def weight_bytes(
    scheme: QuantizationScheme, tensors: Iterable[Tensor], dtype: str, *, whole_experts: str = WHOLE_EXPERTS
) -> int:
    """Bytes a rank's tensors take on the GPU; what the scheme does not pack stays in `dtype`.

    Counts what PyTorch's caching allocator hands out (see `_allocated`). Raises `SplitError` where a rank's share does
    not hold whole groups.
    """
    plain = _dtype_bytes(scheme, dtype)
    total = 0.0
    for tensor in tensors:
        own = scheme.of(tensor)
        scheme.refuse_split(tensor, whole_experts)
        one = tensor.rows * tensor.cols * (own.weight_bits / 8 if own else tensor.element_bytes or plain)
        total += _allocated(one * tensor.count) if tensor.stacked else tensor.count * _allocated(one)
        if own:
            total += tensor.count * own.scale_bytes(tensor.rows, tensor.cols)
    return math.ceil(total * scheme.file_share)


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
    return WEIGHT_FORMATS.names()


# `gptq-g32`: a format with groups of 32; `gptq-channel`: with one group per output row; `-actorder`: with g_idx.
_VARIANT = re.compile(r"^(?P<base>.+?)(?:-g(?P<group>[1-9][0-9]{0,4})|-(?P<channel>channel))?(?P<order>-actorder)?$")


@remembered
def find_quantization(name: str) -> QuantizationScheme:
    """The weight format of that name, or a variant of one. Raises `UnknownNameError` with the nearest names."""
    match = _VARIANT.match(name.lower())
    if name.lower() in quantization_names() or match is None or match["base"] not in quantization_names():
        return _read(name)
    scheme, is_gptq = _read(match["base"]), match["base"].startswith("gptq")
    if (match["order"] and not is_gptq) or not (scheme.aligned and scheme.name != "nvfp4"):
        raise HeadcountError(f"quantization {name!r}: {scheme.name} has no variants; take {scheme.name!r}")
    if match["group"] or match["channel"]:
        scheme = replace(scheme, group_size=int(match["group"] or 0))
    if match["order"]:
        scheme = replace(scheme, index_bits=32, absent_from=DESC_ACT.until)
    return replace(scheme, name=name.lower())


def _read(name: str) -> QuantizationScheme:
    path = WEIGHT_FORMATS.path(name.lower())
    return table(read_toml(path), QuantizationScheme, path, name=path.stem)


# What people say for a weight format: how the names of those begin that a checkpoint may have, else which it is.
_LOOSE: Mapping[str, tuple[tuple[str, ...], str]] = {
    "fp8": (("fp8",), "fp8"),
    "fp4": (("mxfp4", "nvfp4", "int4", "w4a16", "awq", "gptq"), "nvfp4"),
    "int4": (("int4", "w4a16", "awq", "gptq"), "w4a16"),
    "awq": (("awq",), "awq"),
    "awq_marlin": (("awq",), "awq"),
    "gptq": (("gptq",), "gptq"),
    "gptq_marlin": (("gptq",), "gptq"),
    "nvfp4": (("nvfp4",), "nvfp4"),
    "gpt_oss_mxfp4": (("mxfp4",), "mxfp4"),  # as vLLM calls it in what a server says of itself
    "bitsandbytes": (("nf4",), "nf4"),
    # What vLLM itself quantizes at load (vllm.config.quantization of 0.33).
    "fp8_per_tensor": (("fp8-tensor",), "fp8-tensor"),
    "fp8_per_block": (("fp8-block",), "fp8-block"),
    "fp8_per_channel": (("fp8",), "fp8"),
    "int8_per_channel_weight_only": (("w8a16",), "w8a16"),
    "nvfp4_per_token": (("nvfp4",), "nvfp4"),
}
# Names of vLLM's for how a checkpoint is packed, which says the rest itself.
_PACKED = (
    "modelopt", "modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed", "compressed-tensors", "auto_gptq", "quark",
    "moe_wna16", "torchao", "inc", "deepseek_v4_fp8", "humming",
)  # fmt: skip


def _meant(name: str, native: str | None) -> str:
    """The format that a loose name stands for: the checkpoint's own where it is one of that kind.

    Raises HeadcountError where a name says that the checkpoint is packed, and it is not.
    """
    if name.lower() in _PACKED:
        if native is None:
            raise HeadcountError(
                f"quantization {name!r} is a packed checkpoint's, and this one is not packed; leave it out"
            )
        return native
    beginnings, otherwise = _LOOSE.get(name.lower(), ((), name))
    if native is None or not native.startswith(beginnings):
        return otherwise
    is_wider = name.lower() in ("fp4", "int4") and native.startswith("gptq-8bit")
    return otherwise if is_wider else native


def resolve_quantization(
    name: str | None,
    native: str | None,
    *,
    is_moe: bool = True,
    dtype: str = "bfloat16",
    spared: tuple[str, ...] = (),
    file_share: float = 1.0,
) -> QuantizationScheme:
    """The asked format, or the checkpoint's own where none is asked for, which leaves the `spared` components alone.

    `file_share`: see `QuantizationScheme`; for the checkpoint's own format alone.

    Loose names are read as in `_meant`. Raises `ValueError` where it packs experts alone, and there are none, or where
    it computes in 16 bits, and `dtype` has 32.
    """
    scheme = find_quantization(_meant(name, native) if name is not None else (native or "none"))
    if name is not None and scheme.name != name.lower():
        scheme = replace(scheme, asked_as=name)
    if scheme.moe_only and not is_moe:
        raise HeadcountError(
            f"quantization '{scheme.name}' packs experts only, and the model has none; take fp8 or awq"
        )
    if dtype == "float32" and scheme.name not in _PLAIN:
        raise HeadcountError(f"quantization {scheme.name!r} computes in 16 bits; give --dtype float16 or bfloat16")
    if name is None and scheme.name == "none" and dtype == "float32":
        return find_quantization("fp32")
    is_native = scheme.name == native
    if not is_native:
        share = file_share if native is None and scheme.name == "none" else 1.0
        return replace(scheme, spared=(), is_native=False, file_share=share)
    return replace(scheme, spared=spared, is_native=True, is_listed=True, file_share=file_share)


def refuse_absent(scheme: QuantizationScheme, vllm_version: str) -> None:
    """Raises `ValueError` where this vLLM release cannot load the format."""
    if scheme.absent_from is not None and not precedes(vllm_version, scheme.absent_from):
        raise HeadcountError(
            f"quantization {scheme.name!r} is not in vLLM {vllm_version}; give the older release that "
            "you run as --vllm-version, or another format"
        )
