"""Matrix multiplies in 32 bits, as of routers that some models keep in fp32: on CUDA cores, or as TF32.

Columns take as long as the library's kernels take to sum them, and those differ by family. Blackwell: timed on GB200
for vLLM's pull request 47973, [tokens, 6144] by [6144, 256] with the conversion of the tokens; 16, 32, 128 and 1,024
took 20, 63, 69 and 111 µs, as TF32 12, 20, 20 and 33. Hopper: timed on an H200 with torch 2.11.0 (CUDA 13.0) in a CUDA
graph, 2026-11-27; the same took 16, 15, 22 and 79 µs, as TF32 8, 9, 9 and 22. vLLM's own kernel, with MiniMax's
shapes, took 8 µs at most. Single tokens have another kernel (3 to 8 µs), as have two on Blackwell (72 µs); neither is
modelled. Other families are taken to be as Hopper.
"""

from dataclasses import dataclass

import numpy as np

from kvcache.gpus.gpu import GPU
from kvcache.releases import FP32_ROUTER_KERNEL
from kvcache.shape.tensors import Tensor
from simulator.engines.engines import AnyArgs
from simulator.latency.step_time import FloatArray

FP32_BYTES = 4
FP32_OF_BF16 = 1 / 16  # of GPUs that name no peak: H100 67 of 989 Tflop/s, A100 19.5 of 312 (NVIDIA datasheets)
# Of that peak: an H200 took 512 µs for 8,192 tokens, [.., 6144] by [6144, 256] (51 Tflop/s with what it starts), GB300
# 439 µs for 16,384 by [6144, 128] (59 Tflop/s; vLLM's pull request 55899).
FP32_SHARE = 0.82
_FEW_TOKENS = 16


@dataclass(frozen=True)
class _Kernels:
    """Seconds that a column takes, up to _FEW_TOKENS and of more; what TF32 reaches of the bf16 peak.

    From the times above.
    """

    fp32_s: tuple[float, float]
    tf32_s: tuple[float, float]
    tf32_of_bf16: float


_BLACKWELL = _Kernels(fp32_s=(2.7e-9, 9.5e-9), tf32_s=(1.5e-9, 2.8e-9), tf32_of_bf16=0.09)
_OTHERS = _Kernels(fp32_s=(1.9e-9, 1.6e-9), tf32_s=(0.6e-9, 0.6e-9), tf32_of_bf16=0.33)  # an H200's
_KERNEL_MORE_S = 0.5e-9  # a column in vLLM's own kernel beyond _FEW_TOKENS: of 3,072, 16 and 32 tokens took 4 and 8 µs
_KERNEL_SHAPES, _KERNEL_TOKENS = ((3072, 256), (6144, 128)), 32  # GateLinear: MiniMax-M2, MiniMax-M3


def fp32_flops_per_s(gpu: GPU, bf16_flops: float, *, tf32: bool) -> float:
    """What these multiplies reach, whatever share of theirs those of 16 bits reach on tensor cores."""
    if tf32:
        return bf16_flops * _kernels(gpu).tf32_of_bf16
    return FP32_SHARE * gpu.flops_per_s.get("fp32", bf16_flops * FP32_OF_BF16)


def fp32_column_s(args: AnyArgs, gpu: GPU, tokens: FloatArray, tensor: Tensor) -> FloatArray:
    """What each column takes that is summed over, one after the other, in the time of [0, len) tokens."""
    few_s, more_s = _kernels(gpu).tf32_s if args.allows_tf32 else _kernels(gpu).fp32_s
    has_kernel = FP32_ROUTER_KERNEL.holds_in(args.vllm_version) and gpu.family in ("hopper", "blackwell")
    in_kernel = has_kernel and (tensor.cols, tensor.rows) in _KERNEL_SHAPES
    own = np.where(tokens <= _FEW_TOKENS, few_s, more_s)
    return np.where(in_kernel & (tokens <= _KERNEL_TOKENS), np.where(tokens <= _FEW_TOKENS, 0.0, _KERNEL_MORE_S), own)


def _kernels(gpu: GPU) -> _Kernels:
    return _BLACKWELL if gpu.family == "blackwell" else _OTHERS
