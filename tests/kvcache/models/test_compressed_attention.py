"""DeepSeek-V4: what its layers hold and keep, in which blocks, and what is refused."""

from typing import Any

import pytest

from kvcache.gpus.gpu import find_gpu
from kvcache.layout.compressed_caches import packed_groups
from kvcache.layout.kv_layout import kv_layout
from kvcache.layout.layer_caches import LayerCache
from kvcache.memory.sparse_attention import sparse_attention_memory
from kvcache.models.catalog import load_model
from kvcache.models.config.reader import from_config
from kvcache.models.drafters import find_drafter
from kvcache.parallelism import Parallelism
from kvcache.shape.parameters import active_parameters, layer_tensors, total_parameters
from simulator.deployment import resolve
from simulator.engines.memory import memory_budget
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.engine import EngineConfig

FLASH, PRO = "deepseek-v4-flash", "deepseek-v4-pro"
HOPPER = find_gpu("h200-sxm")
SMALL: dict[str, Any] = {
    "model_type": "deepseek_v4", "num_hidden_layers": 3, "hidden_size": 1024, "vocab_size": 32000,
    "num_attention_heads": 64, "max_position_embeddings": 8192, "compress_ratios": [0, 4, 128],
}  # fmt: skip


def test_parameters_are_those_that_are_published() -> None:
    """vllm-project/recipes: 284B of which 13B are active; 1.6T, 49B. Pro's files: about 865 GB with its MTP module."""
    flash, pro = load_model(FLASH), load_model(PRO)
    assert total_parameters(flash) / 1e9 == pytest.approx(284, rel=0.002)
    assert active_parameters(flash) / 1e9 == pytest.approx(13.8, rel=0.01)
    assert total_parameters(pro) / 1e12 == pytest.approx(1.573, rel=0.001)
    assert active_parameters(pro) / 1e9 == pytest.approx(49.8, rel=0.01)
    budget = memory_budget(pro, find_gpu("b300-sxm"), EngineArgs(tensor_parallel_size=8, enable_expert_parallel=True))
    assert 8 * budget.weights_bytes / 1e9 > 850


def test_experts_alone_have_four_bits() -> None:
    arch = load_model(FLASH)
    assert arch.native_quantization == "mxfp4"
    formats = dict(arch.layers[2].formats)
    assert {formats[f"attention.{part}"] for part in ("in", "q_b", "o_a", "out", "index_q")} == {"fp8-block"}
    assert "experts.in" not in formats
    assert load_model("nvidia/DeepSeek-V4-Flash-NVFP4").native_quantization == "nvfp4"
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    base = from_config({**SMALL, "expert_dtype": "fp8", "quantization_config": fp8}, name="base")
    assert base.native_quantization == "fp8-block"
    with pytest.raises(ValueError, match=r"expert_dtype is 'int3'; it must be one of fp4, fp8"):
        from_config({**SMALL, "expert_dtype": "int3", "quantization_config": fp8}, name="odd")


def test_heads_are_split_and_what_leads_to_them_is_whole() -> None:
    """vLLM 0.33 models/deepseek_v4/attention.py: `wo_a` of each rank has its own groups of heads."""
    arch = load_model(FLASH)
    rank = Parallelism(tensor_parallel_size=8)
    held = {(t.rows, t.cols) for t in layer_tensors(arch, rank, arch.layers[2])}
    assert {(1024 + 512, 4096), (8 * 512, 1024), (1024, 8 * 512), (4096, 1024), (64 * 128, 1024)} <= held
    assert {(2 * 2 * 512, 4096), (2 * 2 * 128, 4096), (24, 4 * 4096)} <= held
    with pytest.raises(ValueError, match="o_groups"):
        list(layer_tensors(arch, Parallelism(tensor_parallel_size=16), arch.layers[2]))


def test_a_block_holds_all_entries_side_by_side() -> None:
    """vLLM issue 51163: groups of 256, 64, 8 and 4 tokens; pages as models/deepseek_v4/compressor.py counts them."""
    layout = kv_layout(load_model(FLASH), tensor_parallel_size=4, kv_cache_dtype="fp8_ds_mla", gpu=HOPPER)
    groups = {(group.window, group.block_size, len(group.layers), sum(group.page_bytes)) for group in layout.groups}
    entries = 21 * (37_440 + 8_640) + 20 * 1_728
    assert groups == {
        (None, None, 62, entries), (128, 64, 22, 22 * 37_440), (128, 64, 21, 21 * 37_440),
        (8, 4, 42, 21 * (32_832 + 8_640)), (128, 8, 20, 20 * 32_832),
    }  # fmt: skip
    assert (layout.block_size, layout.block_bytes()) == (256, entries)
    assert layout.bytes_per_token == -(-(21 * (584 + 132) * 32 + 20 * 584) // 128)


def test_a_request_takes_as_many_blocks_as_vllm_said() -> None:
    """vLLM issue 44376, 0.22 with 16,384 batched tokens: 6.66 GiB for 30,000 tokens, 13,528 fit in 5.44 GiB.

    That release padded each group to 22 repeats of all three pages; the blocks are the same.
    """
    layout = kv_layout(load_model(FLASH), tensor_parallel_size=2, kv_cache_dtype="fp8_ds_mla", gpu=HOPPER)
    padded = 22 * (37_440 + 8_640 + 1_728)
    for tokens, stated_gib in ((30_000, 6.66), (13_528, 5.44)):
        needed = layout.blocks_per_request(tokens, 16_384)
        assert needed * padded / 2**30 == pytest.approx(stated_gib, abs=0.005)


def test_kinds_without_as_many_of_each_page_stay_whole() -> None:
    window = [LayerCache(layer=n, window=64, block_size=64, page_size_bytes=100) for n in range(5)]
    entries = [LayerCache(layer=n, block_size=256, page_size_bytes=10 + n % 2) for n in range(5)]
    assert [len(group) for group in packed_groups([*entries, *window])] == [5, 1, 1, 1, 1, 1]  # one fills a block
    assert [len(group) for group in packed_groups(window)] == [5]
    even = [LayerCache(layer=n, block_size=256, page_size_bytes=10 + n % 2) for n in range(4)]
    assert [len(group) for group in packed_groups([*even, *window])] == [4, 2, 2, 1]


def test_the_scheduler_counts_in_the_smallest_blocks() -> None:
    engine = resolve(FLASH, "h200-sxm", EngineArgs(tensor_parallel_size=4, max_model_len=65536)).engine
    assert isinstance(engine, EngineConfig)
    assert engine.block_size == 4
    assert sorted(engine.group_block_sizes) == [4, 8, 64, 64, 256]


@pytest.mark.parametrize(
    ("gpu", "more", "why"),
    [
        ("a100-80gb", {}, "no kernels that are modelled on ampere GPUs for the compressed attention"),
        ("mi300x", {}, "no kernels that are modelled on cdna3 GPUs"),
        ("h200-sxm", {"kv_cache_dtype": "bfloat16"}, "with kv_cache_dtype 'bfloat16'; take 'fp8'"),
        ("h200-sxm", {"block_size": 128}, "block_size is 128; the kernels for the compressed attention of .* take 256"),
    ],
)
def test_what_has_no_kernels_is_refused(gpu: str, more: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        memory_budget(load_model(FLASH), find_gpu(gpu), EngineArgs(tensor_parallel_size=8, **more))


def test_its_own_drafting_modules_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="MTP module: it keeps a window of its own"):
        find_drafter(load_model(FLASH), "mtp")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"compress_ratios": [0, 4]}, "lists 2 layers for 3 hidden layers"),
        ({"compress_ratios": [0, 4, 16]}, "'16' in compress_ratios or layer_types is none of"),
        ({"compress_ratios": None}, "neither compress_ratios nor layer_types"),
        ({"num_key_value_heads": 2}, "num_key_value_heads is not 1"),
        ({"o_groups": 7}, "num_attention_heads 64 is not a multiple of o_groups 7"),
    ],
)
def test_configs_that_contradict_themselves_are_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        from_config({**SMALL, **changes}, name="odd")


def test_layers_may_be_named_in_place_of_ratios() -> None:
    names = ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]
    by_name = from_config({**SMALL, "compress_ratios": None, "layer_types": names}, name="small")
    assert by_name == from_config(SMALL, name="small")


def test_prompts_gather_entries_of_four_contexts() -> None:
    """vLLM 0.33 models/deepseek_v4/nvidia/flashmla.py (`forward_mqa`)."""
    held = sparse_attention_memory(
        load_model(FLASH), Parallelism(), max_num_batched_tokens=8192, max_model_len=2**20, kv_cache_dtype="fp8_ds_mla"
    )
    assert held.kept == 8192 * 512 * 4
    assert held.workspace == 4 * (2**18 + 128 + 8192) * 512 * 2 + 8192 * (640 + 1) * 4
