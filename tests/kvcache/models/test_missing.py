"""A folder of configs is listed by what is not answered."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvcache.models.missing import missing_models

SMALL: dict[str, Any] = {
    "num_hidden_layers": 2, "hidden_size": 256, "vocab_size": 1000, "num_attention_heads": 4, "intermediate_size": 512,
}  # fmt: skip


def write(folder: Path, name: str, config: dict[str, Any]) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "config.json").write_text(json.dumps({**SMALL, **config}), encoding="utf-8")


def test_what_is_refused_or_assumed_is_listed_with_the_reason(tmp_path: Path) -> None:
    write(tmp_path, "acme--known", {"model_type": "llama"})
    write(tmp_path, "acme--compressed", {"model_type": "deepseek_v41", "compress_ratios": [1, 4]})
    write(tmp_path, "others/acme--new", {"model_type": "brand_new"})
    write(tmp_path, "acme--broken", {"model_type": "llama", "num_attention_heads": 0})
    found = {model.name: model for model in missing_models(tmp_path)}
    assert set(found) == {"acme/compressed", "others/acme/new", "acme/broken"}
    assert found["acme/compressed"].is_refused
    assert found["acme/compressed"].why.startswith("the sparse attention of model_type 'deepseek_v41'")
    assert not found["others/acme/new"].is_refused
    assert "'brand_new' is not known; read like a Llama" in found["others/acme/new"].why
    assert found["acme/broken"].why.startswith("num_attention_heads is 0")


def test_a_folder_without_configs_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no config\.json in .*; give the folder"):
        missing_models(tmp_path)
