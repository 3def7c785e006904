"""Weight formats by module, from the lists of a checkpoint's config."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache.formats.quantization import find_quantization, resolve_quantization, weight_bytes
from kvcache.gpus.gpu import find_gpu
from kvcache.models.catalog import load_model
from kvcache.models.config.reader import from_config
from kvcache.parallelism import Parallelism
from kvcache.shape.architecture import Architecture
from kvcache.shape.parameters import stage_tensors
from simulator.engines.memory import memory_budget

CASES = Path(__file__).parents[4] / "shared" / "cases"
NUM_LAYERS = 12
SMALL: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": NUM_LAYERS, "num_attention_heads": 8,
    "num_key_value_heads": 4, "intermediate_size": 2048, "vocab_size": 1024, "max_position_embeddings": 512,
}  # fmt: skip
ATTENTION, MLP = 3 * 1024 * 1024, 6 * 1024 * 1024  # parameters of one layer


def read(**quantization: Any) -> Architecture:
    return from_config({**SMALL, "quantization_config": quantization}, name="small")


def weights(arch: Architecture) -> int:
    own = resolve_quantization(None, arch.native_quantization, is_moe=arch.is_moe, spared=arch.unquantized)
    return weight_bytes(own, stage_tensors(arch, Parallelism(pad_vocabulary_to=1), 0), arch.dtype)


def counted(attention: str, mlp: str, layers: int = NUM_LAYERS) -> float:
    """Bytes of so many layers' packed matrices, without the scales of whole matrices."""
    bits = {name: find_quantization(name).bits_per_weight if name else 16 for name in (attention, mlp)}
    return layers * (ATTENTION * bits[attention] + MLP * bits[mlp]) / 8


REST = 2 * (2 * 1024 * 1024 + (2 * NUM_LAYERS + 1) * 1024)  # embedding, head, norms


@given(st.sets(st.integers(0, NUM_LAYERS - 1)), st.booleans())
def test_each_layer_that_a_list_leaves_out_costs_what_its_16_bits_do(layers: set[int], wildcard: bool) -> None:
    ending = ".self_attn*" if wildcard else ".self_attn"
    names = [f"model.layers.{layer}{ending}" for layer in layers]
    arch = read(quant_method="modelopt", quant_algo="NVFP4", ignore=["lm_head", *names])
    expected = counted("nvfp4", "nvfp4", NUM_LAYERS - len(layers)) + counted("", "nvfp4", len(layers)) + REST
    assert weights(arch) == pytest.approx(expected, rel=2e-4)
    assert arch.unquantized == (("attention",) if len(layers) == NUM_LAYERS else ())


MXFP4 = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}
PER_CHANNEL, PER_TENSOR = ({"dtype": "fp8_e4m3", "qscheme": f"per_{what}"} for what in ("channel", "tensor"))


def quark(weight: Any, by_layer: Any = None, *, inputs: Any = None, exclude: Any = ()) -> dict[str, Any]:
    whole = {"weight": weight, "input_tensors": inputs}
    lists = {"layer_quant_config": by_layer or {}, "exclude": [*exclude, "lm_head"]}
    return {"quant_method": "quark", "global_quant_config": whole, **lists}


FP8, FP4 = {"quant_algo": "FP8"}, {"quant_algo": "W4A16_NVFP4", "group_size": 16}
GROUPS = {
    "a": {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}},
    "b": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 128, "symmetric": True}},
}


@pytest.mark.parametrize(
    ("quantization", "native", "attention", "mlp"),
    [
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
          "quantized_layers": {
              **{f"model.layers.{layer}.self_attn.{name}_proj": FP8 for layer in range(NUM_LAYERS) for name in "qkvo"},
              **{f"model.layers.{layer}.mlp.{name}_proj": FP4
                 for layer in range(NUM_LAYERS) for name in ("gate", "up", "down")}}},
         "nvfp4-w4a16", "fp8-tensor", "nvfp4-w4a16"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
          "quantized_layers": {f"model.layers.{layer}.mlp.{name}_proj": FP4
                               for layer in range(NUM_LAYERS) for name in ("gate", "up", "down")}},
         "nvfp4-w4a16", "", "nvfp4-w4a16"),  # what is not listed is in 16 bits
        ({"quant_method": "compressed-tensors", "config_groups": GROUPS, "ignore": ["lm_head"]},
         "w4a16", "fp8", "w4a16"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": GROUPS["a"] | {"targets": ["Linear"]}},
          "ignore": ["re:.*mlp.*"]}, "fp8", "fp8", ""),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"-:.*self_attn.*": {}}},
         "gptq", "", "gptq"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"+:.*self_attn.*": {"bits": 8}}},
         "gptq", "gptq-8bit", "gptq"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["self_attn"]},
         "awq", "", "awq"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["mlp"]},
         "fp8-block", "fp8-block", ""),
        ({"quant_algo": "FP8", "kv_cache_scheme": "FP8", "producer": {"name": "modelopt"}, "ignore": ["lm_head"]},
         "fp8-tensor", "fp8-tensor", "fp8-tensor"),  # without a quant_method
        ({"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["*.self_attn*"]}}, "nvfp4", "", "nvfp4"),
        ({"quant_method": "mxfp8", "weight_block_size": [1, 32], "ignored_layers": ["lm_head"]},
         "mxfp8", "mxfp8", "mxfp8"),
        (quark(MXFP4, exclude=["*.self_attn*"]), "mxfp4-all", "", "mxfp4-all"),
        (quark(MXFP4, {"*.self_attn.*": {"weight": PER_CHANNEL, "input_tensors": PER_CHANNEL}}),
         "mxfp4-all", "fp8", "mxfp4-all"),
        (quark(None, {"*.mlp.*": {"weight": MXFP4}}), "mxfp4-all", "", "mxfp4-all"),
        (quark([{"dtype": "fp4", "qscheme": "per_group", "group_size": 16}, {"dtype": "fp8_e4m3"}]),
         "nvfp4", "nvfp4", "nvfp4"),
        (quark(PER_TENSOR, inputs=PER_TENSOR), "fp8-tensor", "fp8-tensor", "fp8-tensor"),
        (quark({"dtype": "uint4", "qscheme": "per_group", "group_size": 32, "symmetric": False}),
         "awq-g32", "awq-g32", "awq-g32"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {
            "targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "group_size": 32}}}},
         "mxfp4-all", "mxfp4-all", "mxfp4-all"),
    ],
)  # fmt: skip
def test_every_module_has_the_format_that_the_config_gives_it(
    quantization: dict[str, Any], native: str, attention: str, mlp: str
) -> None:
    arch = read(**quantization)
    assert arch.native_quantization == native
    assert weights(arch) == pytest.approx(counted(attention, mlp) + REST, rel=3e-3)


def test_formats_that_differ_by_module_are_said() -> None:
    rows = memory_budget(load_model("nvidia/Qwen3.6-27B-NVFP4"), find_gpu("h100-sxm")).assumptions
    assert ("weight formats", "nvfp4-w4a16, fp8-tensor") in {row[:2] for row in rows}
    rows = memory_budget(load_model("nvidia/Qwen3.6-27B-NVFP4"), find_gpu("h100-sxm"), quantization="fp8").assumptions
    assert "weight formats" not in {row[0] for row in rows}


@pytest.mark.parametrize(
    ("weight", "native"),
    [
        ({"dtype": "int8", "qscheme": "per_channel"}, "int8"), (PER_CHANNEL, "fp8"),
        ({"dtype": "fp8_e4m3", "qscheme": "per_block", "block_size": [128, 128]}, "fp8-block"),
        ({**MXFP4, "dtype": "fp8_e4m3"}, "mxfp8"),
    ],
)  # fmt: skip
def test_quark_s_8_bits_are_told_apart(weight: dict[str, Any], native: str) -> None:
    assert read(**quark(weight, inputs={"dtype": weight["dtype"]})).native_quantization == native


@pytest.mark.parametrize(
    "weight",
    [
        {"dtype": "int8", "qscheme": "per_channel"},  # without inputs in 8 bits
        {"dtype": "fp6_e3m2", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"},
        {**MXFP4, "group_size": 64}, {"dtype": "fp8_e4m3", "qscheme": "per_block", "block_size": [64, 64]},
        [{"dtype": "fp8_e4m3", "qscheme": "per_tensor"}, {"dtype": "int4", "qscheme": "per_channel"}],
    ],
)  # fmt: skip
def test_quark_s_formats_that_are_not_modelled_are_refused(weight: Any) -> None:
    with pytest.raises(ValueError, match=r"weights of quark as .* are not modelled; known: fp4 in groups of 32"):
        read(**quark(weight))


@pytest.mark.parametrize("method", ["quark", "ascend", "auto-round", "torchao"])
def test_a_method_that_says_nothing_that_is_known_is_refused_rather_than_counted_in_16_bits(method: str) -> None:
    with pytest.raises(ValueError, match=f"quant_method '{method}' is not modelled"):
        read(quant_method=method)


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [
        # Files less draft layers, encoders, a copy of the head; sources: the models' files of the catalog.
        ("Inferact/Qwen3.8-27B-NVFP4", 26.381 - 0.850), ("Inferact/Qwen3.8-2.4T-A95B-NVFP4", 1447.27 - 15.74),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-FP8", 32.7), ("nvidia/NVIDIA-Nemotron-3-Nano-4B-FP8", 4.92 * 1.0737),
        ("google/gemma-4-31B-it-qat-w4a16-ct", 20.45), ("MiniMaxAI/MiniMax-M3-MXFP8", 444 - 2),
        ("mistralai/Mistral-Large-3-675B-Instruct-2512-NVFP4", 403.2 - 5.1), ("amd/Kimi-K2.5-MXFP4", 557),
        # Its routers are held in 32 bits.
        ("inclusionAI/Ling-3.0-flash-fp8", 128.443 - 3.101 + 0.105),
        ("mistralai/Mistral-Small-4-119B-2603-NVFP4", 70.8 - 0.83),
    ],
)  # fmt: skip
def test_builds_in_other_formats_take_what_their_files_take(name: str, gigabytes: float) -> None:
    assert weights(load_model(name)) / 1e9 == pytest.approx(gigabytes, rel=0.01)


def test_nvidia_s_minimax_m3_packs_experts_in_4_bits_and_all_else_in_8() -> None:
    formats = {pair for layer in load_model("nvidia/MiniMax-M3-NVFP4").layers for pair in layer.formats}
    packed = {f"{part}.{side}" for part in ("attention", "shared_experts", "mlp") for side in ("in", "out")}
    assert dict(formats) == dict.fromkeys(packed, "mxfp8") | {"mlp.extra": "none"}


def test_a_mixed_checkpoint_without_its_list_says_where_it_is() -> None:
    with pytest.raises(ValueError, match=r"lacks quantized_layers; take the checkpoint's own config\.json or hf_quant"):
        read(quant_method="modelopt", quant_algo="MIXED_PRECISION")


def test_experts_beside_an_mlp_are_not_left_out_with_it() -> None:
    arch = load_model("nvidia/Gemma-4-26B-A4B-NVFP4")
    assert arch.unquantized == ("attention", "mlp")
    assert weights(arch) / 1e9 == pytest.approx(18.9, rel=0.01)


def test_a_builds_name_gives_the_formats_of_its_modules() -> None:
    arch = load_model("nvidia/Qwen3.6-27B-NVFP4")
    formats = {layer.formats for layer in arch.layers}
    assert {("attention.in", "fp8-tensor"), ("attention.out", "fp8-tensor")} in map(set, formats)
    assert {("state_space.in", "fp8-tensor"), ("state_space.out", "fp8-tensor")} in map(set, formats)
    assert arch.lm_head_format == "nvfp4-w4a16"


@pytest.mark.parametrize(
    ("case", "parameters", "gigabytes"),
    [
        ("gemma-4-26b-a4b-nvfp4", 25.8, 18.9), ("minimax-m2.7-official", 228.7, 230.1), ("mimo-v2-flash", 308.8, 310.3),
        ("nemotron-super-49b", 49.9, 99.7), ("qwen3.6-27b-nvfp4", 27.4, 21.1),
    ],
)  # fmt: skip
def test_published_configs_are_read(case: str, parameters: float, gigabytes: float) -> None:
    folder = CASES / case
    if not folder.exists():
        pytest.skip(f"no {folder}")
    arch = load_model(str(folder))
    assert sum(tensor.parameters for tensor in stage_tensors(arch, Parallelism(pad_vocabulary_to=1), 0)) / 1e9 == (
        pytest.approx(parameters, rel=0.005)
    )
    assert weights(arch) / 1e9 == pytest.approx(gigabytes, rel=0.005)
    assert not arch.assumptions


def test_a_builds_name_and_its_config_take_the_same_bytes() -> None:
    for case, name in (("gemma-4-26b-a4b-nvfp4", "Gemma-4-26B-A4B-NVFP4"), ("qwen3.6-27b-nvfp4", "Qwen3.6-27B-NVFP4")):
        if not (CASES / case).exists():
            pytest.skip(f"no {CASES / case}")
        assert weights(load_model(str(CASES / case))) == weights(load_model(f"nvidia/{name}"))


DECI: dict[str, Any] = {
    "model_type": "nemotron-nas", "hidden_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": None, "intermediate_size": None, "vocab_size": 1024, "max_position_embeddings": 512,
    "block_configs": [
        {"attention": {"no_op": False, "n_heads_in_group": 4}, "ffn": {"no_op": False, "ffn_mult": 2.625}},
        {"attention": {"no_op": True, "n_heads_in_group": None}, "ffn": {"no_op": False, "ffn_mult": 0.5}},
    ],
}  # fmt: skip


def test_blocks_of_unequal_widths_are_layers_of_those_widths() -> None:
    first, second = from_config(DECI, name="deci").layers
    assert first.attention is not None
    assert (first.attention.num_kv_heads, first.intermediate_size) == (2, 1792)
    assert (second.attention, second.intermediate_size) == (None, 512)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"block_configs": None}, "block_configs is missing"),
        ({"num_hidden_layers": 3}, "block_configs lists 2 blocks for 3 hidden layers"),
        ({"num_attention_heads": 6}, "n_heads_in_group 4 does not divide num_attention_heads 6"),
        ({"block_configs": [{"attention": {"replace_with_linear": True}, "ffn": {}}] * 2}, "are not modelled"),
    ],
)
def test_blocks_that_cannot_be_read_are_one_clear_error(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        from_config(json.loads(json.dumps({**DECI, **change})), name="deci")


MIMO: dict[str, Any] = {
    "model_type": "mimo_v2_flash", "hidden_size": 1024, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 192, "v_head_dim": 128, "intermediate_size": 2048, "vocab_size": 1024,
    "swa_num_attention_heads": 8, "swa_num_key_value_heads": 4, "swa_head_dim": 192, "swa_v_head_dim": 128,
    "hybrid_layer_pattern": [0, 1, 1], "moe_layer_freq": [0, 1, 1], "sliding_window": 128,
    "attention_chunk_size": 128, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256,
    "max_position_embeddings": 4096,
}  # fmt: skip


def test_lists_of_layers_say_which_have_windows_and_experts() -> None:
    layers = from_config(MIMO, name="mimo").layers
    assert [layer.experts is not None for layer in layers] == [False, True, True]
    shapes = [
        (part.window, part.chunked, part.num_kv_heads, part.value_dim) for layer in layers if (part := layer.attention)
    ]
    assert shapes == [(None, False, 2, 128), (128, False, 4, 128), (128, False, 4, 128)]
    with pytest.raises(ValueError, match="moe_layer_freq lists 2 layers for 3 hidden layers"):
        from_config({**MIMO, "moe_layer_freq": [0, 1]}, name="mimo")


def test_a_list_of_softmax_layers_alone_is_no_state() -> None:
    config = {**SMALL, "model_type": "minimax_m2", "num_local_experts": 8, "num_experts_per_tok": 2}
    assert from_config({**config, "attn_type_list": [1] * NUM_LAYERS}, name="m2").state_space is None
    with pytest.raises(ValueError, match="attn_type_list"):
        from_config({**config, "attn_type_list": [0, 1] * (NUM_LAYERS // 2)}, name="m2")


def test_a_text_model_inside_a_type_that_is_not_modelled_is_refused() -> None:
    inner = {**SMALL, "model_type": "llama"}
    with pytest.raises(ValueError, match="not modelled for model_type 'inkling_mm'"):
        from_config({"model_type": "inkling_mm", "text_config": inner}, name="ink")


def test_granite_vision_has_the_parameters_of_its_parts() -> None:
    tensors = list(stage_tensors(load_model("granite-vision-3.3-2b"), Parallelism(pad_vocabulary_to=1), 0))
    assert sum(tensor.parameters for tensor in tensors) == pytest.approx(2.975e9, rel=0.01)  # as its safetensors say
    assert {tensor.component for tensor in tensors} >= {"vision", "attention", "mlp"}
