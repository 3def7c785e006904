"""Our parameter counts are compared with transformers' models, and a difference would be seen."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.components import parameters as checker
from conformance.components.cases.parameter_cases import TEXT_LIKE, model_types, random_config
from conformance.components.parameters import (
    ParameterComparison,
    catalog_configs,
    check_parameters,
    compare,
    random_configs,
)
from kvcache.models.config.families import known_families
from kvcache.models.config.reader import from_config
from kvcache.shape.parameters import COMPONENTS, parameter_counts

RANDOM_CONFIGS_PER_TYPE = 40
# What the catalog has and transformers 5.19 cannot build: its text model is compared by itself, under the model_type
# whose class it names where its own is not known; its encoder with vLLM's in tests/kvcache/models/test_vision.py.
NOT_IN_TRANSFORMERS = {
    "moonshotai/Kimi-K2-Instruct": "no model_type 'kimi_k2'",
    "moonshotai/Kimi-K2-Instruct-0905": "no model_type 'kimi_k2'",
    "moonshotai/Kimi-K2-Thinking": "no model_type 'kimi_k2'",
    "moonshotai/Kimi-VL-A3B-Instruct": "no model_type 'kimi_vl'",
    "google/gemma-3n-E2B-it": "ImportError",
    "google/gemma-3n-E4B-it": "ImportError",
    "MiniMaxAI/MiniMax-M3": "no model_type 'minimax_m3'",
    "XiaomiMiMo/MiMo-7B-Base": "no model_type 'mimo'",
    "internlm/Intern-S2-Preview": "no model_type 'intern_s2_preview'",
    "OpenGVLab/InternVL3_5-8B": "no model_type 'internvl_chat'",
    "internlm/Intern-S1": "no model_type 'interns1'",
    "microsoft/Phi-4-multimodal-instruct": "no model_type 'phi4mm'",
    "nvidia/NVIDIA-Nemotron-Nano-12B-v2-VL-BF16": "no model_type 'NemotronH_Nano_VL_V2'",
    "nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning-BF16": "no model_type 'NemotronH_Nano_Omni_Reasoning_V3'",
}
CLASS_OF = {"kimi_k2": "deepseek_v3", "minimax_m3": "minimax_m3_vl_text", "mimo": "qwen2", "phi4mm": "phi3"}
# vLLM reads their params.json as a router without a bias for balance (configs/mistral.py); the class always has one.
WITHOUT_BALANCE = {
    "mistralai/Mistral-Large-3-675B-Instruct-2512": 58 * 128,
    "mistralai/Mistral-Small-4-119B-2603": 36 * 128,
}
# What no class of transformers' builds.
WITHOUT_CLASS = {
    "moonshotai/Kimi-K3": "no model_type 'kimi_k3'",
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1": "no model_type 'nemotron-nas'",
    "XiaomiMiMo/MiMo-V2.5": "no model_type 'mimo_v2'",
    "XiaomiMiMo/MiMo-V2.5-Pro": "no model_type 'mimo_v2'",
    "deepseek-ai/DeepSeek-OCR": "no model_type 'deepseek_vl_v2'",
    "deepseek-ai/DeepSeek-OCR-2": "no model_type 'deepseek_vl_v2'",
    "inclusionAI/Ring-1T": "no model_type 'bailing_moe'",
    "inclusionAI/Ling-2.6-flash": "no model_type 'bailing_hybrid'",
    "inclusionAI/Ling-2.6-1T": "no model_type 'bailing_hybrid'",
    "inclusionAI/Ring-2.6-1T": "no model_type 'bailing_hybrid'",
    "inclusionAI/Ling-3.0-flash": "no model_type 'bailing_hybrid'",
    "stepfun-ai/Step-3.5-Flash": "for this kind of AutoModel",  # the text of Step-3.7-Flash
}


def probed(name: str, config: dict[str, Any]) -> dict[str, Any]:
    """What the probe would say if transformers agreed with us; the router's bias is a buffer there."""
    parameters = {key: count for key, count in parameter_counts(from_config(config, name=name)).items() if count}
    line = {"name": name, "transformers": "5.19.0", "model_class": "Model", "parameters": parameters, "buffers": {}}
    return line | {"total": sum(parameters.values())}


def compared(name: str, config: dict[str, Any], theirs: dict[str, Any]) -> ParameterComparison:
    found = ParameterComparison()
    compare(found, name, config, theirs)
    return found


def test_a_config_is_decided_by_its_seed_type_and_number_alone() -> None:
    assert random_config(3, "qwen3", 5) == random_config(3, "qwen3", 5) != random_config(3, "qwen3", 6)


def test_every_known_family_has_random_configs_that_we_read_without_assumptions() -> None:
    # Its config class is deepseek_v3's; the other's encoder needs a library that vLLM does not bring.
    not_built = {"kimi_k2", "gemma3n"}
    # Their config classes come with their checkpoints, not with transformers.
    not_built |= {"mimo", "mimo_v2", "mimo_v2_flash", "nemotron-nas", "deci"}
    not_built |= {"flint", "beam"}  # vLLM has these config classes alone
    # transformers' text model has a name of its own; its encoder is not counted here.
    not_built |= {"minimax_m3", "minimax_m3_vl"}
    not_built |= {"phi4mm"}  # its class is phi4_multimodal, with another config; the text is phi3's
    not_built |= {"step3p5", "step3p7"}  # the catalog's are compared whole
    # Config classes of their checkpoints.
    not_built |= {"bailing_moe", "bailing_hybrid", "bailing_moe_v3", "deepseek_vl_v2", "intern_s2_preview"}
    not_built |= {"ernie4_5_moe_vl", "ernie4_5_vl_moe_text"}  # small heads have no room for its positions
    assert set(known_families()) - not_built - set(TEXT_LIKE) <= set(model_types())
    assert len(model_types()) >= 60
    for name, config in random_configs(0, 20).items():
        assert not from_config(config, name=name).assumptions


def test_random_configs_reach_every_component() -> None:
    counts = [parameter_counts(from_config(config, name=name)) for name, config in random_configs(0, 10).items()]
    for component in COMPONENTS:
        assert sum(count[component] > 0 for count in counts) >= 10, component


def test_counts_that_agree_are_no_difference() -> None:
    config = random_config(1, "deepseek_v3", 0)
    found = compared("agreed", config, probed("agreed", config))
    assert (found.equal, found.model_types, found.differences) == (["agreed"], {"deepseek_v3"}, [])


@pytest.mark.parametrize("component", [*COMPONENTS, "other"])
def test_one_parameter_too_many_is_found_in_its_component(component: str) -> None:
    config = random_config(1, "llama4", 0)
    theirs = probed("planted", config)
    theirs["parameters"][component] = theirs["parameters"].get(component, 0) + 1
    theirs["total"] += 1
    found = compared("planted", config, theirs)
    assert not found.equal
    assert [list(each.components) for each in found.differences] == [[component]]
    ours, transformers = found.differences[0].components[component]
    assert transformers - ours == 1


def test_a_parameter_that_moves_between_components_is_two_differences() -> None:
    config = random_config(1, "qwen2_moe", 0)
    theirs = probed("moved", config)
    theirs["parameters"]["experts"] -= 1
    theirs["parameters"]["shared_experts"] += 1
    assert set(compared("moved", config, theirs).differences[0].components) == {"experts", "shared_experts"}


def test_what_vllm_does_not_load_is_named_and_no_difference() -> None:
    config = random_config(1, "gemma3", 0)
    theirs = probed("headed", config)
    theirs["parameters"]["vision_head"] = 123
    theirs["total"] += 123
    found = compared("headed", config, theirs)
    assert (found.not_loaded, found.differences) == ({"headed": 123}, [])


def test_a_buffer_that_vllm_holds_as_a_parameter_counts() -> None:
    config = random_config(1, "glm4_moe", 0)
    theirs = probed("biased", config)
    theirs["parameters"]["router"] -= 8
    theirs["total"] -= 8
    assert compared("biased", config, theirs).differences
    theirs["buffers"]["router"] = 8
    found = compared("biased", config, theirs)
    assert (found.buffers, found.differences) == ({"biased": 8}, [])


def test_a_model_that_transformers_cannot_build_is_listed_with_the_reason() -> None:
    theirs = {"name": "new", "transformers": "5.19.0", "unknown": "no model_type 'new'"}
    found = compared("new", {"model_type": "new"}, theirs)
    assert (found.unknown, found.equal) == ({"new": "no model_type 'new'"}, [])


def test_an_answer_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    configs = random_configs(0, 1)

    def all_but_one(*_: Any, **__: Any) -> Iterator[dict[str, Any]]:
        yield from [probed(name, config) for name, config in configs.items()][:-1]

    monkeypatch.setattr(checker, "answers", all_but_one)
    with pytest.raises(ValueError, match="zip"):
        check_parameters(Path("unused"), configs)


def test_an_interpreter_without_transformers_is_one_clear_error(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 'ModuleNotFoundError: No module named torch' >&2\nexit 1\n", encoding="utf-8")
    fake.chmod(0o755)
    with pytest.raises(ValueError, match=r"could not be run by .*python: ModuleNotFoundError: No module named torch"):
        check_parameters(fake, random_configs(0, 1))


@pytest.mark.slow
def test_the_whole_catalog_has_transformers_parameters_to_the_last_one(vllm_python: Path) -> None:
    found = check_parameters(vllm_python, catalog_configs())
    more = {each.name: each.components for each in found.differences}
    assert all(list(parts) == ["router"] for parts in more.values())
    assert {name: parts["router"][1] - parts["router"][0] for name, parts in more.items()} == WITHOUT_BALANCE
    unknown = NOT_IN_TRANSFORMERS | WITHOUT_CLASS
    assert set(found.unknown) == set(unknown)
    assert all(unknown[name] in reason for name, reason in found.unknown.items())
    assert len(found.equal) == len(catalog_configs()) - len(unknown) - len(WITHOUT_BALANCE)
    assert len(found.model_types) >= 23
    assert set(found.not_loaded) == {"ibm-granite/granite-vision-3.3-2b"}  # SigLIP's pooling head
    configs = {name: catalog_configs()[name] for name in NOT_IN_TRANSFORMERS}
    texts = {name: config.get("text_config", config.get("llm_config", config)) for name, config in configs.items()}
    texts = {
        name: {**text, "model_type": CLASS_OF.get(text["model_type"], text["model_type"])}
        for name, text in texts.items()
    }
    # The copy of its config that we have counts its dense layers, and the class wants each layer's flag.
    texts["MiniMaxAI/MiniMax-M3"]["moe_layer_freq"] = [0] * 3 + [1] * 57
    assert check_parameters(vllm_python, texts).equal == list(texts)
    # Choosing among experts by their load: a buffer in transformers, one parameter per expert in vLLM.
    assert found.buffers == {
        "deepseek-ai/DeepSeek-R1": 58 * 256,
        "deepseek-ai/DeepSeek-V3": 58 * 256,
        "deepseek-ai/DeepSeek-V3.2": 58 * 256,
        "MiniMaxAI/MiniMax-M2.5": 62 * 256,
        "MiniMaxAI/MiniMax-M2.7": 62 * 256,
        "moonshotai/Kimi-K2.5": 60 * 384,
        "zai-org/GLM-4.5": 89 * 160,
        "zai-org/GLM-4.5-Air": 45 * 128,
        "zai-org/GLM-4.6": 89 * 160,
        "zai-org/GLM-4.5V": 45 * 128,
        "zai-org/GLM-4.6V": 45 * 128,
        "tencent/Hy3": 79 * 192,
        "stepfun-ai/Step-3.7-Flash": 42 * 288,
        "LiquidAI/LFM2.5-8B-A1B": 22 * 32,
        **WITHOUT_BALANCE,
        "zai-org/GLM-5": 75 * 256,
        "zai-org/GLM-5.2": 75 * 256,
        # The first three layers look their six experts up by the token.
        "deepseek-ai/DeepSeek-V4-Flash": 40 * 256 + 3 * 6 * 129_280,
        "deepseek-ai/DeepSeek-V4-Pro": 58 * 384 + 3 * 6 * 129_280,
        "XiaomiMiMo/MiMo-V2-Flash": 47 * 256,
        "moonshotai/Kimi-Linear-48B-A3B-Instruct": 26 * 256,
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": 23 * 128,
        "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16": 23 * 128,
        "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16": 40 * 512,
        "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": 48 * 512,
        # A scalar per layer, and what the larger ones standardize images with.
        "google/gemma-4-12B-it": 48,
        "google/gemma-4-26B-A4B-it": 30 + 2 * 1152,
        "google/gemma-4-31B-it": 60 + 2 * 1152,
        "google/gemma-4-E2B-it": 35,
        "google/gemma-4-E4B-it": 42,
    }


@pytest.mark.slow
def test_random_configs_of_at_least_25_architectures_have_transformers_parameters(vllm_python: Path) -> None:
    """A new seed each time, so that every run looks at configs that nobody has seen."""
    seed = secrets.randbelow(2**31)
    print(f"seed {seed}")
    found = check_parameters(vllm_python, random_configs(seed, RANDOM_CONFIGS_PER_TYPE))
    assert found.differences == [], seed
    assert found.unknown == {}, seed
    assert found.model_types == set(model_types())
    assert len(found.model_classes) >= 40
    assert len(found.not_loaded) >= 5  # SigLIP heads
