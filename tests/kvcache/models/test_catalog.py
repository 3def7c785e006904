"""What the catalog's files promise."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.models import quantized_names
from files.errors import HeadcountError
from files.names import UnknownNameError
from kvcache.gpus.gpu import GPUS, read_gpu
from kvcache.models.builds import Build, builds
from kvcache.models.catalog import (
    ALIASES,
    find_gpu,
    find_quantization,
    gpu_names,
    load_model,
    model_files,
    model_names,
    model_source,
    quantization_names,
    slug_of,
)
from kvcache.models.config.checkpoint_format import native_quantization
from kvcache.shape.architecture import Architecture
from kvcache.shape.layer import Layer
from simulator.engines.memory import memory_budget


@pytest.mark.parametrize("path", model_files(), ids=lambda path: path.stem)
def test_every_model_has_a_source_and_loads_by_name_and_alias(path: Path) -> None:
    entry = json.loads(path.read_text(encoding="utf-8"))
    assert entry["source"].strip()
    assert path.stem == slug_of(entry["name"])
    for name in (entry["name"], entry["name"].upper(), entry["name"].split("/")[-1], *entry["aliases"]):
        assert load_model(name).name == entry["name"]
    assert model_source(entry["name"]) == entry["source"]
    assert not load_model(entry["name"]).assumptions


def test_the_alias_file_says_what_the_model_files_say() -> None:
    expected = {}
    for path in model_files():
        entry = json.loads(path.read_text(encoding="utf-8"))
        others = [*entry["aliases"], *entry.get("quantized", {})]
        for alias in (entry["name"].split("/")[-1], *others, *(a.split("/")[-1] for a in others)):
            assert expected.setdefault(slug_of(alias), path.stem) == path.stem, f"{alias} names two models"
    assert json.loads(ALIASES.read_text(encoding="utf-8")) == dict(sorted(expected.items()))


def as_counted(arch: Architecture) -> list[Layer]:
    """The layers without their weight formats."""
    return [replace(layer, formats=()) for layer in arch.layers]


@pytest.mark.parametrize(("name", "base"), quantized_names().items())
def test_a_quantized_checkpoint_is_its_model_in_its_own_format(name: str, base: str) -> None:
    for spelling in (name, name.lower(), name.rsplit("/", maxsplit=1)[-1]):
        found = load_model(spelling)
        assert found.name == name
        assert find_quantization(str(found.native_quantization))
        fields = ("layers", "native_quantization", "unquantized", "lm_head_format", "declared_kv_cache")
        own = {field: getattr(found, field) for field in fields}
        assert found == replace(load_model(base), name=name, **own)
        assert as_counted(found) == as_counted(load_model(base))


def test_the_format_follows_from_what_the_checkpoint_says() -> None:
    formats = {
        "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic": "fp8",
        "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8": "int8",
        "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16": "w4a16",
        "Qwen/Qwen2.5-72B-Instruct-AWQ": "awq",
        "Qwen/Qwen3-32B-FP8": "fp8-block",
    }
    assert {name: load_model(name).native_quantization for name in formats} == formats


@pytest.mark.parametrize("name", gpu_names())
def test_every_gpu_leaves_room_beside_a_small_model(name: str) -> None:
    gpu = find_gpu(name)
    budget = memory_budget(load_model("qwen2.5-3b"), gpu, max_model_len=8192)
    assert budget.num_gpu_blocks > 0
    assert budget.requested_bytes < gpu.memory_bytes


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("DGX Spark", "gb10"), ("GB10", "gb10"), ("A800", "a800"), ("NVIDIA A800-SXM4-80GB", "a800"), ("H800", "h800"),
        ("RTX PRO 5000", "rtx-pro-5000"), ("Radeon AI PRO R9700", "r9700"), ("V100", "v100"),
        ("Tesla V100-SXM2-32GB", "v100"), ("RTX 5060 Ti", "rtx-5060-ti"),
    ],
)  # fmt: skip
def test_gpus_are_found_by_the_names_that_people_type(typed: str, name: str) -> None:
    assert find_gpu(typed).name == name


def test_two_gpus_never_share_a_name() -> None:
    spellings = [spelling for name in gpu_names() for spelling in (name, *find_gpu(name).aliases)]
    assert len(spellings) == len(set(spellings))


def test_every_gpu_has_the_name_that_its_vendor_sells_it_under() -> None:
    titles = [find_gpu(name).title for name in gpu_names()]
    assert [title for title in titles if not title.startswith(("NVIDIA ", "AMD "))] == []
    assert len(titles) == len(set(titles))


def test_at_least_130_models_25_gpus_and_every_weight_format_are_known() -> None:
    assert len(model_names()) >= 130
    assert len(gpu_names()) >= 25
    assert {"none", "fp32", "fp16", "bf16", "fp8", "int8", "awq", "gptq", "nf4", "mxfp4", "nvfp4"} <= set(
        quantization_names()
    )


@pytest.mark.parametrize("name", gpu_names())
def test_every_gpu_figure_has_a_source_with_a_date(name: str) -> None:
    gpu = find_gpu(name)
    for field, text in gpu.source.items():
        assert "20" in text, f"{name}: {field} has no date"
    assert gpu.flops_per_s["bf16"] > 0
    assert gpu.interconnect in ("nvlink", "pcie")
    assert all(find_gpu(alias) is not None for alias in gpu.aliases)


@pytest.mark.parametrize("field", ["memory_bytes", "flops_per_s", "usd_per_hour"])
def test_a_gpu_file_without_a_source_is_refused(field: str, tmp_path: Path) -> None:
    text = GPUS.path("l4").read_text(encoding="utf-8")
    figures, sources = text.split("[source]")
    kept = "\n".join(line for line in sources.splitlines() if not line.startswith(field))
    broken = tmp_path / "l4.toml"
    broken.write_text(f"{figures}[source]\n{kept}", encoding="utf-8")
    with pytest.raises(ValueError, match=f"no source for {field}"):
        read_gpu(broken)


def test_an_unknown_gpu_field_is_refused(tmp_path: Path) -> None:
    text = GPUS.path("l4").read_text(encoding="utf-8")
    broken = tmp_path / "l4.toml"
    broken.write_text(f"colour = 'green'\n{text}", encoding="utf-8")
    with pytest.raises(ValueError, match="colour"):
        read_gpu(broken)


@pytest.mark.parametrize("name", quantization_names())
def test_every_weight_format_has_a_source(name: str) -> None:
    assert find_quantization(name).source.strip()


def test_an_unknown_name_is_met_with_the_nearest_and_the_file_to_write() -> None:
    with pytest.raises(UnknownNameError, match=r"no GPU 'h10'; did you mean .*To add one, write gpus/h10\.toml"):
        find_gpu("h10")
    with pytest.raises(UnknownNameError, match=r"did you mean .*llama-3\.1-8b.*models/llama-3\.1-8.\.json"):
        load_model("llama-3.1-8c")
    with pytest.raises(UnknownNameError) as twice:
        load_model("llama-3.18b")
    assert str(twice.value).replace("llama3.1", "llama-3.1").count("'llama-3.1-8b'") == 1
    with pytest.raises(UnknownNameError, match=r"no quantization 'fp9'; did you mean 'fp8'"):
        find_quantization("fp9")


def test_short_gpu_names_find_the_usual_form() -> None:
    assert find_gpu("H100").name == "h100-sxm"
    assert find_gpu("h200_sxm").name == "h200-sxm"


def test_loading_one_model_with_one_gpu_imports_no_numpy() -> None:
    code = (
        "import sys; from kvcache.models.catalog import load_model, find_gpu; import kvcache.memory.budget; "
        "load_model('llama-3.1-8b'); find_gpu('h100-sxm'); "
        "assert not {'numpy', 'pandas', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("name", "base", "weights", "kv_cache"),
    [
        ("nvidia/Llama-3.3-70B-Instruct-FP8", "llama-3.3-70b", "fp8-tensor", "fp8_e4m3"),
        ("nvidia/Qwen3-30B-A3B-FP4", "qwen3-30b-a3b", "nvfp4", "fp8_e4m3"),
        ("RedHatAI/Qwen3-32B-FP8-dynamic", "qwen3-32b", "fp8", None),
        ("neuralmagic/Meta-Llama-3.1-405B-Instruct-quantized.w4a16", "llama-3.1-405b", "w4a16", None),
        ("Qwen/Qwen3-30B-A3B-GPTQ-Int4", "qwen3-30b-a3b", "gptq", None),
        ("zai-org/GLM-4.6-FP8", "glm-4.6", "fp8", None),
        ("unsloth/Llama-3.1-8B-Instruct-bnb-4bit", "llama-3.1-8b", "nf4-double", None),
    ],
)
def test_a_builds_name_gives_its_model_and_its_format_and_says_that_it_was_assumed(
    name: str, base: str, weights: str, kv_cache: str | None
) -> None:
    found, model = load_model(name), load_model(base)
    assert (found.name, as_counted(found), found.native_quantization) == (name, as_counted(model), weights)
    assert (found.declared_kv_cache.dtype if found.declared_kv_cache else None) == kv_cache
    assert [(what, value) for what, value, _ in found.assumptions] == [("weight format", weights)]


def test_a_copy_of_the_publishers_weights_is_the_model_itself() -> None:
    assert load_model("unsloth/Llama-3.1-8B-Instruct") == replace(
        load_model("llama-3.1-8b"), name="unsloth/Llama-3.1-8B-Instruct"
    )


@pytest.mark.parametrize("name", ["unsloth/Qwen3.8-27B-NVFP4", "unsloth/Kimi-K2.5-NVFP4"])
def test_another_publisher_s_build_is_not_taken_for_a_copy_of_the_model(name: str) -> None:
    with pytest.raises(UnknownNameError, match=f"hf download {name}"):
        load_model(name)


def test_nvidias_kimi_leaves_attention_in_16_bits_whether_its_config_or_its_name_is_known() -> None:
    for name in ("nvidia/Kimi-K2.5-NVFP4", "nvidia/Kimi-K2-Thinking-NVFP4"):
        assert load_model(name).unquantized == ("attention",)


def test_a_build_without_its_owner_is_the_model_publishers_or_asked_for() -> None:
    assert load_model("qwen3-30b-a3b-thinking-2507-fp8").native_quantization == "fp8-block"
    with pytest.raises(UnknownNameError, match=r"publisher; give nvidia/llama-3.1-8b-fp8 or RedHatAI/llama-3.1-8b-fp8"):
        load_model("llama-3.1-8b-fp8")
    with pytest.raises(UnknownNameError, match=r"no model 'Qwen/Llama-3.1-8B-FP8'"):
        load_model("Qwen/Llama-3.1-8B-FP8")


@pytest.mark.parametrize("build", builds(), ids=lambda build: build.like)
def test_every_convention_is_read_as_some_format_and_names_what_it_is_like(build: Build) -> None:
    assert build.like.strip()
    assert build.source.strip()
    assert build.config == {} or native_quantization(build.config) is not None
    assert all(ending == ending.lower() for ending in build.endings)


def test_an_unknown_checkpoint_is_met_with_the_command_that_fetches_its_config() -> None:
    fetch = r"hf download acme/new-7b --include '\*config.json' --local-dir new-7b\) and give --model \./new-7b"
    with pytest.raises(UnknownNameError, match=fetch):
        load_model("acme/new-7b")


def test_a_model_that_is_known_not_to_be_modelled_says_why() -> None:
    with pytest.raises(UnknownNameError, match=r"embeddings of n-grams .* take another model"):
        load_model("deepseek-ai/DeepSeek-V4.1-Flash")
    with pytest.raises(UnknownNameError, match="'openai/whisper-large-v3' is not modelled: it turns speech into text"):
        load_model("openai/whisper-large-v3")
    with pytest.raises(UnknownNameError, match=r"windows of their own, heads that differ .* take another model"):
        load_model("thinkingmachines/Inkling-Small-NVFP4")


def test_tags_of_other_tools_find_the_model() -> None:
    assert load_model("gpt-oss:20b").name == "openai/gpt-oss-20b"
    assert load_model("Llama_3.1_8B").name == "meta-llama/Llama-3.1-8B-Instruct"


@pytest.mark.parametrize(
    ("given", "end"), [("/nowhere/Qwen3-8B", "or a name, such as Qwen3-8B"), ("/no/of-mine", "name")]
)
def test_a_folder_that_is_not_there_names_the_model_it_is_called_after(given: str, end: str) -> None:
    with pytest.raises(HeadcountError, match=f"no file '{given}'.*{end}$"):
        load_model(given)
