"""How long images take in the encoder, before the language model in the same step.

The multiplies and the attention of the encoder's layers, by the constants of the language model's own: nothing was
fitted to encoders. A step's images are encoded in one pass. Attention compared with measured kernels (AIConfigurator's
collected tables of vLLM 0.24, github.com/ai-dynamo/aiconfigurator, Apache-2.0; 1,000 patches and more): a median error
of 6 % to 26 % by GPU (H100, H200, B200, L40S) and head size. The error of a whole pass is not measured.
"""

from dataclasses import dataclass

import numpy as np

from kvcache.shape.image_encoder import EncoderMultiply, ImageEncoder
from kvcache.shape.tensors import Tensor
from simulator.latency.step_time import FloatArray
from simulator.latency.terms import Rank, all_reduce_s, gemm

FEW, MANY = 256.0, 16_384.0  # patches: between them a pass's time is taken to be linear, as it is within 5 %
_LAUNCHES_OF_A_LAYER = 0.9  # of those of a layer with attention and experts, see `terms.launches`: four multiplies


@dataclass(frozen=True, kw_only=True)
class EncoderCosts:
    """Seconds of a step that encodes images: no less than `floor_s`, which launching the kernels takes."""

    start_s: float = 0.0
    patch_s: float = 0.0
    pair_s: float = 0.0
    floor_s: float = 0.0


def encoder_costs(rank: Rank) -> EncoderCosts | None:
    """Of one rank; None of a model without an encoder that is known."""
    encoder = rank.arch.image_encoder
    if encoder is None or rank.args.is_text_only(rank.arch):
        return None
    ways = rank.parallelism.tensor_parallel_size if rank.arch.vision_split and rank.args.splits_encoder else 1
    few_s, many_s = (float(_pass_s(rank, encoder, np.array([patches]), ways)[0]) for patches in (FEW, MANY))
    patch_s = (many_s - few_s) / (MANY - FEW)
    pair_s = _pair_s(rank, encoder, ways)
    windowed = encoder.windowed_layers * encoder.window * pair_s
    return EncoderCosts(
        start_s=max(few_s - FEW * patch_s, 0.0),
        patch_s=patch_s + windowed,
        pair_s=(encoder.depth - encoder.windowed_layers) * pair_s,
        floor_s=rank.constants.eager_layer_s * _LAUNCHES_OF_A_LAYER * encoder.depth,
    )


def _pass_s(rank: Rank, encoder: ImageEncoder, patches: FloatArray, ways: int) -> FloatArray:
    """All but attention: multiplies, what is read and written between them, sums over the ranks."""
    total = np.zeros_like(patches)
    for each in encoder.multiplies:
        rows = np.ceil(patches / each.patches)
        tensor = Tensor("vision", -(-each.rows // _split(each, ways)), each.cols)
        total = total + each.count * sum(gemm(rank, rows, tensor).values(), start=np.zeros_like(patches))
        moved = rows * each.count * (tensor.rows + tensor.cols) * rank.constants.activation_bytes_per_element
        total = total + moved / rank.gemm_bandwidth("bf16")
    if ways > 1:
        total = total + 2 * encoder.depth * all_reduce_s(rank, patches, encoder.width, ranks=ways)
    return np.asarray(total + encoder.depth * rank.constants.glue_s)


def _split(each: EncoderMultiply, ways: int) -> int:
    """Of a layer's matrices each rank has a part; so it is taken to have of the projector's."""
    return ways if each.rows > ways else 1


def _pair_s(rank: Rank, encoder: ImageEncoder, ways: int) -> float:
    """Of one layer, for each patch that another attends to."""
    flops = 4 * encoder.head_dim * -(-encoder.num_heads // ways)
    return flops / (rank.constants.prefill_attention_share_at(encoder.head_dim) * rank.bf16_flops)
