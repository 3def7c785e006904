"""`--kv-cache-dtype auto` is what the checkpoint declares, where vLLM heeds it."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.models import quantized_names
from kvcache.formats.kv_cache_dtype import KVCacheDtype, resolve_kv_cache_dtype
from kvcache.formats.quantization import resolve_quantization
from kvcache.layout.kv_content import KV_CACHE_DTYPES
from kvcache.models.catalog import find_gpu, load_model, model_names, named_config
from kvcache.models.config.reader import from_config
from kvcache.shape.architecture import Architecture
from simulator.engines.memory import memory_budget
from simulator.engines.vllm.comparison import compare
from tests.kvcache.formats.kv_cache_configs import CASES, FP8, SCHEME, modelopt, nested, packed

H100 = find_gpu("h100-sxm")
VERSIONS = ("0.13.0", "0.14.1", "0.15.0", "0.19.1", "0.20.0", "0.21.0", "0.22.0", "0.32.0")
FORMATS = (None, "nvfp4", "fp8", "bf16", "awq", "mxfp8")


def model(quantization: dict[str, Any] | None, name: str = "llama-3.1-8b") -> Architecture:
    config = dict(named_config(name)[1])
    config.pop("quantization_config", None)
    return from_config(config | ({"quantization_config": quantization} if quantization else {}), name="made up")


def resolved(
    arch: Architecture, asked: str = "auto", quantization: str | None = None, version: str = "0.32.0"
) -> KVCacheDtype:
    scheme = resolve_quantization(quantization, arch.native_quantization, is_moe=arch.is_moe)
    return resolve_kv_cache_dtype(asked, arch, scheme, version)


@pytest.mark.parametrize(("quantization", "plain", "latent"), CASES)
@pytest.mark.parametrize("is_latent", [False, True])
def test_auto_is_what_the_checkpoint_declares(
    quantization: dict[str, Any], plain: str | None, latent: str | None, is_latent: bool
) -> None:
    expected, name = (latent, "deepseek-v2-lite") if is_latent else (plain, "llama-3.1-8b")
    if expected is None:
        with pytest.raises(ValueError, match=r"kv_cache_scheme .*vLLM loads none but symmetric 8-bit floats"):
            model(quantization, name)
        return
    assert resolved(model(quantization, name)).name == expected


READABLE = [model(quantization) for quantization, plain, _ in CASES if plain is not None]
LATENT = [model(quantization, "deepseek-v2-lite") for quantization, _, _ in CASES]
SETTINGS: dict[str, Any] = {
    "arch": st.sampled_from([model(None), *READABLE, *LATENT]),
    "quantization": st.sampled_from(FORMATS),
    "version": st.sampled_from(VERSIONS),
    "asked": st.sampled_from(KV_CACHE_DTYPES),
}


@given(**SETTINGS)
def test_resolving_twice_is_resolving_once(
    arch: Architecture, quantization: str | None, version: str, asked: str
) -> None:
    once = resolved(arch, asked, quantization, version).name
    assert resolved(arch, once, quantization, version).name == once


@given(**SETTINGS)
def test_an_explicit_format_wins_but_over_compressed_tensors_before_0_22(
    arch: Architecture, quantization: str | None, version: str, asked: str
) -> None:
    found = resolved(arch, asked, quantization, version)
    if asked in ("auto", found.name):
        return
    declared = arch.declared_kv_cache
    assert declared is not None
    assert declared.method == "compressed-tensors"
    assert version in ("0.15.0", "0.19.1", "0.20.0", "0.21.0")
    assert found.name == "fp8"
    assert f"--kv-cache-dtype {asked}" in found.assumptions[0][2]


@given(**SETTINGS)
def test_what_auto_stands_for_is_never_left_unsaid(
    arch: Architecture, quantization: str | None, version: str, asked: str
) -> None:
    found = resolved(arch, asked, quantization, version)
    if found.name != asked:
        assert [(name, value) for name, value, _ in found.assumptions] == [("KV cache", found.name)]


@pytest.mark.parametrize(
    ("quantization", "first"),
    [
        (modelopt(kv_cache_quant_algo="FP8"), "0.14.1"),
        (modelopt(kv_cache_quant_algo="NVFP4"), "0.20.0"),
        (packed(SCHEME), "0.15.0"),
    ],
)
def test_releases_before_the_rule_keep_16_bits_and_say_so(quantization: dict[str, Any], first: str) -> None:
    arch = model(quantization)
    followed = [version for version in VERSIONS if resolved(arch, version=version).name != "auto"]
    assert followed == list(VERSIONS[VERSIONS.index(first) :])
    (row,) = resolved(arch, version="0.13.0").assumptions
    assert row[:2] == ("KV cache", "bfloat16")
    assert "which vLLM uses since 0." in row[2]
    assert "; --kv-cache-dtype" in row[2]


def test_nvidia_s_nvfp4_of_a_16_bit_model_brings_an_fp8_cache() -> None:
    kimi, b200 = load_model("kimi-k2.5"), find_gpu("b200-sxm")
    settings: dict[str, Any] = {"tensor_parallel_size": 8, "quantization": "nvfp4"}
    auto = memory_budget(kimi, b200, **settings)
    explicit = memory_budget(kimi, b200, kv_cache_dtype="bfloat16", **settings)
    assert (auto.kv_cache_dtype, explicit.kv_cache_dtype) == ("fp8_e4m3", "bfloat16")
    assert auto.kv_bytes_per_token * 2 == explicit.kv_bytes_per_token
    assert auto.num_gpu_blocks // 2 == explicit.num_gpu_blocks
    why = {name: text for name, _, text in auto.assumptions}
    assert "as NVIDIA's nvfp4 checkpoints declare" in why["KV cache"]
    assert "give --kv-cache-dtype bfloat16" in why["KV cache"]
    assert "KV cache" not in {name for name, _, _ in explicit.assumptions}


def test_a_checkpoint_in_nvfp4_that_declares_nothing_keeps_16_bits() -> None:
    budget = memory_budget(model(nested()), H100)
    assert (budget.quantization, budget.kv_cache_dtype) == ("nvfp4", "auto")


@pytest.mark.parametrize("groups", [{}, {"attention": {"targets": ["LlamaAttention"], "weights": None}}])
def test_a_checkpoint_may_declare_a_cache_and_keep_16_bit_weights(groups: dict[str, Any]) -> None:
    arch = model(packed(SCHEME) | {"config_groups": groups})
    budget = memory_budget(arch, H100)
    assert (budget.quantization, budget.kv_cache_dtype) == ("none", "fp8")
    assert budget.weights_bytes == memory_budget(model(None), H100).weights_bytes


def test_another_format_than_the_checkpoint_s_does_not_inherit_its_cache() -> None:
    arch = model(modelopt(kv_cache_quant_algo="FP8"))
    assert resolved(arch).name == "fp8_e4m3"
    assert resolved(arch, quantization="fp8").name == "fp8_e4m3"  # its own, called loosely
    assert resolved(arch, quantization="awq").name == "auto"


def test_modelopt_s_word_counts_in_the_outer_config_alone() -> None:
    config = {key: value for key, value in named_config("llama-3.1-8b")[1].items() if key != "architectures"}
    inner = {**config, "text_config": {**config, "quantization_config": modelopt(kv_cache_scheme=FP8)}}
    assert from_config(inner, name="nested").declared_kv_cache is None
    text = {**config, "text_config": {**config, "quantization_config": packed(SCHEME)}}
    assert from_config(text, name="nested").declared_kv_cache is not None


def test_modelopt_s_own_file_beside_a_config_is_read_as_vllm_does(tmp_path: Path) -> None:
    config = dict(named_config("llama-3.1-8b")[1])
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    inner = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head"]}
    beside = {"producer": {"name": "modelopt", "version": "0.35.0"}, "quantization": inner}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside), encoding="utf-8")
    arch = load_model(str(tmp_path))
    assert arch.native_quantization == "nvfp4"
    assert resolved(arch).name == "fp8_e4m3"
    (tmp_path / "config.json").write_text(
        json.dumps(config | {"quantization_config": {"quant_method": "fp8"}}), encoding="utf-8"
    )
    assert load_model(str(tmp_path)).native_quantization == "fp8-tensor"  # the config's own word comes first


def test_a_comparison_shows_each_format_of_the_cache_once() -> None:
    found = compare(model(packed(SCHEME)), H100, quantizations=(None, "awq"), tensor_parallel_sizes=(1,))
    shown = [(row.budget.quantization, row.budget.kv_cache_dtype) for row in found if row.budget is not None]
    assert shown == [("fp8", "fp8"), ("fp8", "bfloat16"), ("awq", "auto"), ("awq", "fp8")]


def test_of_the_catalogs_checkpoints_few_but_nvidias_are_known_to_declare_a_cache() -> None:
    # Seven of RedHatAI's have logs of vLLM 0.19, which would have set FP8: they hold the tokens of 16 bits. Whoever
    # learns of another's kv_cache_scheme writes it into its file in kvcache/models, with its source.
    names = [*model_names(), *quantized_names()]
    declaring = {name for name in names if load_model(name).declared_kv_cache is not None}
    by_modelopt = {"Qwen/Qwen3-32B-FP8-Static-PerTensor"}
    theirs = {name for name in quantized_names() if name.startswith("nvidia/")}
    # kv_cache_quant_algo is null in these
    declared_null = {name for name in theirs if "DeepSeek-V4" in name or "MiniMax-M3" in name}
    by_recipes = {"poolside/Laguna-S-2.1-INT4"}  # vllm-project/recipes: it ships an FP8 cache
    assert declaring == by_modelopt | by_recipes | theirs - declared_null


def test_another_float_than_the_model_s_is_refused_since_0_33() -> None:
    llama, gpu = load_model("llama-3.1-8b"), find_gpu("h100-sxm")
    asked: dict[str, Any] = {"kv_cache_dtype": "float16", "max_model_len": 8192}
    with pytest.raises(ValueError, match=r"vLLM 0\.33 refuses kv_cache_dtype 'float16' for a model in bfloat16"):
        memory_budget(llama, gpu, **asked)
    for settings in ({"vllm_version": "0.32.0"}, {"dtype": "float16"}, {"kv_cache_dtype": "bfloat16"}):
        assert memory_budget(llama, gpu, **{**asked, **settings}).fits
