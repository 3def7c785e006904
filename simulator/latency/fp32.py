"""Matrix multiplies in 32 bits, as of routers that some models keep in fp32: on CUDA cores, or as TF32.

Timed on GB200 for vLLM's pull request 47973: [tokens, 6144] by [6144, 256], with the conversion of the tokens. 16, 32,
128, 512 and 1,024 tokens took 20, 63, 69, 97 and 111 µs; as TF32 12, 20, 20, 26 and 33 µs; in vLLM's own kernel up to
32 tokens took 6 µs at most. Columns take as long as an SM takes to sum them, so as long on other GPUs. What other
kernels do with 1 and 2 tokens (8 and 72 µs) is not modelled.
"""

import numpy as np

from kvcache.gpus.gpu import GPU
from kvcache.releases import FP32_ROUTER_KERNEL
from kvcache.shape.tensors import Tensor
from simulator.engines.engines import AnyArgs
from simulator.latency.step_time import FloatArray

FP32_BYTES = 4
FP32_OF_BF16 = 1 / 16  # of GPUs that name no peak: H100 67 of 989 Tflop/s, A100 19.5 of 312 (NVIDIA datasheets)
TF32_OF_BF16 = 0.12  # what 256 rows reach, not the peak, which is 1/2
_COLUMN_S = {False: (2.8e-9, 9.5e-9), True: (1.5e-9, 2.8e-9)}  # by TF32: up to so many tokens, and of more
_FEW_TOKENS = 16
_KERNEL_SHAPES, _KERNEL_TOKENS = ((3072, 256), (6144, 128)), 32  # GateLinear: MiniMax-M2, MiniMax-M3


def fp32_flops_per_s(gpu: GPU, bf16_flops: float, *, tf32: bool) -> float:
    """Peak of this multiply, in the terms in which a share of it is reached by 16-bit ones."""
    return bf16_flops * TF32_OF_BF16 if tf32 else gpu.flops_per_s.get("fp32", bf16_flops * FP32_OF_BF16)


def fp32_column_s(args: AnyArgs, gpu: GPU, tokens: FloatArray, tensor: Tensor) -> FloatArray:
    """What each column takes that is summed over, one after the other, in the time of [0, len) tokens."""
    few_s, more_s = _COLUMN_S[args.allows_tf32]
    has_kernel = FP32_ROUTER_KERNEL.holds_in(args.vllm_version) and gpu.family in ("hopper", "blackwell")
    in_kernel = has_kernel and (tensor.cols, tensor.rows) in _KERNEL_SHAPES
    own = np.where(tokens <= _FEW_TOKENS, few_s, more_s)
    return np.where(in_kernel & (tokens <= _KERNEL_TOKENS), 0.0, own)
