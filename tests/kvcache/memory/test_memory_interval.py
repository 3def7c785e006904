"""How far a predicted pool may be off, and when it may be further off."""

import math
import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcache.memory.budget import MemoryBudget
from kvcache.memory.interval import CONDITIONS, RESIDUALS, Terms, read_residuals, shipped_residuals
from kvcache.models.catalog import find_gpu, load_model
from kvcache.models.config.reader import from_config
from simulator.engines.memory import memory_budget

MEASURED = {"vllm_version": "0.19.0", "max_model_len": 8192}


def budget(model: str = "llama-3.1-8b", gpu: str = "h100-sxm", **settings_: Any) -> MemoryBudget:
    return memory_budget(load_model(model), find_gpu(gpu), **{**MEASURED, **settings_})


def half_width(b: MemoryBudget) -> float:
    """In bytes per GPU."""
    return (b.num_gpu_blocks_high - b.num_gpu_blocks_low) / 2 * b.layout.block_bytes()


def interval_assumption(b: MemoryBudget) -> tuple[str, str, str]:
    (found,) = [row for row in b.assumptions if "interval" in row[0]]
    return found


def test_where_logs_were_measured_the_interval_is_narrow() -> None:
    b = budget()
    assert b.unmeasured == ()
    assert b.num_gpu_blocks_low < b.num_gpu_blocks < b.num_gpu_blocks_high
    assert half_width(b) < 0.01 * b.available_kv_bytes
    assert "widened" not in interval_assumption(b)[2]


@pytest.mark.parametrize(
    ("condition", "settings_"),
    [
        ("gpu", {"gpu": "a100-80gb"}),
        ("older_release", {"vllm_version": "0.9.2"}),
        ("newer_release", {"vllm_version": "0.32.0"}),
        ("ranks", {"tensor_parallel_size": 8}),
        ("ranks", {"pipeline_parallel_size": 2}),
        ("replicas", {"model": "mixtral-8x7b", "tensor_parallel_size": 4, "data_parallel_size": 2}),
        ("packed_experts", {"model": "gpt-oss-120b", "tensor_parallel_size": 2}),
        ("packed_experts_on_ada", {"model": "gpt-oss-20b", "gpu": "l4"}),
        ("older_sampler", {"gpu": "a100-80gb", "vllm_version": "0.16.0"}),
        ("older_sampler", {"model": "gpt-oss-120b", "vllm_version": "0.11.0", "max_num_seqs": 256}),
        ("compressed", {"model": "deepseek-v4-flash", "tensor_parallel_size": 4, "gpu": "h200-sxm"}),
        ("state_layers", {"model": "qwen3.6-27b"}),
        ("graphs_of_state_layers", {"model": "qwen3.6-27b", "vllm_version": "0.26.0"}),
        ("format", {"quantization": "nf4"}),
        ("batch", {"max_num_batched_tokens": 32768}),
        ("batch", {"max_num_seqs": 16}),
        ("latent", {"model": "deepseek-v2-lite"}),
    ],
)
def test_conditions_without_logs_widen_it_and_are_named(condition: str, settings_: dict[str, Any]) -> None:
    b = budget(**settings_)
    assert condition in b.unmeasured
    assert CONDITIONS[condition] in interval_assumption(b)[2]
    terms = Terms(
        weights_bytes=b.weights_bytes,
        activation_peak_bytes=b.activation_peak_bytes,
        non_torch_bytes=b.non_torch_bytes,
        cuda_graph_bytes=b.cuda_graph_bytes,
    )
    without = [name for name in b.unmeasured if name != condition]
    assert shipped_residuals().sd_bytes(terms, b.unmeasured) > shipped_residuals().sd_bytes(terms, without)


def test_a_start_that_the_interval_leaves_open_is_called_uncertain() -> None:
    near = budget("kimi-dev-72b", tensor_parallel_size=2, gpu_memory_utilization=0.95, max_model_len=19904)
    assert near.num_gpu_blocks_low < 19904 / 16 <= near.num_gpu_blocks_high
    assert [row[1] for row in near.assumptions if row[0] == "whether vLLM starts"] == ["uncertain"]
    assert not [row for row in budget().assumptions if row[0] == "whether vLLM starts"]


def test_given_blocks_have_no_interval() -> None:
    b = budget(num_gpu_blocks_override=1000, max_model_len=1024)
    assert (b.num_gpu_blocks_low, b.num_gpu_blocks, b.num_gpu_blocks_high) == (1000, 1000, 1000)
    assert not [row for row in b.assumptions if "interval" in row[0]]


@given(
    model=st.sampled_from(["llama-3.1-8b", "gemma-3-27b", "mixtral-8x7b", "deepseek-v2-lite"]),
    gpu=st.sampled_from(["h100-sxm", "l4", "b200-sxm"]),
    settings_=st.fixed_dictionaries(
        {
            "tensor_parallel_size": st.sampled_from([1, 2, 4]),
            "pipeline_parallel_size": st.sampled_from([1, 2]),
            "gpu_memory_utilization": st.floats(0.05, 1.0),
            "vllm_version": st.sampled_from(["0.6.0", "0.19.0", "0.26.0", "0.32.0"]),
        }
    ),
)
@settings(max_examples=40)
def test_the_prediction_lies_within_its_interval(model: str, gpu: str, settings_: dict[str, Any]) -> None:
    b = budget(model, gpu, **settings_)
    assert 0 <= b.num_gpu_blocks_low <= b.num_gpu_blocks <= b.num_gpu_blocks_high
    assert b.kv_cache_tokens_low <= b.kv_cache_tokens <= b.kv_cache_tokens_high


QWEN_05B = {
    "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True,
    "max_position_embeddings": 32768, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize(
    ("gpu", "settings_", "kv_tokens"),
    [
        # vLLM pull request 57926, before its change; the main branch of September 2026.
        ("l4", {"gpu_memory_utilization": 0.98, "max_num_seqs": 256, "vllm_version": "0.32.0"}, 1_733_440),
        # vLLM issue 50159, comment of 2026-08-01: `LLM`, whose token budget on this GPU is 16,384.
        ("rtx-pro-6000", {"enforce_eager": True}, 6_908_880),
        ("rtx-pro-6000", {}, 6_900_336),
    ],
)
def test_public_figures_of_later_releases_lie_within_it(gpu: str, settings_: dict[str, Any], kv_tokens: int) -> None:
    common: dict[str, Any] = {"max_model_len": 2048, "vllm_version": "0.26.0"}
    if gpu == "rtx-pro-6000":
        common |= {"gpu_memory_utilization": 0.85, "max_num_batched_tokens": 16384}
    b = memory_budget(from_config(QWEN_05B, name="qwen2.5-0.5b"), find_gpu(gpu), **{**common, **settings_})
    assert b.kv_cache_tokens_low <= kv_tokens <= b.kv_cache_tokens_high
    assert b.kv_cache_tokens == pytest.approx(kv_tokens, rel=0.02)


@pytest.mark.parametrize(
    ("model", "share", "blocks"),  # Qwen3.8 on RTX PRO 6000, 1,024 sequences; vllm-project/recipes pull request 831
    [("qwen3.8-27b-fp8", 0.92, 939), ("qwen3.8-27b-nvfp4", 0.92, 1011), ("qwen3.8-27b", 0.95, 556)],
)
def test_pools_of_hybrids_whose_graph_estimate_takes_in_a_pass_are_counted(
    model: str, share: float, blocks: int
) -> None:
    b = budget(model, "rtx-pro-6000", max_model_len=32768, gpu_memory_utilization=share, vllm_version="0.27.0")
    assert b.num_gpu_blocks_low <= blocks <= b.num_gpu_blocks_high
    assert b.num_gpu_blocks == pytest.approx(blocks, rel=0.045)
    before = budget(model, "rtx-pro-6000", max_model_len=32768, gpu_memory_utilization=share, vllm_version="0.25.0")
    assert b.cuda_graph_bytes - before.cuda_graph_bytes == b.graph_pass_bytes == 50 * 160 * 2**20


def test_what_no_term_explains_lies_within_it() -> None:
    """gpt-oss-20b on L4 under 0.29: 27 to 55 % fewer blocks than counted; one H100 held gpt-oss-120b under 0.11."""
    b = budget("gpt-oss-20b", "l4", vllm_version="0.29.0", max_model_len=8192)
    assert b.num_gpu_blocks_low < 0.45 * b.num_gpu_blocks
    of_compressed = {"max_model_len": 30000, "max_num_batched_tokens": 16384, "gpu_memory_utilization": 0.95}
    b = budget("deepseek-v4-flash", "gh200-96gb", tensor_parallel_size=2, vllm_version="0.22.0", **of_compressed)
    share = 5.44 * 2**30 / b.available_kv_bytes  # vLLM issue 44376
    assert b.num_gpu_blocks_low < share * b.num_gpu_blocks < b.num_gpu_blocks_high
    b = budget("gpt-oss-120b", vllm_version="0.11.0", max_model_len=8192)
    assert not b.fits
    assert b.num_gpu_blocks_high > 8192 / 16 * 2


@pytest.mark.parametrize(("tp", "dp", "logged"), [(8, 1, 20.43), (1, 8, 19.62)])
def test_compressed_attention_counts_one_batch_in_flight_before_0_26(tp: int, dp: int, logged: float) -> None:
    """DeepSeek-V4-Flash on eight B200 under 0.25.0: maximum concurrency at 1,048,576 tokens (vLLM issue 51454)."""
    given = {"tensor_parallel_size": tp, "data_parallel_size": dp, "max_num_batched_tokens": 8192, "max_num_seqs": 256}
    b = budget(
        "deepseek-v4-flash", "b200-sxm", vllm_version="0.25.0", max_model_len=1_048_576, enable_expert_parallel=True,
        kv_cache_dtype="fp8", gpu_memory_utilization=0.95, **given,
    )  # fmt: skip
    assert b.max_concurrency == pytest.approx(logged, rel=0.03)


def test_every_spread_has_a_source_and_unknown_conditions_are_refused() -> None:
    shipped = shipped_residuals()
    assert all(spread.source.strip() for spread in (shipped.measured, *shipped.beyond.values()))
    content = tomllib.loads(RESIDUALS.read_text(encoding="utf-8"))
    content["beyond"]["moonlight"] = {"weights": 1.0}
    with pytest.raises(ValueError, match="moonlight"):
        read_residuals(content)


def test_independent_terms_add_in_squares() -> None:
    shipped = shipped_residuals()
    terms = Terms(weights_bytes=2**34, activation_peak_bytes=2**31, non_torch_bytes=2**28, cuda_graph_bytes=2**30)
    alone, both = shipped.sd_bytes(terms, []), shipped.sd_bytes(terms, ["gpu"])
    assert both == pytest.approx(math.hypot(alone, shipped.beyond["gpu"].bytes_of(terms)))
