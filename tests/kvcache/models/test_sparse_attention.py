"""Models whose attention an indexer makes sparse: what they keep, what they hold, what is refused."""

from typing import Any

import pytest

from kvcache.gpus.gpu import find_gpu
from kvcache.layout.kv_layout import kv_layout
from kvcache.memory.sparse_attention import sparse_attention_memory
from kvcache.models.catalog import load_model
from kvcache.models.config.reader import from_config
from kvcache.models.drafters import find_drafter
from kvcache.parallelism import Parallelism
from kvcache.shape.parameters import layer_tensors, total_parameters
from simulator.engines.memory import memory_budget
from simulator.engines.sglang.arguments import SGLangArgs
from simulator.engines.vllm.arguments import EngineArgs

LATENT: dict[str, Any] = {
    "num_hidden_layers": 4, "hidden_size": 1024, "vocab_size": 32000, "num_attention_heads": 16,
    "intermediate_size": 4096, "max_position_embeddings": 8192, "kv_lora_rank": 512, "q_lora_rank": 1536,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip
INDEXER = {"index_topk": 2048, "index_n_heads": 64, "index_head_dim": 128}
PLAIN = {**LATENT, "n_routed_experts": 0}
HOPPER, BLACKWELL = find_gpu("h200-sxm"), find_gpu("b200-sxm")


@pytest.mark.parametrize(
    ("model_type", "more"),
    [
        ("deepseek_v41", {"compress_ratios": [1, 4]}),
        ("llama", {"sparse_attention_config": {}}),
        ("llama", INDEXER),  # whose indexer no reader knows
        ("deepseek_v3", {"compress_ratios": [1, 4]}),
    ],
)
def test_sparse_attention_that_is_not_read_is_refused(model_type: str, more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="it keeps caches of its own, which are not counted") as caught:
        from_config({**LATENT, "model_type": model_type, **more}, name="sparse")
    assert model_type in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_attention_layers_in_one_are_refused() -> None:
    with pytest.raises(ValueError, match="two attention layers in each layer"):
        from_config({**LATENT, "model_type": "longcat_flash"}, name="cat")


def test_latent_attention_without_an_indexer_is_read() -> None:
    config = {**PLAIN, "model_type": "deepseek_v3", "index_topk": None}
    assert not from_config(config, name="dense").is_sparse
    assert load_model("deepseek-v3").is_mla
    assert not load_model("deepseek-v3").is_sparse


@pytest.mark.parametrize("model_type", ["deepseek_v3", "deepseek_v32", "glm_moe_dsa", "kimi_k2"])
def test_index_topk_makes_latent_attention_sparse_as_in_vllm(model_type: str) -> None:
    arch = from_config({**PLAIN, **INDEXER, "model_type": model_type}, name="sparse")
    assert arch.is_sparse
    assert all(layer.attention and layer.attention.topk == 2048 and layer.attention.indexer for layer in arch.layers)


def choosing(**more: Any) -> list[bool]:
    arch = from_config({**PLAIN, **INDEXER, "model_type": "glm_moe_dsa", "num_hidden_layers": 9, **more}, name="shared")
    return [layer.attention is not None and layer.attention.indexer is not None for layer in arch.layers]


def test_layers_may_take_an_earlier_ones_choice() -> None:
    """vLLM models/deepseek_v32: index_topk_freq with index_skip_topk_offset, or a letter for each layer."""
    assert choosing() == [True] * 9
    every_fourth = choosing(index_topk_freq=4, index_skip_topk_offset=3)
    assert every_fourth == [True, True, True, False, False, False, True, False, False]
    assert choosing(index_topk_pattern="FSSFSSFSS") == [True, False, False] * 3
    with pytest.raises(ValueError, match="one letter, F or S, for each of 9 hidden layers"):
        choosing(index_topk_pattern="FS")
    with pytest.raises(ValueError, match="index_topk without q_lora_rank"):
        choosing(q_lora_rank=None)
    with pytest.raises(ValueError, match="index_topk is 0, must be positive"):
        choosing(index_topk=0)


def test_of_glm_5_3_each_fourth_layer_has_an_indexer() -> None:
    """Its config's own list, `indexer_types`, names 21 of 78 layers `full`."""
    layers = load_model("glm-5.3").layers
    assert sum(layer.attention is not None and layer.attention.indexer is not None for layer in layers) == 21
    assert total_parameters(load_model("glm-5")) / 1e9 == pytest.approx(744, rel=0.001)  # vllm-project/recipes


def test_a_block_holds_latents_with_the_indexers_keys() -> None:
    """vllm-project/recipes pull request 893: of GLM-5.3 on 8 H200 with an FP8 cache, vLLM offloaded these bytes."""
    layout = kv_layout(load_model("glm-5.3"), tensor_parallel_size=8, kv_cache_dtype="fp8_ds_mla", gpu=HOPPER)
    assert (layout.block_size, len(layout.groups)) == (64, 1)
    assert layout.block_bytes() == 64 * (78 * 656 + 21 * 132)
    for stored_bytes, prompt_tokens in ((59_763_793_920, 138_615), (19_111_157_760, 44_498)):
        blocks, rest = divmod(stored_bytes, 8 * layout.block_bytes())
        assert rest == 0
        assert 0.995 < 64 * blocks / prompt_tokens <= 1


def test_blocks_are_cut_at_pipeline_stages() -> None:
    layout = kv_layout(load_model("deepseek-v3.2"), pipeline_parallel_size=2, gpu=HOPPER)
    assert [layout.block_bytes(stage) for stage in (0, 1)] == [64 * (1152 + 132) * layers for layers in (31, 30)]


@pytest.mark.parametrize(
    ("model", "gpu", "asked", "kept", "block_size"),
    [
        ("deepseek-v3.2", "h200-sxm", "auto", "auto", 64),
        ("deepseek-v3.2", "h200-sxm", "fp8", "fp8_ds_mla", 64),
        ("deepseek-v3.2", "b200-sxm", "fp8", "fp8", 64),
        ("glm-5.3", "b200-sxm", "auto", "fp8_e4m3", 64),
        ("deepseek-v3.2", "rtx-pro-6000", "auto", "fp8_ds_mla", 64),
        ("deepseek-v3.2", "mi300x", "auto", "auto", 16),
    ],
)
def test_each_gpus_kernels_have_a_format_of_their_own(
    model: str, gpu: str, asked: str, kept: str, block_size: int
) -> None:
    args = EngineArgs(kv_cache_dtype=asked, tensor_parallel_size=8, max_model_len=8192)
    budget = memory_budget(load_model(model), find_gpu(gpu), args)
    assert (budget.kv_cache_dtype, budget.block_size) == (kept, block_size)


@pytest.mark.parametrize(("gpu", "asked"), [("a100-80gb", "auto"), ("l40s", "fp8"), ("h200-sxm", "nvfp4_ds_mla")])
def test_gpus_without_kernels_are_refused(gpu: str, asked: str) -> None:
    with pytest.raises(ValueError, match=r"no kernels on \S+ GPUs for sparse attention"):
        memory_budget(load_model("deepseek-v3.2"), find_gpu(gpu), EngineArgs(kv_cache_dtype=asked))


@pytest.mark.parametrize(
    ("model", "gpu", "asked", "bytes_per_token"),
    [
        ("deepseek-v3.2", "h200-sxm", "auto", 61 * (132 + 1152)),
        ("deepseek-v3.2", "h200-sxm", "fp8_e4m3", 61 * (132 + 656)),  # with scales and 16-bit rotary values
        ("deepseek-v3.2", "b200-sxm", "auto", 61 * (132 + 576)),
        ("deepseek-v3.2", "b200-sxm", "bf16", 61 * (132 + 1152)),
        ("glm-5.2-fp8", "b200-sxm", "auto", 21 * 132 + 78 * 576),  # 57 layers share what others chose
        ("minimax-m3", "h200-sxm", "auto", 57 * 256 + 60 * 2 * 128 * 2),
        ("minimax-m3", "h200-sxm", "fp8_e4m3", 57 * 128 + 60 * 2 * 128),  # its indexers' keys in FP8, too
    ],
)
def test_sglang_s_cells_of_sparse_attention(model: str, gpu: str, asked: str, bytes_per_token: int) -> None:
    """SGLang 0.5.23 `pool_configurator.py`: bytes on each of 8 GPUs, by hand."""
    args = SGLangArgs(tensor_parallel_size=8, kv_cache_dtype=asked)
    found = memory_budget(load_model(model), find_gpu(gpu), args)
    assert found.kv_bytes_per_token_per_gpu == bytes_per_token
    assert found.block_size == (64 if "minimax" not in model else 128)


def test_sglang_refuses_compressed_attention_by_name() -> None:
    with pytest.raises(ValueError, match=r"compressed attention, which deepseek-ai/DeepSeek-V4-Flash has"):
        memory_budget(load_model("deepseek-v4-flash"), HOPPER, SGLangArgs(tensor_parallel_size=8))


def test_an_indexer_is_whole_on_every_rank() -> None:
    """vLLM models/deepseek_v32 `DeepseekV32Indexer`: 64 heads of 128 from 1,536; a key and 64 weights from 7,168."""
    arch = load_model("deepseek-v3.2")
    layer = arch.layers[-1]
    held = {
        tp: [(t.rows, t.cols) for t in layer_tensors(arch, Parallelism(tensor_parallel_size=tp), layer)]
        for tp in (1, 8)
    }
    for tensors in held.values():
        assert {(64 * 128, 1536), (128 + 64, 7168)} <= set(tensors)


def test_blocks_are_chosen_by_keys_in_16_bits_beside_grouped_heads() -> None:
    """vllm-project/recipes: 427B parameters with the encoder, 26B active; vLLM 0.33 models/minimax_m3."""
    arch = load_model("minimax-m3")
    assert total_parameters(arch) / 1e9 == pytest.approx(427, rel=0.003)
    chosen = [layer.attention for layer in arch.layers if layer.attention and layer.attention.topk]
    assert (len(arch.layers), len(chosen), {attention.topk for attention in chosen}) == (60, 57, {2048})
    layout = kv_layout(arch, tensor_parallel_size=8, gpu=BLACKWELL)
    assert (layout.block_size, len(layout.groups)) == (128, 1)
    assert layout.block_bytes() == 128 * (60 * 2 * 128 * 2 + 57 * 128 * 2)
    with pytest.raises(ValueError, match="no kernels here for the block-sparse attention"):
        memory_budget(arch, HOPPER, EngineArgs(tensor_parallel_size=8, kv_cache_dtype="nvfp4"))


def test_a_list_of_sparse_layers_has_one_for_each() -> None:
    section = {
        "sparse_attention_freq": [0, 1], "sparse_topk_blocks": 16, "sparse_block_size": 128,
        "sparse_num_index_heads": 4, "sparse_index_dim": 128,
    }  # fmt: skip
    plain = {
        "num_hidden_layers": 3, "hidden_size": 1024, "vocab_size": 32000, "num_attention_heads": 16,
        "num_key_value_heads": 4, "intermediate_size": 4096, "model_type": "minimax_m3",
    }  # fmt: skip
    with pytest.raises(ValueError, match="sparse_attention_freq lists 2 layers for 3 hidden layers"):
        from_config({**plain, "sparse_attention_config": section}, name="m3")


def test_a_module_that_drafts_chooses_for_itself() -> None:
    drafter = find_drafter(load_model("glm-5.3"), "mtp")
    assert drafter is not None
    assert drafter.arch.indexer is not None
    head = find_drafter(load_model("glm-5.3"), "eagle")
    assert head is not None
    assert not head.arch.is_sparse


def test_what_choosing_takes_is_set_aside() -> None:
    """vLLM indexer.py says 825 MiB of DeepSeek-V3.2's keys; logits of 512 MiB; the choice of 8,192 tokens."""
    arch = load_model("deepseek-v3.2")
    given: dict[str, Any] = {"max_num_batched_tokens": 8192, "max_model_len": 163_840}
    alone = sparse_attention_memory(arch, Parallelism(), **given, kv_cache_dtype="auto")
    assert alone.workspace == 40 * 163_840 * 132 + 2**20
    assert (alone.kept, alone.transient) == (8192 * 2048 * 4, 512 * 2**20)
    ranks = Parallelism(tensor_parallel_size=8)
    packed = sparse_attention_memory(arch, ranks, **given, kv_cache_dtype="fp8_ds_mla")
    assert packed.workspace > 5 * 163_840 * 576 * 2 > alone.workspace
    assert packed.transient == 512 * 2**20 + 2 * packed.kept
    longer = sparse_attention_memory(arch, ranks, **(given | {"max_model_len": 2**20}), kv_cache_dtype="auto")
    assert longer.workspace == 16 * 2**20 * 132 + 2**20
    dense = sparse_attention_memory(load_model("deepseek-v3"), ranks, **given, kv_cache_dtype="auto")
    assert (dense.kept, dense.workspace, dense.transient) == (0, 0, 0)
