"""How many bytes one state of a state-space or linear-attention layer takes on one rank.

Source: vLLM 0.32.0, model_executor/layers/mamba/mamba_utils.py (`MambaStateShapeCalculator`,
`MambaStateDtypeCalculator`).
"""

from math import prod

from files.errors import HeadcountError
from kvcache.parallelism import Parallelism, split
from kvcache.shape.layer import KINDS, StateSpace

_DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
# Blocks beside a request's current state under cache mode `align`: the one that it was copied from, then, where the
# prefill kernel can write the state at a block's end on its way, one for that (`num_prefill_checkpoint_blocks`).
_PREFILL_CHECKPOINTS = {"mamba2": 1}


def state_bytes(space: StateSpace, model_dtype: str, tp: int = 1, num_speculative_tokens: int = 0) -> int:
    """One layer's state of one sequence: the last inputs of the convolution, then the recurrent state.

    Raises `ValueError` where the tensor-parallel size does not divide a width, as vLLM does.
    """
    conv = _share(_conv_width(space, tp), tp, space) * _conv_rows(space, num_speculative_tokens)
    recurrent = prod(_recurrent_shape(space, tp))
    return conv * _bytes_of(model_dtype) + recurrent * _bytes_of(_recurrent_dtype(space, model_dtype))


def recurrent_elements(space: StateSpace, tp: int = 1) -> int:
    """Elements of one layer's recurrent state of one sequence on one rank; 0 where it is a convolution alone."""
    return prod(_recurrent_shape(space, tp))


def states_per_request(space: StateSpace, cache_mode: str, num_speculative_tokens: int = 0) -> int:
    """Blocks of one group that a request holds at most (vLLM `MambaSpec.max_memory_usage_bytes`)."""
    if cache_mode == "align":
        return 2 + num_speculative_tokens + _PREFILL_CHECKPOINTS.get(space.kind, 0)
    return 1 + num_speculative_tokens


def _conv_width(space: StateSpace, tp: int) -> int:
    """Channels of the convolution over all ranks."""
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
    return space.conv_kernel - 1 + (0 if space.kind == "mamba1" else num_speculative_tokens)


def _recurrent_shape(space: StateSpace, tp: int) -> tuple[int, ...]:
    match space.kind:
        case "mamba1":
            return _share(space.intermediate_size, tp, space), space.state_size
        case "mamba2":
            return _share(space.num_heads, tp, space), space.head_dim, space.state_size
        case "gated_delta_net":
            return _share(space.num_heads, tp, space), space.head_dim, space.key_head_dim
        case "kimi_delta":
            return _share(space.num_heads, tp, space), space.head_dim, space.head_dim
        case "short_conv":
            return (0,)
    raise HeadcountError(f"no kind of state {space.kind!r}; known: {', '.join(KINDS)}")


def _recurrent_dtype(space: StateSpace, model_dtype: str) -> str:
    if space.kind == "kimi_delta":
        return "float32"
    return model_dtype if space.state_dtype == "auto" else space.state_dtype


def _inner_width(space: StateSpace) -> int:
    return space.intermediate_size or space.num_heads * space.head_dim


def _share(width: int, tp: int, space: StateSpace) -> int:
    return split(width, Parallelism(tensor_parallel_size=tp), f"width of the {space.kind} layers,")


def _bytes_of(dtype: str) -> int:
    if dtype not in _DTYPE_BYTES:
        raise HeadcountError(f"SSM state of dtype {dtype!r} is not known; allowed: {', '.join(_DTYPE_BYTES)}")
    return _DTYPE_BYTES[dtype]
