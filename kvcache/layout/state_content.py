"""How many bytes one state of a state-space or linear-attention layer takes on one rank.

Source: vLLM 0.32.0, model_executor/layers/mamba/mamba_utils.py (`MambaStateShapeCalculator`,
`MambaStateDtypeCalculator`); 0.33, gdn/qwen_gdn_linear_attn.py (`_resolve_gdn_prefill_backend`), kda_checkpoint.py,
models/kimi_k3/nvidia/kda.py (`is_flashkda_supported`).
"""

from math import prod

from files.errors import HeadcountError
from kvcache.gpus.gpu import GPU
from kvcache.parallelism import Parallelism, split
from kvcache.releases import GATED_DELTA_NET_CHECKPOINTS
from kvcache.shape.layer import KINDS, StateSpace

_DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_EXPORTING_HEAD_DIM = 128  # of KDA, of gated delta net's keys on Blackwell
_MAMBA2_ALIGNMENT, _FLASHINFER_ALIGNMENT, _FLASHKDA_ALIGNMENT = 1, 64, 16  # tokens


def state_bytes(space: StateSpace, model_dtype: str, tp: int = 1, num_speculative_tokens: int = 0) -> int:
    """One layer's state of one sequence: the last inputs of the convolution, then the recurrent state.

    Raises `ValueError` where the tensor-parallel size does not divide a width, as vLLM does.
    """
    rows = _conv_rows(space, num_speculative_tokens)
    conv = _share(convolution_channels(space, tp), tp, space) * rows if rows else 0
    recurrent = prod(_recurrent_shape(space, tp))
    return conv * _bytes_of(model_dtype) + recurrent * _bytes_of(_recurrent_dtype(space, model_dtype))


def recurrent_elements(space: StateSpace, tp: int = 1) -> int:
    """Elements of one layer's recurrent state of one sequence on one rank; 0 where it is a convolution alone."""
    return prod(_recurrent_shape(space, tp))


def checkpoint_alignment(space: StateSpace, gpu: GPU | None, vllm_version: str) -> int | None:
    """Where the prefill kernels can write a state on their way, in tokens; None where they cannot.

    A Hopper GPU where none is given.
    """
    family = "hopper" if gpu is None else gpu.family
    if space.kind == "mamba2":
        return _MAMBA2_ALIGNMENT
    if space.kind == "kimi_delta" and space.full_rank_gate and not space.full_rank_decay:
        has_kernel = family in ("hopper", "blackwell") and space.head_dim == _EXPORTING_HEAD_DIM
        return _FLASHKDA_ALIGNMENT if has_kernel else None
    if space.kind == "gated_delta_net" and GATED_DELTA_NET_CHECKPOINTS.holds_in(vllm_version):
        has_kernel = family == "hopper" or (family == "blackwell" and space.key_head_dim == _EXPORTING_HEAD_DIM)
        return _FLASHINFER_ALIGNMENT if has_kernel else None
    return None


def states_per_request(cache_mode: str, num_speculative_tokens: int = 0, *, writes_checkpoints: bool = False) -> int:
    """Blocks of one group that a request holds at most (vLLM `MambaSpec.max_memory_usage_bytes`).

    Under cache mode `align`: its current state, the one that it was copied from, and one that a prefill kernel writes
    on its way (`num_prefill_checkpoint_blocks`).
    """
    if cache_mode == "align":
        return 2 + num_speculative_tokens + writes_checkpoints
    return 1 + num_speculative_tokens


def convolution_channels(space: StateSpace, tp: int) -> int:
    """Channels of the convolution over all ranks, for so many of them."""
    if space.kind in ("mamba1", "short_conv"):
        return space.intermediate_size
    if space.kind == "mamba2":
        # Groups are repeated until every rank has one for its heads (`extra_groups_for_head_shards`).
        groups = space.num_groups if space.num_groups % tp == 0 else tp
        return _inner_width(space) + 2 * groups * space.state_size
    if space.kind == "gated_delta_net":
        return 2 * space.num_key_heads * space.key_head_dim + space.num_heads * space.head_dim
    return 3 * space.num_heads * space.head_dim


def _conv_rows(space: StateSpace, num_speculative_tokens: int) -> int:
    if space.kind == "lightning":  # its state alone
        return 0
    return space.conv_kernel - 1 + (0 if space.kind == "mamba1" else num_speculative_tokens)


def _recurrent_shape(space: StateSpace, tp: int) -> tuple[int, ...]:
    match space.kind:
        case "mamba1":
            return _share(space.intermediate_size, tp, space), space.state_size
        case "mamba2":
            return _share(space.num_heads, tp, space), space.head_dim, space.state_size
        case "gated_delta_net":
            return _share(space.num_heads, tp, space), space.head_dim, space.key_head_dim
        case "kimi_delta" | "lightning":
            return _share(space.num_heads, tp, space), space.head_dim, space.head_dim
        case "short_conv":
            return (0,)
    raise HeadcountError(f"no kind of state {space.kind!r}; known: {', '.join(KINDS)}")


def _recurrent_dtype(space: StateSpace, model_dtype: str) -> str:
    if space.kind == "lightning":  # whatever is asked of others
        return model_dtype
    default = "float32" if space.kind == "kimi_delta" else model_dtype
    return default if space.state_dtype == "auto" else space.state_dtype


def _inner_width(space: StateSpace) -> int:
    return space.intermediate_size or space.num_heads * space.head_dim


def _share(width: int, tp: int, space: StateSpace) -> int:
    return split(width, Parallelism(tensor_parallel_size=tp), f"width of the {space.kind} layers,")


def _bytes_of(dtype: str) -> int:
    if dtype not in _DTYPE_BYTES:
        raise HeadcountError(f"SSM state of dtype {dtype!r} is not known; allowed: {', '.join(_DTYPE_BYTES)}")
    return _DTYPE_BYTES[dtype]
