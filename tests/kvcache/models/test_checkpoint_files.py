"""Weights as large as the files in a model's folder say."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvcache.gpus.gpu import find_gpu
from kvcache.models.catalog import is_other_model, load_model
from simulator.engines.memory import memory_budget

CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 4, "intermediate_size": 2048, "vocab_size": 1024, "max_position_embeddings": 512,
    "torch_dtype": "bfloat16",
}  # fmt: skip
COUNTED = 2 * (2 * 9 * 1024**2 + 2 * 1024**2 + 5 * 1024)  # bytes: two layers, embedding, head, norms


def folder(path: Path, **files: Any) -> str:
    (path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    for name, content in files.items():
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (path / name.replace("__", ".")).write_bytes(data)
    return str(path)


def index(total: int, *names: str) -> dict[str, Any]:
    return {"metadata": {"total_size": total}, "weight_map": dict.fromkeys(names, "model-1-of-2.safetensors")}


def header(sizes: dict[str, int]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name, size in sizes.items():
        entries[name] = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [start, start + size]}
        start += size
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


def weights(model: str) -> int:
    return memory_budget(load_model(model), find_gpu("l4")).weights_bytes


def test_without_files_the_count_stands(tmp_path: Path) -> None:
    arch = load_model(folder(tmp_path))
    assert (arch.file_share, arch.assumptions) == (1.0, ())


def test_the_index_of_the_files_decides_and_a_difference_is_said(tmp_path: Path) -> None:
    stated = COUNTED * 11 // 10
    counted = weights(folder(tmp_path))
    arch = load_model(folder(tmp_path, model__safetensors__index__json=index(stated)))
    assert arch.file_share == pytest.approx(1.1)
    assert weights(str(tmp_path)) == pytest.approx(counted * 1.1, rel=0.02)
    ((what, said, why),) = arch.assumptions
    assert what == "weights"
    assert "(+10.0%)" in said
    assert "the files are taken" in why


def test_a_sum_that_agrees_is_taken_in_silence(tmp_path: Path) -> None:
    arch = load_model(folder(tmp_path, model__safetensors__index__json=index(COUNTED + 4096)))
    assert arch.file_share == pytest.approx(1 + 4096 / COUNTED)
    assert arch.assumptions == ()


def test_the_headers_tell_what_is_not_loaded(tmp_path: Path) -> None:
    sizes = {"model.layers.0.x": COUNTED, "mtp.layers.0.x": 10**6, "model.layers.2.x": 10**6}
    arch = load_model(folder(tmp_path, model__safetensors=header(sizes)))
    assert (arch.file_share, arch.assumptions) == (1.0, ())


def test_an_index_with_layers_that_are_not_loaded_is_said_and_not_taken(tmp_path: Path) -> None:
    stated = index(COUNTED * 6 // 5, "mtp.layers.0.x", "lm_head.weight")
    arch = load_model(folder(tmp_path, model__safetensors__index__json=stated))
    assert arch.file_share == 1.0
    assert "1 tensors that are not loaded (mtp.layers.0.x" in arch.assumptions[0][2]


def test_files_of_another_model_are_said_and_not_taken(tmp_path: Path) -> None:
    arch = load_model(folder(tmp_path, model__safetensors__index__json=index(3 * COUNTED)))
    assert arch.file_share == 1.0
    assert "check that both are of one model" in arch.assumptions[0][2]


@pytest.mark.parametrize("broken", [b"", b"\xff" * 8, b"\x05" + b"\0" * 7 + b"ab", b"\x02" + b"\0" * 7 + b"\xff\xff"])
def test_a_file_without_a_header_is_one_clear_error(tmp_path: Path, broken: bytes) -> None:
    if not broken:
        broken = b"\x09" + b"\0" * 7
    with pytest.raises(ValueError, match="no safetensors file: its header") as caught:
        load_model(folder(tmp_path, model__safetensors=broken))
    assert "\n" not in str(caught.value)


def test_another_format_than_the_files_own_takes_nothing_from_them(tmp_path: Path) -> None:
    gpu, without = find_gpu("l4"), load_model(folder(tmp_path))
    stated = load_model(folder(tmp_path, model__safetensors__index__json=index(COUNTED * 11 // 10)))
    first, second = (memory_budget(arch, gpu, quantization="fp8").weights_bytes for arch in (without, stated))
    assert first == second


def test_the_size_of_the_files_makes_no_other_model(tmp_path: Path) -> None:
    stated = load_model(folder(tmp_path, model__safetensors__index__json=index(COUNTED * 11 // 10)))
    assert not is_other_model("llama-3.1-8b", replace(load_model("llama-3.1-8b"), file_share=1.1, name="x"))
    assert is_other_model("llama-3.1-8b", stated)
