"""What the states of SSM / linear-attention layers cost."""

from kvcache.layout.state_content import recurrent_elements, state_bytes
from simulator.latency.model import KV_READ
from simulator.latency.step_time import FloatArray
from simulator.latency.terms import Rank

_SCAN_FLOPS = 8  # per token and element of the state: a chunk's products with keys, values, queries, its own triangle


def states_s(rank: Rank, sequences: FloatArray) -> dict[str, FloatArray]:
    """All layers' states of so many sequences, read, then written once each."""
    space, tp = rank.arch.state_space, rank.parallelism.tensor_parallel_size
    if space is None:
        return {}
    moved = 2 * rank.layer_weight * rank.arch.num_state_layers * state_bytes(space, rank.arch.dtype, tp)
    return {KV_READ: sequences * moved / (rank.constants.state_bandwidth_share * rank.bandwidth)}


def scan_token_s(rank: Rank) -> float:
    """What a token of a prompt costs in all layers' states beside matrix multiplies: the chunked scan."""
    space, tp = rank.arch.state_space, rank.parallelism.tensor_parallel_size
    if space is None:
        return 0.0
    flops = _SCAN_FLOPS * rank.layer_weight * rank.arch.num_state_layers * recurrent_elements(space, tp)
    return flops / (rank.constants.state_scan_compute_share * rank.bf16_flops)
