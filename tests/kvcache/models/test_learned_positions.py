"""Models whose positions are learned, not rotary."""

import pytest

from kvcache.models.catalog import load_model
from kvcache.models.config.reader import from_config
from kvcache.parallelism import Parallelism
from kvcache.shape.parameters import parameter_counts, stage_tensors, total_parameters

OPT = {
    "model_type": "opt", "hidden_size": 64, "ffn_dim": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
    "vocab_size": 96, "max_position_embeddings": 128,
}  # fmt: skip


def test_opt_125m_has_its_published_total() -> None:
    assert total_parameters(load_model("opt-125m")) == 125_239_296


def test_positions_are_two_more_than_the_longest_context() -> None:
    arch = from_config(OPT, name="small")
    assert parameter_counts(arch)["embedding"] == 96 * 64 + 130 * 64


def test_positions_are_whole_on_every_tensor_parallel_rank() -> None:
    arch = from_config(OPT, name="small")
    halves = stage_tensors(arch, Parallelism(tensor_parallel_size=2, pad_vocabulary_to=1), 0)
    assert sum(tensor.elements for tensor in halves if tensor.component == "embedding") == 48 * 64 + 130 * 64


@pytest.mark.parametrize("change", [{"word_embed_proj_dim": 32}, {"do_layer_norm_before": False}])
def test_the_one_opt_that_is_built_otherwise_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="OPT-350m"):
        from_config({**OPT, **change}, name="opt-350m")


def test_models_with_rotary_positions_have_none() -> None:
    assert load_model("llama-3.1-8b").learned_positions == 0
