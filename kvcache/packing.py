"""Which splits a packed weight format does not survive."""

from kvcache.architecture import Architecture
from kvcache.parallelism import Parallelism
from kvcache.parameters import stage_tensors
from kvcache.quantization import QuantizationScheme

Assumption = tuple[str, str, str]


def padding_assumption(
    arch: Architecture, scheme: QuantizationScheme, parallelism: Parallelism
) -> tuple[Assumption, ...]:
    """What must hold where tensor parallelism would cut through a group of weights with one scale.

    Raises ValueError where the checkpoint's own config shows that vLLM refuses it: AutoAWQLinearMethod.create_weights
    of vLLM 0.32 (model_executor/layers/quantization/auto_awq.py), to which layers fall back that Marlin refuses;
    experts have kernels of their own for it. Of another checkpoint's shape nothing is known: Qwen2.5-72B's own AWQ
    checkpoint pads its MLP from 29,568 to 29,696.
    """
    tp = parallelism.tensor_parallel_size
    if not scheme.whole_groups or tp == 1:
        return ()
    for tensor in stage_tensors(arch, parallelism, 0):
        if scheme.packs(tensor) and tensor.component != "experts" and tensor.cols % scheme.group_size:
            share = f"{tensor.cols} {tensor.component} inputs per rank, no multiple of {scheme.group_size}"
            if arch.native_quantization == scheme.name:
                raise ValueError(
                    f"quantization '{scheme.name}' at tensor_parallel_size {tp} leaves {share}, which vLLM refuses; "
                    "take a smaller one"
                )
            return ((f"{scheme.name} checkpoint", "padded", f"{share}: vLLM refuses it at TP {tp} unless padded"),)
    return ()
