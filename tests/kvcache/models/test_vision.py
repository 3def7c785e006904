"""How many parameters an image encoder has."""

from dataclasses import replace
from typing import Any

import pytest

from kvcache.models.catalog import load_model
from kvcache.models.config.reader import from_config
from kvcache.models.config.vision import vision_parameters
from kvcache.parallelism import Parallelism
from kvcache.shape.architecture import Architecture
from kvcache.shape.parameters import active_parameters, stage_tensors, total_parameters

TEXT: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 100,
}  # fmt: skip
SIGLIP = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "patch_size": 4, "image_size": 16}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # Published totals less the text models'.
        ("llama-4-scout", 871_932_416),
        ("mistral-small-3.1", 438_958_080),
        ("qwen2.5-vl-7b", 676_550_144),
        ("qwen3-vl-8b", 576_388_336),
        ("llava-1.5-7b", 303_507_456 + 20_979_712),
        # The widths of InternViT-300M-448px with its projector; its card says 304 million.
        ("OpenGVLab/InternVL3_5-8B", 304_012_288 + 33_570_816),
        # vLLM 0.32, MoonVitPretrainedModel with KimiVLMultiModalProjector on torch's meta device.
        ("kimi-vl-a3b", 416_866_032 + 30_679_808),
        # transformers 5.19, Kimi_K25ForConditionalGeneration likewise.
        ("kimi-k2.5", 471_143_920),
        ("zai-org/Glyph", 892_498_432),
        ("step-3.7-flash", 1_981_014_784),
        ("google/gemma-4-12B-it", 52_379_904),
        # transformers 5.19, their own classes on torch's meta device.
        ("zai-org/GLM-OCR", 434_120_192),
        ("PaddlePaddle/PaddleOCR-VL", 412_987_248 + 25_960_192),
        ("meta-models/Muse-Glimmer-30B", 1_921_845_760),
        ("tencent/HunyuanOCR", 457_198_064),
        ("openbmb/MiniCPM-V-4.6", 522_299_312 + 25_967_104),
        ("zai-org/GLM-GA", 892_498_432),
        # InternViT-6B-448px with its projector.
        ("internlm/Intern-S1", 5_536_473_600 + 69_262_208),
        ("baidu/ERNIE-4.5-VL-28B-A3B-PT", 630_433_280 + 144_225_280),
        # vLLM 0.32, SiglipVisionModel, then the projector of Gemma 3: 1152 × 5376 with one norm.
        ("gemma-3-27b", 416_866_032 + 1152 * 5376 + 1152),
        ("llama-3.1-8b", 0),
    ],
)
def test_the_catalog_s_encoders_have_their_known_size(name: str, parameters: int) -> None:
    assert load_model(name).vision_parameters == parameters


def of_a_rank(model: Architecture, ranks: int) -> int:
    """Parameters of the encoder on one of so many."""
    tensors = stage_tensors(model, Parallelism(tensor_parallel_size=ranks), 0)
    return sum(tensor.parameters for tensor in tensors if tensor.component == "vision")


def test_the_attention_of_intern_s1_s_encoder_is_whole_on_every_rank() -> None:
    model = load_model("internlm/Intern-S1")
    mlps = 45 * (2 * 3200 * 12800 + 12800)
    assert [of_a_rank(model, ranks) for ranks in (1, 8)] == [
        model.vision_parameters,
        model.vision_parameters - mlps * 7 // 8,
    ]
    assert total_parameters(model) / 1e9 == pytest.approx(241, abs=0.5)  # its card


def test_phi_4_s_conformer_is_whole_on_every_rank_and_its_adapters_are_no_part_of_it() -> None:
    model = load_model("microsoft/Phi-4-multimodal-instruct")
    seen, heard = 213_046_160, 466_416_416  # vLLM 0.33 on the meta device: of one of two ranks
    assert of_a_rank(model, 2) == seen + heard
    widths = (3072, 5120), (3072, 3072), (3072, 2 * 8192), (8192, 3072)
    adapters = 32 * (256 + 320) * sum(inputs + outputs for inputs, outputs in widths)
    not_loaded = 441_550_016 - 411_069_856  # SigLIP's last layer and its head
    assert total_parameters(model) + adapters + not_loaded == 5_574_460_384  # its checkpoint
    assert model.modalities == ("image", "audio")


def test_radio_s_positions_and_the_projector_are_whole_on_every_rank() -> None:
    model = load_model("nvidia/NVIDIA-Nemotron-Nano-12B-v2-VL-BF16")
    projector, tokens = 5120 + 20480 * (5120 + 5120), 9 * 1280
    # vLLM 0.33's RadioModel on the meta device, which had one token there.
    whole = tokens + projector
    assert [of_a_rank(model, ranks) for ranks in (1, 2)] == [651_715_840 + whole, 336_999_680 + whole]
    assert total_parameters(model) - model.vision_parameters == 12_310_001_152
    assert {layer.state.state_dtype for layer in model.layers if layer.state} == {"float32"}


def test_what_nemotron_3_nano_omni_sees_and_hears_with() -> None:
    model = load_model("nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning-BF16")
    # vLLM 0.33's RadioModel for two frames a piece, its ProjectedParakeet, on the meta device.
    radio, parakeet = 653_681_920 + 9 * 1280, 624_183_296
    assert model.vision_parameters == radio + parakeet + 5120 + 20480 * (5120 + 2688)
    text = load_model("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    assert total_parameters(model) == total_parameters(text) + model.vision_parameters
    assert total_parameters(model) * 2 / 1e9 == pytest.approx(66, abs=0.5)  # its files
    assert model.modalities == ("image", "video", "audio")


def test_a_side_of_a_piece_may_be_written_twice() -> None:
    text = {**TEXT, "hidden_size": 64}
    sides = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "patch_size": [4, 4], "image_size": 16}
    counts = [
        vision_parameters(
            {"model_type": "interns1", "text_config": text, "vision_config": {**sides, "patch_size": size}}
        )
        for size in ([4, 4], 4)
    ]
    assert counts[0] == counts[1]
    with pytest.raises(ValueError, match="patch_size"):
        vision_parameters(
            {"model_type": "interns1", "text_config": text, "vision_config": {**sides, "patch_size": [4, 2]}}
        )


def test_ernie_s_lists_are_its_experts_of_words_then_of_images() -> None:
    flat = {
        "model_type": "ernie4_5_moe_vl", "hidden_size": 2560, "intermediate_size": 12288, "num_hidden_layers": 28,
        "num_attention_heads": 20, "moe_num_experts": [64, 64], "moe_intermediate_size": [1536, 512], "moe_k": 6,
        "moe_num_shared_experts": 2, "moe_layer_start_index": [1, 1], "moe_layer_end_index": [29, 28],
        "vocab_size": 103424, "max_position_embeddings": 131072, "vision_config": {"hidden_size": 1280, "mlp_ratio": 4},
    }  # fmt: skip
    published, own = from_config(flat, name="flat"), load_model("baidu/ERNIE-4.5-VL-28B-A3B-PT")
    assert replace(published, name="", model_type="", outer_type="") == replace(
        own, name="", model_type="", outer_type=""
    )
    assert total_parameters(own) == 29_399_294_336  # transformers 5.19 Ernie4_5_VLMoeForConditionalGeneration
    assert active_parameters(own) / 1e9 == pytest.approx(3.35, rel=0.01)  # none of those of images


def test_widths_that_a_saved_config_leaves_out_are_the_class_s_own() -> None:
    bare = {"model_type": "kimi_k25", "text_config": {**TEXT, "hidden_size": 7168}, "vision_config": {"patch_size": 14}}
    assert vision_parameters(bare) == load_model("kimi-k2.5").vision_parameters


def test_both_spellings_of_kimi_s_widths_are_read() -> None:
    text = {**TEXT, "hidden_size": 7168}
    spelled = {"vt_hidden_size": 576, "vt_num_hidden_layers": 3, "init_pos_emb_height": 8, "init_pos_emb_width": 4}
    plain = {"hidden_size": 576, "num_hidden_layers": 3, "pos_emb_height": 8, "pos_emb_width": 4}
    counts = {
        vision_parameters({"model_type": "kimi_k25", "text_config": text, "vision_config": vision})
        for vision in (spelled, plain)
    }
    assert len(counts) == 1


def test_the_pooling_head_is_not_loaded_whatever_the_config_says() -> None:
    configs = [
        {"model_type": "gemma3", "text_config": TEXT, "vision_config": {**SIGLIP, "vision_use_head": head}}
        for head in (True, False)
    ]
    assert vision_parameters(configs[0]) == vision_parameters(configs[1]) > 0


def test_an_unknown_encoder_is_read_like_siglip_with_a_named_assumption() -> None:
    arch = from_config({"model_type": "brand_new_vl", "text_config": TEXT, "vision_config": SIGLIP}, name="new")
    known = vision_parameters({"model_type": "gemma3", "text_config": TEXT, "vision_config": SIGLIP})
    assert arch.vision_parameters == known
    assert any("'brand_new_vl'" in why for _, _, why in arch.assumptions)
    sizeless = {"model_type": "brand_new_vl", "text_config": TEXT, "vision_config": {"depth": 2}}
    assert vision_parameters(sizeless) == 0
    assert any(what == "vision encoder" for what, _, _ in from_config(sizeless, name="new").assumptions)


def test_a_width_that_is_no_number_is_one_line_that_names_it() -> None:
    config = {"model_type": "gemma3", "text_config": TEXT, "vision_config": {**SIGLIP, "hidden_size": "wide"}}
    with pytest.raises(ValueError, match="vision_config: hidden_size is 'wide'; it must be a whole number"):
        from_config(config, name="test")


def test_an_encoder_without_the_width_of_its_mlps_is_refused() -> None:
    config = {"model_type": "gemma3", "text_config": TEXT, "vision_config": {**SIGLIP, "intermediate_size": None}}
    with pytest.raises(ValueError, match="vision_config: intermediate_size"):
        vision_parameters(config)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("Qwen/Qwen3.5-0.8B", "float32"),
        ("openbmb/MiniCPM-V-4.6", "auto"),
        ("internlm/Intern-S2-Preview", "auto"),
        ("nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning-BF16", "auto"),
        ("nvidia/NVIDIA-Nemotron-Nano-12B-v2-VL-BF16", "float32"),
    ],
)
def test_only_some_classes_read_the_dtype_of_their_states(name: str, dtype: str) -> None:
    assert {layer.state.state_dtype for layer in load_model(name).layers if layer.state} == {dtype}
