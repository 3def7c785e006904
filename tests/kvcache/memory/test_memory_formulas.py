"""The formulas of docs/explanation/memory.md are what the code does."""

import re
from collections import Counter
from dataclasses import replace
from math import ceil, hypot
from pathlib import Path
from typing import Any

import pytest

from kvcache.formats.quantization import find_quantization, quantization_names
from kvcache.layout.kv_content import kv_bytes_per_token_per_layer
from kvcache.layout.kv_layout import kv_layout
from kvcache.layout.state_content import state_bytes
from kvcache.memory import terms as memory_terms
from kvcache.memory.budget import MemoryBudget
from kvcache.memory.interval import Terms, shipped_residuals
from kvcache.models.catalog import find_gpu, load_model
from kvcache.parallelism import Parallelism, pad_vocabulary
from kvcache.shape.layer import KINDS, StateSpace
from simulator.engines.memory import memory_budget

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "memory.md"
FORMULAS = dict(re.findall(r"<!-- formula: (\w+) -->\n```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
MODELS = ("llama-3.1-8b", "gemma-3-27b", "gpt-oss-20b", "qwen3-30b-a3b", "llama-4-scout", "deepseek-v2-lite")
H100 = find_gpu("h100-sxm")
every_model = pytest.mark.parametrize("model", MODELS)
every_tp = pytest.mark.parametrize("tp", [1, 2, 4])


def evaluate(name: str, **given: Any) -> dict[str, Any]:
    """What the page's formula says."""
    names = {"ceil": ceil, "hypot": hypot, **given}
    exec(FORMULAS[name], names)

    return names


def budget(model: str, tp: int = 1, **settings: Any) -> MemoryBudget:
    return memory_budget(load_model(model), H100, tensor_parallel_size=tp, **settings)


@every_model
@every_tp
def test_the_budget_is_the_formula_s(model: str, tp: int) -> None:
    found = budget(model, tp)
    says = evaluate(
        "budget",
        gpu_memory_utilization=found.gpu_memory_utilization,
        total_memory=found.total_bytes,
        weights=found.weights_bytes,
        activation_peak=found.activation_peak_bytes,
        non_torch=found.non_torch_bytes,
        cuda_graphs=found.cuda_graph_bytes,
    )
    assert (says["requested"], says["available"]) == (found.requested_bytes, found.available_kv_bytes)


@every_model
@every_tp
@pytest.mark.parametrize("max_model_len", [4096, None])
def test_blocks_are_the_formulas(model: str, tp: int, max_model_len: int | None) -> None:
    found = budget(model, tp, max_model_len=max_model_len)
    arch, layout = load_model(model), found.layout
    in_flight = evaluate("in_flight", max_num_batched_tokens=found.max_num_batched_tokens, pipeline_parallel_size=1)[
        "max_in_flight_tokens"
    ]
    given = {
        "max_model_len": found.max_model_len, "block_size": layout.block_size, "max_in_flight_tokens": in_flight,
    }  # fmt: skip
    per_request = []
    for group in layout.groups:
        kind = "full" if group.window is None else "chunked" if group.chunked else "sliding"
        per_request.append(evaluate(kind, window=group.window, **given)["blocks"])
    says = evaluate(
        "blocks",
        bytes_per_token_per_layer=kv_bytes_per_token_per_layer(arch, tp),
        layers_of_largest_group=max(len(group.layers) for group in layout.groups),
        available=found.available_kv_bytes,
        blocks_per_request=per_request,
        **given,
    )
    assert says["block"] == layout.block_bytes()
    assert max(0, says["num_gpu_blocks"]) == found.num_gpu_blocks
    assert (says["required"], says["starts"]) == (found.required_kv_bytes, found.fits)
    if found.num_gpu_blocks:
        assert says["max_concurrency"] == pytest.approx(found.max_concurrency)
        assert says["kv_cache_tokens"] == found.kv_cache_tokens


@every_model
@pytest.mark.parametrize("tp", [1, 2, 4, 16])
def test_bytes_per_token_are_the_formulas(model: str, tp: int) -> None:
    arch = load_model(model)
    if latent := arch.attention.latent:
        says = evaluate(
            "latent", kv_lora_rank=latent.kv_lora_rank, qk_rope_head_dim=latent.qk_rope_head_dim, element_bytes=2
        )
        assert evaluate("packed_latent")["bytes_per_token_per_layer"] == kv_bytes_per_token_per_layer(
            arch, tp, "fp8_ds_mla"
        )
        indexer = load_model("deepseek-v3.2").indexer
        assert indexer is not None
        assert evaluate("indexer", index_head_dim=indexer.head_dim)["bytes_per_token_per_layer"] == indexer.cached_bytes
    else:
        says = evaluate(
            "kv_heads", num_key_value_heads=arch.num_key_value_heads, tensor_parallel_size=tp,
            head_dim=arch.head_dim, element_bytes=2,
        )  # fmt: skip
    assert says["bytes_per_token_per_layer"] == kv_bytes_per_token_per_layer(arch, tp)


@pytest.mark.parametrize(
    ("dtype", "name", "element_bytes"),
    [
        ("int8_per_token_head", "per_token_head", 1),
        ("int4_per_token_head", "per_token_head", 0.5),
        ("nvfp4", "nvfp4", 0.5),
    ],
)
def test_packed_heads_are_the_formulas(dtype: str, name: str, element_bytes: float) -> None:
    arch = load_model("llama-3.1-8b")
    says = evaluate("packed_heads", kv_heads_per_rank=4, head_dim=arch.head_dim, element_bytes=element_bytes)
    assert says[name] == kv_bytes_per_token_per_layer(arch, 2, dtype)


@every_model
def test_groups_are_the_formula_s(model: str) -> None:
    arch = load_model(model)
    kinds = list(Counter(layer.attention.window for layer in arch.layers).values())
    says = evaluate("groups", largest=max(kinds), smallest=min(kinds), layers_of_each_kind=kinds)
    assert says["num_groups"] == len(budget(model).layout.groups)


@pytest.mark.parametrize("name", quantization_names())
@pytest.mark.parametrize(("rows", "cols"), [(4096, 14336), (512, 2048)])
def test_packed_matrices_are_the_formula_s(name: str, rows: int, cols: int) -> None:
    scheme = find_quantization(name)
    given = {"scale_rows": 1, "tensor_bits": 0, "index_bits": 0}  # of formats that name none
    given |= {key: getattr(scheme, key) for key in given if hasattr(scheme, key)}
    given["scale_rows"] = given["scale_rows"] or rows
    says = evaluate(
        "packed", rows=rows, cols=cols, weight_bits=scheme.weight_bits, group_size=scheme.group_size or cols,
        scale_bits=scheme.scale_bits, zero_bits=scheme.zero_bits, **given,
    )  # fmt: skip
    assert says["bytes"] == pytest.approx(scheme.linear_weight_bytes(rows, cols))


@every_model
@every_tp
def test_vocabularies_and_rotary_tables_are_the_formulas(model: str, tp: int) -> None:
    arch = load_model(model)
    says = evaluate("vocabulary", vocab_size=arch.vocab_size, tensor_parallel_size=tp)
    assert says["rows"] * tp == pad_vocabulary(arch.vocab_size, Parallelism(tensor_parallel_size=tp))
    if arch.is_mla or arch.num_rotary_tables > 1:
        return
    rotary = evaluate(
        "rotary", num_rotary_tables=1, max_position_embeddings=arch.max_position_embeddings,
        rotary_width=getattr(arch, "rotary_width", 0) or arch.head_dim,
    )["bytes"]  # fmt: skip
    assert rotary == memory_terms.buffers_bytes(arch, Parallelism(tensor_parallel_size=tp), 1)


@pytest.mark.parametrize("version", ["0.19.0", "0.32.0"])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3.1-70b", "qwen3-30b-a3b", "qwen3-32b"])
@every_tp
def test_activations_and_graphs_are_the_formulas(model: str, version: str, tp: int) -> None:
    arch, found = load_model(model), budget(model, tp, vllm_version=version, enforce_eager=False)
    fitted = vars(memory_terms.FITTED)
    sizes = {
        "tokens": found.max_num_batched_tokens, "tensor_parallel_size": tp, "max_num_seqs": found.max_num_seqs,
        "data_parallel_size": 1, "num_layers": arch.num_hidden_layers,
        "num_sizes": memory_terms.num_cuda_graph_sizes(H100, found.max_num_seqs), "is_moe": arch.is_moe,
        **{name.lower(): value for name, value in vars(memory_terms).items() if name.startswith("CUDA_GRAPH")},
    }  # fmt: skip
    sizes |= {name: getattr(arch, name) for name in (
        "hidden_size", "vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
    )}  # fmt: skip
    sizes |= vars(arch.experts) if arch.experts else {}
    sizes["hidden_size"] = arch.hidden_size
    logit = evaluate("logits", tensor_parallel_size=tp)["bytes_per_logit"]
    says = evaluate(
        "activation",
        expert_workspace=evaluate("experts", **sizes)["expert_workspace"] if arch.is_moe else 0,
        bytes_per_logit=logit if version == "0.32.0" else fitted["sampler_bytes_per_logit"],
        **sizes,
        **fitted,
    )
    assert says["peak"] == pytest.approx(found.activation_peak_bytes, abs=1)
    graphs = evaluate("graphs", **sizes)["graphs"]
    assert found.cuda_graph_bytes == (pytest.approx(graphs, abs=1) if version == "0.32.0" else 0)


def test_states_are_the_formulas() -> None:
    for kind in KINDS:
        space = StateSpace(
            kind=kind, conv_kernel=4, num_heads=8, head_dim=64, num_key_heads=4, key_head_dim=128, num_groups=2,
            state_size=16, intermediate_size=0 if kind == "mamba2" else 512, state_dtype="float32",
        )  # fmt: skip
        says = evaluate(
            "states", conv_kernel=4, width=512, key_width=4 * 128, state_size=16, num_groups=2, key_head_dim=128,
            head_dim=64, b=2, s=4,
        )  # fmt: skip
        assert says[kind] == state_bytes(space, "bfloat16"), kind


def test_a_block_of_attention_grows_until_a_state_fits() -> None:
    space = StateSpace(
        kind="mamba2", conv_kernel=4, num_heads=128, head_dim=64, num_groups=8, state_size=128, state_dtype="float32"
    )
    layers = load_model("llama-3.1-8b").layers[:16]
    arch = replace(
        load_model("llama-3.1-8b"),
        layers=tuple(each for layer in layers for each in (layer, replace(layer, attention=None, state=space))),
    )
    says = evaluate(
        "state_block",
        kernel_block_size=16,
        block_size=16,
        state_bytes=state_bytes(space, arch.dtype),
        bytes_per_token_per_layer=kv_bytes_per_token_per_layer(arch),
    )
    assert says["block_size"] == kv_layout(arch, block_size=16).block_size > 16


def test_the_interval_is_the_formula_s() -> None:
    residuals, found = shipped_residuals(), budget("llama-3.1-8b")
    terms = Terms(
        weights_bytes=found.weights_bytes, activation_peak_bytes=found.activation_peak_bytes,
        non_torch_bytes=found.non_torch_bytes, cuda_graph_bytes=found.cuda_graph_bytes,
    )  # fmt: skip

    def spreads(spread: Any) -> list[tuple[float, float]]:
        return [
            (spread.weights, found.weights_bytes), (spread.activation, found.activation_peak_bytes),
            (spread.non_torch_gib, 2**30), (spread.cuda_graph, found.cuda_graph_bytes),
        ]  # fmt: skip

    says = evaluate(
        "interval",
        measured=spreads(residuals.measured),
        beyond=[pair for condition in found.unmeasured for pair in spreads(residuals.beyond[condition])],
        half_width_sds=residuals.half_width_sds,
        available=found.available_kv_bytes,
        block=found.layout.block_bytes(),
    )
    assert says["half_width"] == pytest.approx(residuals.half_width_bytes(terms, found.unmeasured))
    assert (says["low"], says["high"]) == pytest.approx((found.num_gpu_blocks_low, found.num_gpu_blocks_high), abs=1)
