"""SGLang's arguments: defaults, memory, the line to paste, what is refused."""

import shlex
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.errors import HeadcountError
from kvcache.gpus.gpu import find_gpu
from kvcache.models.catalog import load_model, model_names
from simulator.deployment import Deployment, resolve
from simulator.engines.argument import arguments_of
from simulator.engines.engines import engine_args, own_arguments
from simulator.engines.memory import memory_budget
from simulator.engines.sglang.arguments import SGLangArgs
from simulator.latency.evidence import SGLANG_TPOT, SGLANG_TTFT

LLAMA, H100 = load_model("llama-3.1-8b"), find_gpu("h100-sxm")
# What SGLang servers on one H100 80GB logged as max_total_num_tokens.
LOGGED = [
    # docs.sglang.ai/start/send_request.html, as of 2025-01-23
    ("llama-3.1-8b", {"mem_fraction_static": 0.88}, 444_500),
    # a start-up log of 2026-08-27 on GitHub, with the defaults of that release
    ("qwen3-30b-a3b", {"quantization": "fp8"}, 392_920),
]


def deployed(**arguments: Any) -> Deployment:
    return resolve("llama-3.1-8b", "h100-sxm", engine="sglang", **arguments)


@pytest.mark.parametrize(("model", "arguments", "logged"), LOGGED)
def test_the_kv_tokens_that_servers_logged_lie_within_the_interval(
    model: str, arguments: dict[str, Any], logged: int
) -> None:
    found = memory_budget(load_model(model), H100, SGLangArgs(**arguments))
    assert found.kv_cache_tokens_low <= logged <= found.kv_cache_tokens_high
    assert found.kv_cache_tokens == pytest.approx(logged, rel=0.005)


@pytest.mark.parametrize(
    ("gpu", "chunk", "graphs", "page"),
    [
        ("t4", 2048, 8, 1),
        ("rtx-4090", 4096, 48, 1),
        ("l40s", 4096, 32, 1),
        ("h100-sxm", 8192, 256, 1),
        ("h200-sxm", 8192, 256, 1),
        ("b200-sxm", 16384, 512, 64),
        ("rtx-pro-6000", 8192, 256, 1),
    ],
)
def test_defaults_go_by_the_gpu(gpu: str, chunk: int, graphs: int, page: int) -> None:
    found = SGLangArgs(tensor_parallel_size=1, max_running_requests=None, mem_fraction_static=0.8)
    found = found.filled(load_model("qwen3-0.6b"), find_gpu(gpu))
    assert (found.chunked_prefill_size, found.cuda_graph_max_bs_decode, found.page_size) == (chunk, graphs, page)


def test_what_is_not_given_is_filled_in_once() -> None:
    filled = SGLangArgs().filled(LLAMA, H100)
    depends = [name for name, described in arguments_of(SGLangArgs).items() if described.default_of is not None]
    assert None not in [getattr(filled, name) for name in depends]
    assert filled.filled(LLAMA, H100) == filled


@given(
    share=st.floats(0.3, 0.9),
    more=st.floats(0.001, 0.09),
    page=st.sampled_from([1, 16, 64]),
    tp=st.sampled_from([1, 2, 4]),
)
def test_a_larger_static_share_holds_more_tokens_in_whole_pages(share: float, more: float, page: int, tp: int) -> None:
    args = {"page_size": page, "tensor_parallel_size": tp}
    small, large = (
        memory_budget(LLAMA, H100, SGLangArgs(mem_fraction_static=each, **args)) for each in (share, share + more)
    )
    assert small.kv_cache_tokens < large.kv_cache_tokens
    assert small.kv_cache_tokens % page == 0
    assert small.kv_cache_tokens_low <= small.kv_cache_tokens <= small.kv_cache_tokens_high
    held = small.weights_bytes + small.non_torch_bytes + small.available_kv_bytes
    assert held == small.requested_bytes


def test_a_server_holds_no_more_than_it_is_given() -> None:
    assert deployed(max_total_tokens=10_000).engine.max_total_num_tokens == 10_000
    assert deployed(max_total_tokens=10_000).engine.max_running_requests == 2048
    assert deployed(max_total_tokens=1_000).engine.max_running_requests == 500
    logged = deployed(max_total_num_tokens=600_000)
    assert logged.engine.max_total_num_tokens == 600_000
    assert logged.budget.num_gpu_blocks_low == logged.budget.num_gpu_blocks_high == 600_000


def test_states_have_a_pool_of_their_own_which_limits_running_requests() -> None:
    found = resolve("qwen3-next-80b", "h100-sxm", engine="sglang", tensor_parallel_size=4)
    engine, budget = found.engine, found.budget
    assert budget.state_slots is not None
    assert engine.max_mamba_cache_size == budget.state_slots == 684
    assert (engine.max_running_requests, engine.tracks_states, engine.mamba_chunk_size) == (136, True, 64)
    assert budget.state_pool_bytes / budget.available_kv_bytes == pytest.approx(0.9, abs=0.01)
    smaller = found.with_kv_blocks(budget.num_gpu_blocks // 2).engine
    assert (smaller.max_mamba_cache_size, smaller.max_running_requests) == (342, 68)


def test_where_no_state_is_tracked_there_is_no_overlap_schedule() -> None:
    untracked = resolve("lfm2-1.2b", "h100-sxm", engine="sglang").engine
    assert (untracked.tracks_states, untracked.disable_overlap_schedule) == (False, True)
    without_tree = resolve("lfm2-1.2b", "h100-sxm", engine="sglang", disable_radix_cache=True).engine
    assert (without_tree.disable_overlap_schedule, without_tree.states_per_request) == (False, 1)


def test_windows_have_a_pool_of_their_own_where_sglang_gives_them_one() -> None:
    own = resolve("gpt-oss-20b", "h100-sxm", engine="sglang")
    assert own.engine.sliding_window_size == 127
    assert own.engine.swa_max_total_num_tokens == int(0.8 * own.engine.max_total_num_tokens)
    smaller = own.with_kv_blocks(1000).engine
    assert (smaller.max_total_num_tokens, smaller.swa_max_total_num_tokens) == (1000, 800)
    one_pool = resolve("gpt-oss-20b", "h100-sxm", engine="sglang", disable_hybrid_swa_memory=True)
    assert one_pool.engine.sliding_window_size is None
    assert one_pool.engine.max_total_num_tokens < own.engine.max_total_num_tokens
    gemma = resolve("gemma-3-12b", "h100-sxm", engine="sglang")
    assert gemma.engine.sliding_window_size is None
    assert gemma.budget.kv_bytes_per_token_per_gpu == 48 * 2 * 8 * 256 * 2


def test_replicas_of_one_command_share_nothing() -> None:
    one, two = deployed(), deployed(dp_size=2)
    assert (one.gpus, two.gpus) == (1, 2)
    assert one.engine == two.engine
    assert [pool.num_engines for pool in two.fleet(3, "round-robin").pools] == [6]


def test_the_line_to_paste_says_what_was_asked() -> None:
    plan = deployed(tensor_parallel_size=2, enable_mixed_chunk=True, mem_fraction_static=0.8, max_total_num_tokens=9999)
    assert shlex.split(plan.serve_line)[3:] == [
        "--model-path", "meta-llama/Llama-3.1-8B-Instruct", "--tp-size", "2", "--mem-fraction-static", "0.8",
        "--enable-mixed-chunk",
    ]  # fmt: skip


def test_drafts_are_sglang_s_own_flags_on_the_line_to_paste() -> None:
    plan = deployed(speculation={"method": "eagle3", "model": "a/head", "num_speculative_tokens": 3})
    assert shlex.split(plan.serve_line)[5:] == [
        "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "a/head",
        "--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4",
    ]  # fmt: skip


def test_a_drafter_s_layers_take_as_much_of_the_pool_as_the_model_s() -> None:
    """SGLang 0.5.23 `model_executor/pool_configurator.py`; 48 requests: `speculative_hook.py`."""
    plain, drafting = deployed(), deployed(speculation={"method": "eagle3", "num_speculative_tokens": 3})
    assert drafting.budget.kv_bytes_per_token_per_gpu == plain.budget.kv_bytes_per_token_per_gpu * 33 // 32
    assert drafting.budget.weights_bytes > plain.budget.weights_bytes
    assert (drafting.engine.max_num_seqs, drafting.args.decode_width) == (48, 4)


def test_states_of_tokens_that_are_verified_have_a_buffer() -> None:
    """SGLang 0.5.23 `kv_cache_configurator.py`, `_handle_max_mamba_cache`: by hand, with its own floats."""
    model, gpu = "qwen3.5-27b", "h200-sxm"
    drafts = {"method": "mtp", "num_speculative_tokens": 3}
    plain, drafting = (
        resolve(model, gpu, engine="sglang", mem_fraction_static=0.8, speculation=given) for given in (None, drafts)
    )
    slot = plain.budget.state_bytes_per_request // 5  # slots of a running request: extra_buffer, overlap schedule
    budget, each = drafting.budget, slot * (1 + 4 / 5)
    rest = budget.total_bytes - budget.non_torch_bytes - budget.weights_bytes
    rest -= budget.total_bytes - budget.requested_bytes
    slots = int((rest * 0.9 / 1.9 - slot * (1 + 4)) // each)
    assert budget.state_slots == pytest.approx(slots, abs=1)
    buffer = slot * (min(48, slots // 5) + 1) * 4
    assert budget.available_kv_bytes == pytest.approx(rest - (slots + 1) * slot - buffer, abs=2 * slot)
    assert drafting.engine.max_running_requests == min(48, slots // 5)


def test_a_draft_model_s_batches_are_not_mixed() -> None:
    """SGLang 0.5.23 `spec_info.py`, `supports_mixed_chunk`."""
    drafts = {"num_speculative_tokens": 3, "acceptance_rate": 0.7}
    by_model = deployed(
        speculation=drafts | {"method": "draft_model", "model": "llama-3.2-1b"}, enable_mixed_chunk=True
    )
    by_head = deployed(speculation=drafts | {"method": "eagle"}, enable_mixed_chunk=True)
    assert [plan.engine.enable_mixed_chunk for plan in (by_model, by_head)] == [False, True]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"engine": "sglang", "max_model_len": 8192}, "--max-model-len is an argument of vLLM; SGLang has --context-l"),
        ({"engine": "sglang", "data_parallel_size": 2}, "SGLang has --dp-size"),
        ({"engine": "sglang", "pipeline_parallel_size": 2}, "with SGLang it is not simulated"),
        ({"mem_fraction_static": 0.8}, "--mem-fraction-static is an argument of SGLang; vLLM has --gpu-memory-util"),
        ({"schedule_conservativeness": 2.0}, "leave it out, or give --engine sglang"),
        ({"engine": "sglnag"}, "did you mean 'sglang'"),
        ({"engine": "sglang", "mem_fraction": 0.8}, "did you mean 'mem_fraction_static'"),
        ({"engine": "sglang", "mem_fraction_static": 1.0}, "must lie between 0 and 1"),
        ({"engine": "sglang", "schedule_policy": "lmp"}, "lpm"),
        ({"engine": "sglang", "kv_cache_dtype": "int4"}, "fp8_e4m3"),
        ({"engine": "sglang", "swa_full_tokens_ratio": 1.5}, "must lie above 0 and be at most 1"),
        ({"engine": "sglang", "chunked_prefill_size": 0}, "-1 for no chunks"),
        ({"engine": "sglang", "sglang_version": "0.4.6"}, "0.5.23"),
    ],
)
def test_what_is_wrong_is_told_with_what_to_do(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        engine_args(given)


def test_an_argument_of_the_other_engine_at_its_default_is_no_mistake() -> None:
    """A command passes on all its options."""
    assert own_arguments({"engine": "sglang", "enforce_eager": False, "watermark": 0.0, "page_size": 16}) == {
        "page_size": 16
    }
    assert own_arguments({"max_prefill_tokens": 16384, "max_num_seqs": 8}) == {"max_num_seqs": 8}


@pytest.mark.parametrize(
    ("model", "arguments", "says"),
    [
        ("deepseek-v4-flash", {}, "compressed attention"),
        ("ling-2.6-flash", {}, "states of lightning layers"),
        ("lfm2-1.2b", {"mamba_radix_cache_strategy": "extra_buffer"}, "SGLang tracks no states of LiquidAI/LFM2-1.2B"),
        ("lfm2-1.2b", {"max_mamba_cache_size": 2}, "has 2 slots, and a running request takes 3"),
        ("gemma-3n-E4B-it", {"mem_fraction_static": 0.8}, "layers that read another layer's cache"),
        ("phi-3-mini-4k-instruct", {}, "models with these sliding windows"),
        ("gpt-oss-20b", {"disable_radix_cache": True}, "leave --disable-radix-cache out"),
        ("gpt-oss-20b", {"swa_full_tokens_ratio": 0.00001}, "raise --swa-full-tokens-ratio"),
        ("mimo-v2-flash", {"disable_hybrid_swa_memory": True}, "unequal layers in one pool"),
        ("llama-3.1-8b", {"page_size": 64, "chunked_prefill_size": 1000}, "multiple of the page size"),
        ("llama-3.1-70b", {}, "fits with --tensor-parallel-size"),
    ],
)
def test_what_cannot_run_is_refused(model: str, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        resolve(model, "h100-sxm", engine="sglang", **arguments)


def test_step_times_are_vllm_s_with_the_wider_interval_of_measured_runs() -> None:
    vllm, sglang = resolve("llama-3.1-8b", "h100-sxm"), deployed()
    assert sglang.latency.is_measured and vllm.latency.is_measured
    assert sglang.latency.tpot_log_error == SGLANG_TPOT and sglang.latency.ttft_log_error == SGLANG_TTFT
    assert sglang.latency.tpot_log_error.half_width > vllm.latency.tpot_log_error.half_width
    at = {"tokens": 64, "sequences": 64, "sampled": 64, "decode_context": 64_000}
    assert sglang.latency.step_times.decode[64] == vllm.latency.step_times.decode[64], at


def test_every_argument_is_described() -> None:
    assert {item.name for item in fields(SGLangArgs)} == set(arguments_of(SGLangArgs))
    assert all(described.help for described in arguments_of(SGLangArgs).values())


@pytest.mark.parametrize("gpu", ["h100-sxm", "b200-sxm"])
@pytest.mark.parametrize(
    ("cache", "drafts"),
    [("bf16", None), ("auto", {"method": "eagle", "num_speculative_tokens": 3, "acceptance_rate": 0.5})],
)
def test_what_was_filled_is_filled_with_itself(gpu: str, cache: str, drafts: object) -> None:
    """Of every model that SGLang starts with a TP of 8: what follows from defaults is not taken for a user's wish."""
    filled = 0
    for name in model_names():
        asked: dict[str, Any] = {"speculation": drafts, "mem_fraction_static": 0.8, "kv_cache_dtype": cache}
        try:
            once = SGLangArgs(tensor_parallel_size=8, **asked).filled(load_model(name), find_gpu(gpu))
        except HeadcountError:
            continue
        assert once.filled(load_model(name), find_gpu(gpu)) == once
        filled += 1
    assert filled > 100


@pytest.mark.parametrize(
    ("model", "gpu", "asked", "page"),
    [
        ("llama-3.1-8b", "h100-sxm", {}, 1),
        ("llama-3.1-8b", "b200-sxm", {}, 64),
        ("llama-3.1-8b", "b200-sxm", {"page_size": 1}, 64),
        ("llama-3.1-8b", "b200-sxm", {"page_size": 16}, 16),
        ("deepseek-v3", "b200-sxm", {}, 64),
        ("deepseek-v2-lite", "b200-sxm", {}, 1),
        ("deepseek-v3.2", "h200-sxm", {"page_size": 1}, 64),
        ("mimo-v2-flash", "b200-sxm", {}, 128),
        ("minimax-m3", "h200-sxm", {}, 128),
        ("lfm2-1.2b", "b200-sxm", {}, 1),
        ("qwen3.5-27b", "b200-sxm", {}, 1),
        ("qwen3.5-27b", "b200-sxm", {"mamba_radix_cache_strategy": "extra_buffer"}, 64),
        ("qwen3.5-27b", "b200-sxm", {"disable_radix_cache": True, "max_running_requests": 8}, 64),
    ],
)
def test_attention_kernels_ask_for_pages(model: str, gpu: str, asked: dict[str, Any], page: int) -> None:
    args = SGLangArgs(tensor_parallel_size=8, mem_fraction_static=0.8, **asked)
    assert args.filled(load_model(model), find_gpu(gpu)).page_size == page


def test_an_encoder_takes_from_the_default_share_by_its_size() -> None:
    """As SGLang 0.5.23's own resolution says it on 81,559 MiB with TP 8; Gemma 3 sees on request alone."""
    gpu = replace(find_gpu("h100-sxm"), memory_bytes=81559 * 2**20)
    shares = {
        name: SGLangArgs(tensor_parallel_size=8).filled(load_model(name), gpu).mem_fraction_static
        for name in ("qwen3-32b", "mistral-medium-3.5-128b", "qwen3.5-35b-a3b", "gemma-3-27b-it")
    }
    assert shares == pytest.approx(
        {
            "qwen3-32b": 0.812,
            "mistral-medium-3.5-128b": 0.818 * 0.95 * 0.8,  # at least
            "qwen3.5-35b-a3b": 0.812 * 0.95 * (1 - 0.1 * ((1152 / 1024) ** 2 - 1)),
            "gemma-3-27b-it": 0.812,
        }
    )


@pytest.mark.parametrize(
    ("model", "gpu", "asked", "says"),
    [
        ("qwen3.5-27b", "h100-sxm", {"language_model_only": True}, "refuses --language-model-only"),
        ("deepseek-v3.2", "a100-80gb", {}, "sparse attention, which deepseek-ai/DeepSeek-V3.2 has"),
        ("deepseek-v3.2", "h200-sxm", {"kv_cache_dtype": "fp8_e5m2"}, "it takes auto, fp8_e4m3, bf16, bfloat16"),
        ("deepseek-v3", "b200-sxm", {"kv_cache_dtype": "fp8_e5m2"}, "it takes auto, fp8_e4m3, bf16"),
        ("llama-3.1-8b", "h100-sxm", {"attention_backend": "fa2"}, "no attention_backend of SGLang 'fa2'"),
        ("lfm2-1.2b", "h100-sxm", {"page_size": 16}, "pages of one token alone"),
        ("nemotron-h-56b-base-8k", "b200-sxm", {"disable_overlap_schedule": True}, "states without copies"),
        ("mimo-v2.5", "h200-sxm", {}, "over 4 GPUs or a divisor"),
        ("gpt-oss-20b", "b200-sxm", {"speculation": {"method": "eagle", "num_speculative_tokens": 3, "topk": 4,
         "num_draft_tokens": 8, "acceptance_rate": 0.5}}, "refuses a tree of draft tokens"),
    ],
)  # fmt: skip
def test_what_sglang_does_not_start_with_is_refused(model: str, gpu: str, asked: dict[str, Any], says: str) -> None:
    """Each as its own resolution of arguments does (`tests/conformance/test_check_sglang_arguments.py`)."""
    with pytest.raises(HeadcountError, match=says):
        SGLangArgs(tensor_parallel_size=8, **asked).filled(load_model(model), find_gpu(gpu))
