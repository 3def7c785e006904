"""A `config.json` that is broken, contradictory or absurd is told in one line, never crashed on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
LLAMA = {
    "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 1024, "vocab_size": 32000,
    "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 4096, "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}  # fmt: skip
EXPERTS = {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
LATENT = {
    "model_type": "deepseek_v3", "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 256,
}  # fmt: skip
ABSENT = object()


def packed(**weights: Any) -> dict[str, Any]:
    return {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"group_0": weights}}}


def quantized(**settings: Any) -> dict[str, Any]:
    return {"quantization_config": settings}


@pytest.fixture
def told(headcount: Run, tmp_path: Path) -> Callable[..., str]:
    """The one line that `headcount memory` says about these bytes as config.json."""

    def run(content: bytes, *options: str) -> str:
        folder = tmp_path / "my-model"
        folder.mkdir()
        (folder / "config.json").write_bytes(content)
        ran = headcount("memory", "--model", folder, "--gpu", "h100-sxm", *options)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), (ran.out, ran.err)
        assert ran.err.startswith("headcount: ")
        assert len(ran.err) < 400
        return str(ran.err)

    return run


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        *(({key: ABSENT}, f"lacks '{key}'; add it")
          for key in ("num_hidden_layers", "hidden_size", "vocab_size", "num_attention_heads", "intermediate_size")),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0, must be positive"),
        ({"num_hidden_layers": -4}, "num_hidden_layers is -4; it must be a whole number from 0 to 10,000"),
        ({"num_hidden_layers": 4.5}, "num_hidden_layers is 4.5; it must be a whole number from 0 to"),
        ({"num_hidden_layers": "4"}, "num_hidden_layers is '4'; it must be a whole number from 0 to"),
        ({"num_hidden_layers": True}, "num_hidden_layers is true; it must be a whole number from 0 to"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000; it must be a whole number from 0 to 10,000"),
        ({"hidden_size": [1024]}, "hidden_size is a list of 1; it must be a whole number from 0 to"),
        ({"hidden_size": 2**62}, "4611686018427387904; it must be a whole number from 0 to 1,000,000,000"),
        ({"vocab_size": 0}, "vocab_size is 0, must be positive"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0, must be positive"),
        ({"num_attention_heads": 7, "num_key_value_heads": 7}, "hidden_size 1024 is not a multiple of num_attention_h"),
        ({"num_key_value_heads": 0}, "num_key_value_heads is 0, must be positive"),
        ({"num_key_value_heads": 3}, "num_attention_heads 16 is not a multiple of num_key_value_heads 3"),
        ({"num_key_value_heads": 32}, "num_attention_heads 16 is not a multiple of num_key_value_heads 32"),
        ({"head_dim": 0}, "head_dim is 0, must be positive"),
        ({"head_dim": -64}, "head_dim is -64; it must be a whole number from 0 to"),
        ({"max_position_embeddings": "8k"}, "max_position_embeddings is '8k'; it must be a whole number from 0 to"),
        ({"max_position_embeddings": float("inf")}, "embeddings is inf; it must be a whole number from 0 to"),
        ({"max_position_embeddings": 10**20}, "0000; it must be a whole number from 0 to 1,000,000,000"),
        ({"layer_types": ["full_attention"]}, "1 attention layers listed for 4 hidden layers"),
        ({"layer_types": "full_attention"}, "layer_types is 'full_attention'; it must be a list of names"),
        ({"layer_types": 5}, "layer_types is 5; it must be a list of names"),
        ({"layer_types": [None] * 4}, "layer_types: [1] is nothing; it must be text"),
        ({"layer_types": ["sliding_attention"] * 4}, "sliding_window is missing"),
        ({"model_type": "mistral", "sliding_window": -5}, "sliding_window is -5; it must be a whole number from 0 to"),
        ({"model_type": 5}, "model_type is 5; it must be text"),
        ({"torch_dtype": "int3"}, "torch_dtype is 'int3'; it must be one of auto, b"),
        ({"torch_dtype": [1]}, "torch_dtype is a list of 1; it must be text"),
        ({"rope_scaling": 5}, "rope_scaling is 5; it must be a table"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 0}}, "rope_scaling.factor is 0; it must be a number above 0"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 1e300}}, "rope_scaling.factor is 1e+300; it must be"),
        ({"text_config": "x"}, "text_config is 'x'; it must be a table"),
        ({"vision_config": [1]}, "vision_config is a list of 1; it must be a table"),
        ({"vision_config": {"hidden_size": -1}}, "vision_config: hidden_size is -1; it must be"),
        ({"model_type": "gemma3", "vision_config": {"hidden_size": -5}}, "vision_config: hidden_size is -5; it must b"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings is 'false'; it must be true or false"),
        ({"quantization_config": "awq"}, "quantization_config: it is 'awq'; it must be a table"),
        (quantized(quant_method="zzz"), "quant_method 'zzz' is not modelled; known: awq"),
        (quantized(quant_method="modelopt", quant_algo="EVIL"), "quant_algo 'EVIL' is not known; known: FP8, NVFP4"),
        ({"compression_config": {"quant_method": "zzz"}}, "quant_method 'zzz' is not modelled; known: awq"),
        (quantized(quant_method="gptq", bits=3), "gptq with 3 bits is not modelled; only 4 bits are"),
        (quantized(quant_method="mxfp4"), "'mxfp4' packs experts only, and the model has none"),
        (quantized(quant_method="compressed-tensors", config_groups="x"), "config_groups is 'x'; it must be a table"),
        (quantized(quant_method="compressed-tensors", config_groups={"a": None}), "config_groups.a is nothing; it"),
        (packed(weights="x"), "config_groups.group_0.weights is 'x'; it must be a table"),
        (packed(weights={"num_bits": 3, "type": "int"}), "compressed-tensors with 3 bits is not modelled; only 4"),
        ({**EXPERTS, "model_type": "zz", "num_experts_per_tok": ABSENT}, "lacks 'num_experts_per_tok'; add it"),
        ({**EXPERTS, "num_experts_per_tok": 9}, "num_experts_per_tok 9 must lie in 1–8"),
        ({**EXPERTS, "num_local_experts": -1}, "num_local_experts is -1; it must be a whole number from 0 to"),
        ({**EXPERTS, "intermediate_size": ABSENT}, "lacks 'moe_intermediate_size'; add it"),
        ({"num_attention_heads": 10**400}, "0…; it must be a whole number from 0 to 10,000"),
        ({"partial_rotary_factor": "x"}, "partial_rotary_factor is 'x'; it must be a number above 0, at most 1"),
        ({"rope_scaling": {"rope_type": "linear", "factor": float("inf")}}, "rope_scaling.factor is inf; it must be"),
        ({"model_type": "x" * 1000}, "model_type is 'xxx"),
        (quantized(quant_method="fp8", weight_block_size=[128, "x"]), "weight_block_size[2] is 'x'; it must be"),
        (quantized(quant_method="awq", group_size=10**400), "group_size is 1000"),
        (quantized(quant_method="awq", ignore=["re:(a+)+$"]), "'(a+)+$' takes too long to match; simplify it"),
        (quantized(quant_method="awq", ignore=["re:" + ".*" * 9 + "x"]), "takes too long to match; simplify it"),
        ({**EXPERTS, "moe_layers": 5}, "moe_layers is 5; it must be a list of whole numbers"),
        ({**EXPERTS, "mlp_only_layers": "0,1"}, "mlp_only_layers is '0,1'; it must be a list of whole numbers"),
        ({**LATENT, "qk_rope_head_dim": None}, "lacks 'qk_rope_head_dim'; add it"),
        ({**LATENT, "v_head_dim": 0}, "v_head_dim is 0, must be positive"),
    ],
    ids=lambda value: json.dumps(value, default=lambda _: "absent")[:50] if isinstance(value, dict) else "",
)  # fmt: skip
def test_a_wrong_field_is_named(told: Callable[..., str], changes: dict[str, Any], part: str) -> None:
    config = {key: value for key, value in {**LLAMA, **changes}.items() if value is not ABSENT}
    assert part in told(json.dumps(config).encode())


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "is not JSON: it is empty or cut off"),
        (b'{"num_hidden_layers": 4, "hid', "column 26: is not JSON: it is empty or cut off"),
        (b"\0\0", "not a text file"),
        (b"null", "it is nothing; it must be a table"),
        (b"[1]", "it is a list of 1; it must be a table"),
        (b"{}", "lacks 'num_hidden_layers'"),
        ("{}".encode("utf-16"), "not a text file"),
        (b"[" * 100_000, "it is nested too deeply"),
        (
            b'{"num_hidden_layers": ' + b"9" * 5000 + b"}",
            "it holds a number of thousands of digits",
        ),
        (b'{"num_hidden_layers": NaN}', "num_hidden_layers is nan; it must be a whole number from 0 to"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_no_config_is_told(told: Callable[..., str], content: bytes, part: str) -> None:
    assert part in told(content)


def test_a_folder_without_a_config_is_told(headcount: Run, tmp_path: Path) -> None:
    ran = headcount("memory", "--model", tmp_path, "--gpu", "h100-sxm")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "holds no config.json; give a model's folder or its config.json" in ran.err


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["-tp", "3"], "take 1, 2, 4 or 8"),
        (["-tp", "1000000"], "tensor_parallel_size 1000000 does not divide the attention heads 16"),
        (["-tp", "-1"], "'-1' is not a whole number of at least 1"),
        (["-pp", "5"], "pipeline_parallel_size 5 exceeds the model's 4 layers"),
        (["--max-model-len", "1e18"], "'1e18' is not a whole number above 0"),
        (
            ["--max-model-len", "1" + "0" * 17],
            f"'1{'0' * 17}' is too large; give at most 2,147,483,647",
        ),
        (
            ["--max-num-batched-tokens", "9" * 18],
            f"--max-num-batched-tokens': '{'9' * 18}' is too large; give at most 2,147,483,647",
        ),
        (
            ["--num-gpu-blocks-override", "9" * 18],
            f"--num-gpu-blocks-override': '{'9' * 18}' is too large; give at most 2,147,483,647",
        ),
        (["--gpu-memory-utilization", "0"], "gpu_memory_utilization is 0.0, must lie in (0, 1]"),
        (["--gpu-memory-utilization", "1.5"], "gpu_memory_utilization is 1.5, must lie in (0, 1]"),
        (["--gpu-memory-utilization", "nan"], "'nan' is not a number; give a share above 0"),
        (["--gpu-memory-utilization", "-0.5"], "gpu_memory_utilization is -0.5, must lie in (0, 1]"),
        (["-q", "mxfp4"], "packs experts only, and the model has none"),
        (["--kv-cache-dtype", "fp8_ds_mla"], "needs latent attention, which 'my-model' lacks"),
        (["--mean-context", "0"], "'0' is not a whole number above 0"),
        (["--users", "0"], "'0' is not a list of numbers of users; give whole numbers from 1 to 1,000,000"),
        (["--gpu", "x" * 5000], "no GPU 'xxx"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_a_wrong_option_is_told(told: Callable[..., str], options: list[str], part: str) -> None:
    assert part in told(json.dumps(LLAMA).encode(), *options)


@pytest.mark.parametrize("name", ["\x1b[31mred", "two\nlines", "x" * 10_000, "[bold]"])
def test_a_strange_name_does_not_reach_the_terminal(headcount: Run, name: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, "_name_or_path": name}))
    ran = headcount("memory", "--model", path, "--gpu", "h100-sxm", "--mean-context", "1K")
    assert ran.code == 0
    head = ran.out.splitlines()[0]
    assert "\x1b" not in head
    assert " on h100-sxm" in head and len(head) < 200
    assert name != "[bold]" or head.startswith("[bold]")


def test_a_byte_order_mark_does_no_harm(headcount: Run, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(LLAMA).encode())
    assert headcount("memory", "--model", path, "--gpu", "h100-sxm", "--mean-context", "1K").code == 0
