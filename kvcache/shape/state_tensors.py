"""Which tensors a rank holds of a layer with a state."""

from collections.abc import Callable, Iterator, Mapping

from kvcache.errors import SplitError
from kvcache.parallelism import Parallelism, split
from kvcache.shape.layer import StateSpace
from kvcache.shape.tensors import Tensor

COMPONENT = "state_space"
_FP32 = 4


def state_space_tensors(state: StateSpace, hidden_size: int, parallelism: Parallelism) -> Iterator[Tensor]:
    """One rank's share of one layer's mixer, without the norm before it.

    Sources: vLLM 0.32 model_executor/layers/mamba (mamba_mixer, mamba_mixer2, short_conv, gdn/qwen_gdn_linear_attn,
    gdn/kimi_gdn_linear_attn), 0.33 (linear/bailing_linear_attn). Convolutions, decay rates and whole mamba1 mixers get
    no quantization config there.
    """
    yield from _MIXERS[state.kind](state, hidden_size, parallelism)


def _vector(rows: int, element_bytes: int = 0) -> Tensor:
    return Tensor(COMPONENT, rows, element_bytes=element_bytes)


def _linear(rows: int, cols: int, part: str = "in") -> Tensor:
    return Tensor(COMPONENT, rows, cols, quantizable=True, part=part)


def _mamba1(state: StateSpace, hidden_size: int, parallelism: Parallelism) -> Iterator[Tensor]:
    width = split(state.intermediate_size, parallelism, "state-space width")
    yield Tensor(COMPONENT, width, state.conv_kernel)
    yield Tensor(COMPONENT, 2 * width, hidden_size)
    yield Tensor(COMPONENT, state.dt_rank + 2 * state.state_size, width)
    yield Tensor(COMPONENT, width, state.dt_rank)
    yield Tensor(COMPONENT, hidden_size, width)
    yield Tensor(COMPONENT, width, state.state_size, element_bytes=_FP32)  # A
    yield _vector(width)  # D
    yield _vector(width)  # the bias of dt, which every model has
    if state.conv_bias:
        yield _vector(width)
    if state.projection_bias:
        yield _vector(2 * width)
    if state.output_bias:
        yield _vector(hidden_size)
    if state.norm:
        yield _vector(state.dt_rank + 2 * state.state_size)


def _mamba2(state: StateSpace, hidden_size: int, parallelism: Parallelism) -> Iterator[Tensor]:
    heads = split(state.num_heads, parallelism, "state-space heads")
    width = heads * state.head_dim
    groups = mamba2_groups(state, parallelism)
    mixed = width + 2 * groups * state.state_size  # what the convolution runs over: x, B, C
    yield Tensor(COMPONENT, mixed, state.conv_kernel)
    yield _linear(width + mixed + heads, hidden_size)
    yield _linear(hidden_size, width, "out")
    yield _vector(heads, _FP32)  # A
    yield _vector(2 * heads)  # D, the bias of dt
    if state.conv_bias:
        yield _vector(mixed)
    if state.projection_bias:
        yield _vector(width + mixed + heads)
    if state.output_bias:
        yield _vector(hidden_size)
    if state.norm:
        yield _vector(width)


def mamba2_groups(state: StateSpace, parallelism: Parallelism) -> int:
    """Groups of B and C on one rank: split, or, where there is but one, copied to each.

    Raises `SplitError` where vLLM's mixer refuses the split.
    """
    ranks = parallelism.tensor_parallel_size
    if state.num_groups % ranks and state.num_groups != 1:
        raise SplitError(
            f"tensor_parallel_size {ranks} does not divide the {state.num_groups} state-space groups; "
            "take one that does"
        )
    return max(1, state.num_groups // ranks)


def _gated_delta_net(state: StateSpace, hidden_size: int, parallelism: Parallelism) -> Iterator[Tensor]:
    heads = split(state.num_heads, parallelism, "linear-attention value heads")
    key = split(state.num_key_heads, parallelism, "linear-attention key heads") * state.key_head_dim
    value = heads * state.head_dim
    yield Tensor(COMPONENT, 2 * key + value, state.conv_kernel)
    yield _linear(2 * key + 2 * value, hidden_size)  # q, k, v, output gate
    yield Tensor(COMPONENT, 2 * heads, hidden_size)  # b, a: left in 16 bits by every published format
    yield _linear(hidden_size, value, "out")
    yield _vector(heads)  # the bias of dt
    yield _vector(heads, _FP32)  # A
    yield _vector(state.head_dim)  # norm


def _kimi_delta(state: StateSpace, hidden_size: int, parallelism: Parallelism) -> Iterator[Tensor]:
    heads = split(state.num_heads, parallelism, "linear-attention heads")
    width, rank = heads * state.head_dim, state.head_dim
    gate = width if state.full_rank_gate else 0
    decay = width if state.full_rank_decay else rank
    yield _linear(3 * width + gate + heads + decay, hidden_size)  # q, k, v, beta, the forget gate: a half of it whole
    if not state.full_rank_decay:
        yield _linear(width, rank)
    if not gate:
        yield _linear(rank, hidden_size)  # the output gate's halves
        yield _linear(width, rank)
    yield _linear(hidden_size, width, "out")
    yield Tensor(COMPONENT, 3 * width, state.conv_kernel, element_bytes=_FP32)
    yield _vector(width + heads, _FP32)  # the bias of dt, A
    yield _vector(state.head_dim)  # norm


def _lightning(state: StateSpace, hidden_size: int, parallelism: Parallelism) -> Iterator[Tensor]:
    ranks = parallelism.tensor_parallel_size
    if state.num_groups % ranks:
        raise SplitError(
            f"tensor_parallel_size {ranks} does not divide the {state.num_groups} groups that linear attention is "
            "normed in; take one that does"
        )
    width = split(state.num_heads, parallelism, "linear-attention heads") * state.head_dim
    yield _linear(4 * width, hidden_size)  # q, k, v, output gate
    yield _linear(hidden_size, width, "out")
    yield _vector(width)  # norm
    if state.norm:
        yield _vector(2 * state.head_dim)


def _short_conv(state: StateSpace, hidden_size: int, parallelism: Parallelism) -> Iterator[Tensor]:
    width = split(state.intermediate_size, parallelism, "convolution width")
    yield Tensor(COMPONENT, width, state.conv_kernel)
    yield _linear(3 * width, hidden_size)
    yield _linear(hidden_size, width, "out")
    if state.conv_bias:
        yield _vector(4 * width)
        yield _vector(hidden_size)


_MIXERS: Mapping[str, Callable[[StateSpace, int, Parallelism], Iterator[Tensor]]] = {
    "mamba1": _mamba1,
    "mamba2": _mamba2,
    "gated_delta_net": _gated_delta_net,
    "kimi_delta": _kimi_delta,
    "lightning": _lightning,
    "short_conv": _short_conv,
}
