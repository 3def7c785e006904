"""Step times of DeepSeek-V4: its attention modules beside measured ones, hyper-connections, growth with contexts."""

import numpy as np
import pytest

from kvcache.models.catalog import find_gpu, load_model
from simulator.engines.vllm.arguments import EngineArgs
from simulator.latency.compressed_attention import hyper_connections
from simulator.latency.forms.physical import rank_of, window_class
from simulator.latency.gpu_constants import constants_for
from simulator.latency.model import served_model
from simulator.latency.terms import Rank
from validation.constants.compressed_attention import attention_rank, module_s

FLASH, PRO = "deepseek-v4-flash", "deepseek-v4-pro"


@pytest.mark.parametrize(
    ("layer", "load", "measured_us"),
    [
        (("h200-sxm", FLASH, 64, 4), (64, 1, 4096), 156),
        (("h200-sxm", FLASH, 8, 4), (256, 1, 2048), 192),
        (("h200-sxm", PRO, 128, 4), (256, 1, 4096), 539),
        (("h200-sxm", FLASH, 64, 128), (128, 1, 2048), 116),
        (("h200-sxm", FLASH, 64, 128), (1, 8192, 0), 3383),
        (("b200-sxm", FLASH, 64, 4), (256, 1, 2048), 178),
        (("b200-sxm", FLASH, 8, 128), (1, 8192, 0), 1008),
    ],
)
def test_modules_take_as_long_as_they_were_measured(
    layer: tuple[str, str, int, int], load: tuple[int, int, int], measured_us: float
) -> None:
    """aiconfigurator-core 0.12.0 (NVIDIA, Apache-2.0): dsv4_csa and dsv4_hca modules with vLLM 0.24.

    A layer: GPU, model, heads, tokens in an entry. A load: sequences, tokens of each, context before.
    """
    gpu, model, heads, ratio = layer
    sequences, tokens, context = load
    window = window_class(load_model(model))[1]
    ours_s = module_s(attention_rank(gpu, model, heads, ratio), window, sequences, tokens, context)
    assert ours_s * 1e6 == pytest.approx(measured_us, rel=0.15)


def served(model: str, tp: int) -> Rank:
    found = served_model(load_model(model), find_gpu("h200-sxm"), args=EngineArgs(tensor_parallel_size=tp))
    return rank_of(found, constants_for(found.gpu))


def test_hyper_connections_move_four_streams_on_every_rank() -> None:
    """The same tables: 24 µs a layer for one token, 608 µs for 8,192, at a hidden size of 4,096."""
    rank = served(FLASH, 4)
    spent_s = sum(hyper_connections(rank, np.array([1.0, 8192.0])).values())
    assert spent_s / rank.arch.num_hidden_layers * 1e6 == pytest.approx([24, 608], rel=0.1)
    plain = served("llama-3.1-8b", 4)
    assert hyper_connections(plain, np.array([1.0])) == {}


def test_what_is_chosen_ends_at_so_many_tokens() -> None:
    assert window_class(load_model(FLASH)) == (21, 4 * 512)
    assert window_class(load_model(PRO)) == (30, 4 * 1024)
