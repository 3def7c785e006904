"""Every family that vLLM 0.33 keeps under `vllm/models/` is answered, or refused by name with its reason."""

from pathlib import Path
from typing import Any

import pytest

from kvcache.layout.kv_layout import kv_layout
from kvcache.models.config.families import known_families
from kvcache.models.config.reader import from_config
from kvcache.parallelism import Parallelism
from kvcache.shape.parameters import layer_tensors

# Folder of the release → the model_type that its configs have, and a sign of the reason where it is refused.
FAMILIES: dict[str, tuple[str, str | None]] = {
    "beam": ("beam", None),
    "deepseek_v32": ("deepseek_v32", None),
    "deepseek_v4": ("deepseek_v4", None),
    "deepseek_v41": ("deepseek_v41", "ring buffers of keys, embeddings of n-grams"),
    "dots3_note": ("dots3_note", "windows over latents"),
    "flint": ("flint", None),
    "glm5next": ("glm5_next", "it keeps caches of its own"),
    "hy_v4": ("hy_v4", "independent hyper-connections"),
    "inkling": ("inkling_model", "caches of convolutions"),
    "kimi_k3": ("kimi_linear", None),
    "minimax_m3": ("minimax_m3", None),
    "muse_spark": ("muse_spark_text", "gated delta nets"),
    "qwen4_exp": ("qwen4_exp", "pools of tokens"),
    "step5": ("step5", "summaries of eight tokens"),
}
SMALL: dict[str, Any] = {
    "num_hidden_layers": 4, "hidden_size": 1024, "vocab_size": 32000, "num_attention_heads": 8,
    "intermediate_size": 2048,
}  # fmt: skip
SHARED = {"common"}  # kernels of several models


@pytest.mark.parametrize(("model_type", "reason"), FAMILIES.values(), ids=FAMILIES)
def test_a_family_is_known_or_refused_with_its_reason(model_type: str, reason: str | None) -> None:
    assert (model_type in known_families()) is (reason is None)
    if reason is not None:
        with pytest.raises(ValueError, match=reason) as caught:
            from_config({**SMALL, "model_type": model_type}, name="new")
        assert model_type in str(caught.value)


def test_no_family_of_the_newest_release_is_missing(vllm_python: Path) -> None:
    (models,) = vllm_python.parent.parent.glob("lib/python*/site-packages/vllm/models")
    folders = {path.name for path in models.iterdir() if path.is_dir() and not path.name.startswith("_")}
    assert folders - SHARED == set(FAMILIES)


def test_flint_has_sinks_and_windows_as_listed() -> None:
    kinds = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]
    arch = from_config({**SMALL, "model_type": "flint", "layer_types": kinds, "mlp_only_layers": [0]}, name="flint")
    assert arch.windows == (513, 513, 513)
    assert (arch.layers[0].experts, arch.layers[0].intermediate_size) == (None, 2048)
    assert arch.experts is not None
    assert arch.experts.shared_expert_intermediate_size == 1024
    assert [group.window for group in kv_layout(arch).groups] == [513, 513, 513, None]
    assert (8, 1) in {(t.rows, t.cols) for t in layer_tensors(arch, Parallelism(), arch.layers[1])}


def test_beam_gates_its_attention_and_lists_its_mlps() -> None:
    """vLLM 0.33 models/beam/nvidia/attention.py: queries, keys, values and a gate as wide as the queries."""
    mlps = ["dense", "sparse", "sparse", "sparse"]
    arch = from_config({**SMALL, "model_type": "beam", "mlp_layer_types": mlps}, name="beam")
    assert [layer.experts is None for layer in arch.layers] == [True, False, False, False]
    assert arch.windows == (4096,) * 4
    shapes = {(t.rows, t.cols) for t in layer_tensors(arch, Parallelism(), arch.layers[1])}
    assert (2 * 8 * 128 + 2 * 4 * 128, 1024) in shapes
