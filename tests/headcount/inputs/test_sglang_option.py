"""`--engine sglang` answers the questions; what does not go with it is refused in a line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simulator.engines.argument import arguments_of
from simulator.engines.sglang.arguments import SGLangArgs
from tests.headcount.conftest import SHORT_ANSWERS, figures
from tests.headcount.told import MEMORY, ON, SIMULATE, assert_told

Run = Callable[..., Any]
LOAD = ("--input-len", "200", "--output-len", "20", "--concurrency", "4", "--latency-model", "constant")


@pytest.mark.parametrize(
    "text",
    [
        "python -m sglang.launch_server --model-path llama-3.1-8b --tp 2 --mem-fraction-static 0.8 "
        "--context-length 8192",
        "python3 -m sglang.launch_server --model llama-3.1-8b --tp-size=2 --mem_fraction_static=0.8 "
        "--context-length 8K --host 0.0.0.0 --port 30000",
        "SGLANG_LOG_MS=1 sglang serve --model-path llama-3.1-8b \\\n --tensor-parallel-size 2 "
        "--mem-fraction-static 0.8 --context-length 8192 --trust-remote-code",
    ],
)
def test_a_line_is_read_as_sglang_reads_it(headcount: Run, text: str) -> None:
    direct = ("--engine", "sglang", "-tp", 2, "--mem-fraction-static", 0.8, "--context-length", 8192)
    pasted = headcount("memory", "--gpu", "h100-sxm", "--json", "--sglang-args", text)
    given = headcount(*MEMORY, "--json", *direct)
    assert (pasted.code, pasted.err) == (0, "")
    assert figures(pasted.out) == figures(given.out)
    assert figures(pasted.out)["engine"] == "sglang"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--engine", "sglnag"), "did you mean 'sglang'"),
        (("--engine", "sglang", "--max-num-seqs", "64"), "SGLang has --max-running-requests"),
        (("--page-size", "16"), "vLLM has --block-size"),
        (("--sglang-args", "--speculative-algorithm NGRAM"), "--speculative-algorithm NGRAM is not simulated with SGL"),
        (("--sglang-args", "--speculative-algorithm EAGLE3"), "--speculative-num-steps is missing"),
        (("--sglang-args", "--speculative-algorithm STANDALONE"), "the flags do not say how often its draft tokens"),
        (
            ("--sglang-args", "--speculative-algorithm EAGLE --speculative-eagle-topk 4"),
            "num_draft_tokens is missing; a tree",
        ),
        (
            (
                "--speculative-config",
                '{"method": "mtp", "num_speculative_tokens": 3, "topk": 2, "num_draft_tokens": 4}',
            ),
            "vLLM has no trees of draft tokens",
        ),
        (("--sglang-args", "--speculative-num-steps 3"), "--speculative-algorithm is missing"),
        (("--sglang-args", "--speculative-token-map x.pt"), "this kind of speculative decoding is not simulated"),
        (
            (
                "--model",
                "gpt-oss-20b",
                "--engine",
                "sglang",
                "--speculative-config",
                '{"method": "mtp", "num_speculative_tokens": 1}',
            ),
            "SGLang's MTP modules of models with a pool",
        ),
        (
            (
                "--engine",
                "sglang",
                "--speculative-config",
                '{"method": "ngram", "num_speculative_tokens": 3, "acceptance_rate": 0.5}',
            ),
            "speculative decoding by ngram is not simulated with SGLang",
        ),
        (("--sglang-args", "--pp-size 2"), "pipeline parallelism is not simulated with SGLang"),
        (("--sglang-args", "--enable-hierarchical-cache"), "out, or ask about vLLM with --kv-offloading-size"),
        (("--sglang-args", "--hicache-ratio 2"), "HiCache is not simulated with SGLang"),
        (("--engine", "sglang", "--enable-hierarchical-cache"), "HiCache is not simulated with SGLang"),
        (("--engine", "sglang", "--pagesize", "16"), "No such option '--pagesize'"),
        (("--sglang-args", "--disaggregation-mode prefill"), "separate prefill and decode is not simulated with SGL"),
        (("--sglang-args", "--ep-size 8"), "ep_size is 8; 1 and all of tp-size (1) are simulated"),
        (("--sglang-args", "--moe-a2a-backend=deepep"), "is simulated with attention groups; give --attn-dp-size"),
        (("--sglang-args", "--ep-dispatch-algorithm=dynamic"), "this kind of expert parallelism is not simulated"),
        (("--model", "gemma-4-e2b", "--engine", "sglang"), "layers that read another layer's cache, such as google/ge"),
        (("--model", "gpt-oss-20b", "--engine", "sglang", "--disable-radix-cache"), "leave --disable-radix-cache out"),
        (("--model", "ling-2.6-flash", "--engine", "sglang"), "states of lightning layers as inclusionAI/Ling-2.6"),
        (("--model", "deepseek-v4-flash", "--engine", "sglang"), "compressed attention, which deepseek-ai/DeepSeek-V4"),
        (("--sglang-args", "--mamba-radix-cache-strategy extra_buffer_lazy"), "did you mean 'extra_buffer'"),
        (("--model", "lfm2-1.2b", "--engine", "sglang", "--mamba-ssm-dtype", "auto"), "no mamba_ssm_dtype 'auto'"),
        (("--sglang-args", "--moe-dense-tp-size 8"), "SGLang takes 1 or tp-size (1)"),
        (("--sglang-args", "--moe-dp-size 8"), "attention data parallelism is not simulated with SGLang"),
        (("--sglang-args", "--tp 2 --dp 2 --enable-dp-attention"), "models with experts, and meta-llama/Llama-3.1-8B"),
        (
            ("--engine", "sglang", "-tp", "8", "--attn-dp-size", "3"),
            "it must divide tp-size (8), which counts all",
        ),
        (("--sglang-args", "--tp 8 --dp 2 --attn-dp-size 2"), "not combined by SGLang; start several servers"),
        (("--sglang-args", "--enable-lora"), "LoRA is not simulated with SGLang"),
        (("--sglang-args", "--enable-priority-scheduling"), "priority scheduling is not simulated with SGLang"),
        (("--sglang-args", "--enable-eplb"), "leave --enable-eplb out, or ask about vLLM with --all2all-backend"),
        (("--engine", "sglang", "-q", "nf4"), "quantization 'nf4' is not simulated with SGLang; give another format"),
        (
            ("--model", "Qwen/Qwen3-30B-A3B-FP8", "--engine", "sglang", "-tp", "8"),
            "take a smaller tensor-parallel size or another format",
        ),
        (("--sglang-args", "--page-sise 16"), "did you mean 'page-size'"),
        (("--sglang-args", "--page-size"), "takes one value; it was given none"),
        (("--sglang-args", "'"), "a quote is left open"),
        (("--sglang-args", "python -m sglang.launch_server"), "--sglang-args is empty"),
        (("--engine", "sglang", "--kv-cache-dtype", "fp8"), "fp8_e4m3"),
        (("--engine", "sglang", "--kv-offloading-size", "64"), "with SGLang it is not simulated"),
        (("--engine", "sglang", "--model", "llama-3.1-70b"), "(TP 1, 16-bit weights): 66"),
    ],
)
def test_a_mistake_is_told_in_a_line(headcount: Run, words: tuple[str, ...], says: str) -> None:
    ran = headcount(*MEMORY, *words)
    assert_told(ran, says)
    assert says in ran.err


def test_flags_of_drafts_are_those_of_speculative_config(headcount: Run) -> None:
    flags = "--speculative-algorithm NEXTN --speculative-num-steps 2 --speculative-eagle-topk 1 --page-size 16"
    model = ("--model", "deepseek-r1", "--gpu", "h200-sxm")
    pasted = headcount("memory", *model, "-tp", 8, "--sglang-args", flags, "--json")
    config = '{"method": "mtp", "num_speculative_tokens": 2}'
    direct = ("--engine", "sglang", "-tp", 8, "--page-size", 16, "--speculative-config", config)
    given = headcount("memory", *model, *direct, "--json")
    assert pasted.code == given.code == 0
    assert figures(pasted.out) == figures(given.out)
    assert figures(given.out)["max_num_seqs"] == 48


@pytest.mark.parametrize("name", ["mini-sglang", "nano-vllm"])
def test_light_engines_are_presets(headcount: Run, name: str) -> None:
    path = Path(__file__).parents[3] / "examples" / "light_engines" / f"{name}.toml"
    ran = headcount(*MEMORY, "--config", path, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert figures(ran.out)["engine"] == "sglang"


def test_flags_that_ask_for_nothing_are_read_and_variables_are_told(headcount: Run) -> None:
    text = "SGLANG_RADIX_FORCE_MISS=1 CUDA_VISIBLE_DEVICES=0 python -m sglang.launch_server --model llama-3.1-8b "
    ran = headcount("memory", "--gpu", "h100-sxm", "--sglang-args", text + "--ep-size 1 --pp-size=1 --tp 1")
    assert ran.code == 0, ran.err
    assert "SGLANG_RADIX_FORCE_MISS=1 is not modelled: the answer ignores it" in ran.err + ran.out
    assert "CUDA_VISIBLE" not in ran.err + ran.out
    ran = headcount("memory", "--gpu", "h100-sxm", "--sglang-args", text + "--tp 2")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "shows 1 of the 2 GPUs" in ran.err


def test_no_word_of_vllm_s_is_in_a_comparison_of_formats(headcount: Run) -> None:
    said = headcount(*MEMORY, "--compare", "--engine", "sglang").out
    assert "context_length 131,072" in said and "without shared prefixes" in said
    assert "vLLM" not in said and "max_model_len" not in said


def test_formats_of_memory_are_compared_under_sglang_s_names(headcount: Run) -> None:
    ran = headcount(*MEMORY, "--compare", "--engine", "sglang", "--json")
    dtypes = {row["kv_cache_dtype"] for row in figures(ran.out)["comparison"]}
    assert (ran.code, dtypes) == (0, {"auto", "fp8_e4m3"})


def test_a_report_names_sglang_s_settings(headcount: Run, tmp_path: Path) -> None:
    report = tmp_path / "memory.md"
    assert headcount(*MEMORY, "--engine", "sglang", "--report", report).code == 0
    text = report.read_text(encoding="utf-8")
    assert "what mem_fraction_static 0.829 leaves" in text and "keeps from vLLM" not in text


@pytest.mark.slow
def test_one_load_is_served_as_sglang_would(headcount: Run) -> None:
    """Prompts go first, each in a batch without answers, so that an answer of 20 tokens takes more steps than 20."""
    vllm, sglang = (
        figures(headcount(*SIMULATE, *LOAD, *words, "--json").out) for words in ((), ("--engine", "sglang"))
    )
    assert sglang["engine"] == "sglang" and "engine" not in vllm
    assert sglang["num_finished"] == vllm["num_finished"]
    assert sglang["settings"]["max_running_requests"] == 2048
    assert sglang["tpot_s"]["mean"] >= vllm["tpot_s"]["mean"]


@pytest.mark.slow
def test_both_engines_stand_side_by_side(headcount: Run, tmp_path: Path) -> None:
    """The same users, the same step times: users differ by what the schedulers decide."""
    ran = headcount(
        "compare", *ON, "--gpus", "1", "--engine", "vllm,sglang", "--replications", "4", "--max-num-seqs", "512",
        "--chunked-prefill-size", "4096", "--json", "--report", tmp_path / "report.html",
    )  # fmt: skip
    rows = figures(ran.out)["layouts"]
    assert sorted(row["engine"] for row in rows) == ["sglang", "vllm"]
    users = [row["users"] for row in rows]
    assert 0.7 < users[0] / users[1] < 1.4
    assert "A comparison with vLLM shows what the schedulers do" in ran.out
    summary = (tmp_path / "report.html").read_text(encoding="utf-8").partition("Diagnostics and limits")[0]
    assert "compare the expected users, and measure one load on both engines" in summary


def test_a_list_that_one_engine_lacks_is_refused(headcount: Run) -> None:
    ran = headcount("compare", *ON, "--engine", "vllm,sglang", "--max-num-seqs", "64,128")
    assert_told(ran, "SGLang has no such argument")


@pytest.mark.slow
def test_a_plan_names_the_server_to_start(headcount: Run) -> None:
    ran = headcount(
        "plan", "--users", "100", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine", "sglang", "-tp", "1",
        "--replications", "4", "--json",
    )  # fmt: skip
    assert figures(ran.out)["engine"] == "sglang"
    assert "python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct" in ran.out


@pytest.mark.slow
def test_a_kv_cache_smaller_than_the_context_has_a_number_to_sign(headcount: Run) -> None:
    """SGLang starts, and takes shorter requests, also at the low end of the KV tokens' interval."""
    ran = headcount(
        "capacity", "--model", "llama-3.1-8b", "--gpu", "l4", "--quantization", "fp8", "--gpus", "1", "--engine",
        "sglang", "--replications", "4", "--latency-model", "constant", "--json",
    )  # fmt: skip
    row = figures(ran.out)["capacity"][0]
    assert 0 < row["users_at_kv_cache_low"] <= row["users"] <= row["users_at_kv_cache_high"]
    assert row["users_low"] > 0


@pytest.mark.slow
def test_what_lifts_sglang_s_users_are_arguments_that_it_has(headcount: Run) -> None:
    ran = headcount(
        "capacity", *ON, "--gpus", "1", "--engine", "sglang", "--max-running-requests", "2", "--suggest",
        "--replications", "4", "--latency-model", "constant", "--workload", SHORT_ANSWERS, "--json",
    )  # fmt: skip
    found = figures(ran.out)
    assert found["capacity"][0]["binding"] == "TTFT: max_running_requests"
    suggestions = found["suggestions"]
    assert {each["argument"] for each in suggestions} <= set(arguments_of(SGLangArgs))
    assert (suggestions[0]["argument"], suggestions[0]["value"], suggestions[0]["gains"]) == (
        "max_running_requests",
        4,
        True,
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--engine", "sglang", "--context-length", "400000"), "context_length 400,000 is longer"),
        (("--max-model-len", "200000"), "max_model_len 200,000 is longer"),
    ],
)
def test_a_context_beyond_the_model_s_is_told_in_the_engine_s_own_words(
    headcount: Run, words: tuple[str, ...], says: str
) -> None:
    told = headcount(*MEMORY, *words).err
    assert says in told
    assert ("--json-model-override-args that raises" in told) == ("--engine" in words)
