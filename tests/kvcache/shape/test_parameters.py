"""How many parameters a model has, whole or on one rank."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache.models.catalog import load_model
from kvcache.parallelism import Parallelism
from kvcache.shape.parameters import active_parameters, parameter_counts, stage_tensors, total_parameters

# Totals as Hugging Face lists them for the safetensors of each checkpoint (without extra prediction layers).
PUBLISHED = {
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "codellama-34b": 33_743_970_304,
    "yi-34b": 34_388_917_248,
    "mistral-7b": 7_248_023_552,
    "mistral-small-24b": 23_572_403_200,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_630_071_296,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen1.5-moe": 14_315_784_192,
    "qwen3-0.6b": 596_049_920,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "gemma-7b": 8_537_680_896,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-4b": 4_300_079_472,
    "gemma-3-12b": 12_187_325_040,
    "gemma-3-27b": 27_432_406_640,
    "phi-2": 2_779_683_840,
    "phi-4": 14_659_507_200,
    "phi-3.5-mini": 3_821_079_552,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_419_200,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "olmo-2-7b": 7_298_617_344,
    "granite-3.1-2b": 2_533_531_648,
    "granite-3.1-8b": 8_170_848_256,
    "llama-4-scout": 108_641_793_536,
    "qwen3-coder-next": 79_674_391_296,
    "granite-4.0-h-small": 32_207_337_984,
    "granite-4.0-h-tiny": 6_939_037_248,
    "kimi-linear-48b": 49_122_681_728,
    "nemotron-nano-9b-v2": 8_888_227_328,
    "lfm2-1.2b": 1_170_340_608,
    "ministral-3-3b-instruct-2512": 3_849_090_048,
    "ministral-3-14b-base-2512": 13_945_031_680,
    "nvidia-nemotron-3-nano-4b-bf16": 3_973_556_832,
    "minicpm5-1b": 1_080_632_832,
    "lfm2-350m": 354_483_968,
    "lfm2.5-230m": 229_693_184,
    "glm-4.5v": 107_710_933_120,
    "tencent/Hunyuan-A13B-Instruct": 80_393_183_232,
    "tencent/HunyuanOCR": 996_208_112,
    "openbmb/MiniCPM-V-4.6": 1_300_659_440,
    "LiquidAI/LFM2.5-VL-450M": 448_718_848,
    "zai-org/GLM-GA": 10_292_777_472,
    "tencent/Hy3": 298_786_155_776 - 3_752_612_288,  # without its draft layer
    "qwen3.5-0.8b": 873_438_784 - 20_452_864,  # without their draft layers
    "qwen3.5-2b": 2_274_069_824 - 60_828_160,
    "qwen3.5-4b": 4_659_865_088 - 120_599_552,
    "qwen3.5-9b": 9_653_104_368 - 243_290_624,
    "qwen3.8-27b": 27_781_427_952 - 424_699_392,
    "gemma-3n-e4b": 7_849_978_192 - 15 * (2 * 512 * 2048 + 256),  # keys, values that 15 layers have and nothing reads
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_total_parameters_equal_the_published_count(name: str) -> None:
    assert total_parameters(load_model(name)) == PUBLISHED[name]


@pytest.mark.parametrize(
    ("name", "billions"),
    # Model cards: active parameters per token.
    [("mixtral-8x7b", 12.9), ("qwen3-30b-a3b", 3.3), ("qwen3-235b-a22b", 22), ("deepseek-v3", 37), ("kimi-k2.5", 32)],
)
def test_active_parameters_count_routed_experts_only(name: str, billions: float) -> None:
    assert active_parameters(load_model(name)) / 1e9 == pytest.approx(billions, rel=0.03)


@pytest.mark.parametrize(
    ("name", "billions"),
    # Totals that cards and vllm-project/recipes state.
    [
        ("glm-4.6v", 107),
        ("tencent/Hy3", 295),
        ("step-3.5-flash", 196),
        ("step-3.7-flash", 198),
        ("poolside/Laguna-XS.2", 33.4),
        ("laguna-s-2.1", 118),
        ("laguna-m.1", 225),
        ("arcee-ai/Trinity-Large-Thinking", 398),
        ("google/gemma-4-12B-it", 12),
        ("JetBrains/Mellum2-12B-A2.5B-Instruct", 12),
    ],
)
def test_total_parameters_are_about_the_stated_number(name: str, billions: float) -> None:
    assert total_parameters(load_model(name)) / 1e9 == pytest.approx(billions, rel=0.013)


@pytest.mark.parametrize(
    ("name", "parameters"),
    # Published totals, less a draft layer, and a pooling head and positions that vLLM does not load.
    [
        ("zai-org/GLM-OCR", 1_325_258_240 - 217_852_416),
        ("PaddlePaddle/PaddleOCR-VL-1.6", 958_588_736 - 15_238_352 - 37_748_736),
        ("meta-models/Muse-Glimmer-30B", 59_553_253_376 // 2),
        ("deepseek-ai/DeepSeek-OCR", 3_336_106_240),
        ("deepseek-ai/DeepSeek-OCR-2", 3_389_119_360),
        ("LiquidAI/LFM2.5-VL-1.6B", 1_596_625_904),
        ("inclusionAI/Ling-1T", 999_705_328_640),
    ],
)
def test_total_parameters_are_the_published_ones(name: str, parameters: int) -> None:
    assert total_parameters(load_model(name)) == parameters


def test_dense_models_are_fully_active() -> None:
    arch = load_model("qwen3-32b")
    assert active_parameters(arch) == total_parameters(arch)
    assert parameter_counts(arch)["experts"] == 0


@given(tp=st.sampled_from([1, 2, 4, 8]), name=st.sampled_from(["llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v2-lite"]))
def test_ranks_hold_at_least_the_whole_model_together(tp: int, name: str) -> None:
    arch = load_model(name)
    held = sum(tensor.elements for tensor in stage_tensors(arch, Parallelism(tensor_parallel_size=tp), 0))
    assert total_parameters(arch) <= held * tp <= total_parameters(arch) * 1.2


@given(pp=st.integers(1, 8))
def test_pipeline_stages_hold_each_layer_once(pp: int) -> None:
    arch = load_model("llama-3.1-70b")
    parallelism = Parallelism(pipeline_parallel_size=pp)
    layers = [layer for stage in range(pp) for layer in parallelism.stage_layers(80, stage)]
    assert layers == list(range(80))
    held = sum(tensor.elements for stage in range(pp) for tensor in stage_tensors(arch, parallelism, stage))
    assert held == total_parameters(arch)


def test_left_over_layers_avoid_the_last_stage() -> None:
    parallelism = Parallelism(pipeline_parallel_size=4)
    sizes = [len(parallelism.stage_layers(61, stage)) for stage in range(4)]
    assert sizes == [15, 15, 16, 15]  # vLLM distributed/utils.py, get_pp_indices


def test_kv_heads_are_replicated_beyond_their_number() -> None:
    arch = load_model("qwen3-30b-a3b")  # 4 KV heads of 128
    for tp, kv_rows in ((4, 128), (8, 128)):
        tensors = stage_tensors(arch, Parallelism(tensor_parallel_size=tp), 0)
        fused = next(tensor for tensor in tensors if tensor.component == "attention")
        assert fused.rows == 32 * 128 // tp + 2 * kv_rows


def test_the_vocabulary_is_padded_to_64_rows() -> None:
    arch = load_model("granite-3.1-8b")  # 49,155 tokens
    embedding = next(iter(stage_tensors(arch, Parallelism(tensor_parallel_size=2), 0)))
    assert embedding.rows == 49_216 // 2


@pytest.mark.parametrize(("name", "tp"), [("llama-3.1-8b", 3), ("falcon-7b", 2), ("qwen2.5-7b", 8)])
def test_a_split_that_vllm_refuses_is_refused(name: str, tp: int) -> None:
    with pytest.raises(ValueError, match="tensor_parallel_size"):
        list(stage_tensors(load_model(name), Parallelism(tensor_parallel_size=tp), 0))


def test_expert_parallelism_gives_whole_experts_to_ranks() -> None:
    arch = load_model("qwen3-235b-a22b")
    ways = Parallelism(tensor_parallel_size=4, enable_expert_parallel=True)
    experts = [tensor for tensor in stage_tensors(arch, ways, 0) if tensor.component == "experts"]
    assert {tensor.count for tensor in experts} == {32}
    assert sum(tensor.elements for tensor in experts) == parameter_counts(arch)["experts"] // 4


@pytest.mark.parametrize(("tp", "dp"), [(1, 2), (2, 2), (2, 4), (4, 1)])
def test_attention_replicas_share_experts_but_nothing_else(tp: int, dp: int) -> None:
    """As `python -m conformance.components weights` found in vLLM 0.32: attention by TP, experts by TP × DP."""
    arch = load_model("deepseek-v3")

    def held(component: str, **settings: Any) -> int:
        tensors = stage_tensors(arch, Parallelism(tensor_parallel_size=tp, **settings), 0)
        return sum(tensor.elements for tensor in tensors if tensor.component == component)

    pooled = {"data_parallel_size": dp, "enable_expert_parallel": True}
    for component in ("attention", "mlp", "embedding", "lm_head", "router", "norms"):
        assert held(component, **pooled) == held(component)
    assert held("experts", **pooled) == parameter_counts(arch)["experts"] // (tp * dp)
    # Tokens are dealt out to the ranks of a replica, so each holds the shared experts whole.
    ways = 1 if tp > 1 and dp > 1 else tp
    assert held("shared_experts", **pooled) == parameter_counts(arch)["shared_experts"] // ways


def test_glm_splits_its_shared_experts_all_the_same() -> None:
    arch = load_model("glm-4.5-air")  # vLLM 0.32 models/glm4_moe.py
    pooled = Parallelism(tensor_parallel_size=2, data_parallel_size=2, enable_expert_parallel=True)
    held = sum(tensor.elements for tensor in stage_tensors(arch, pooled, 0) if tensor.component == "shared_experts")
    assert held == parameter_counts(arch)["shared_experts"] // 2
