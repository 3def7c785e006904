"""An SGLang server's start-up log is read, and stands in for the memory model."""

from pathlib import Path

import pytest

from calibrate.readers.parsing.startup_log import read_startup_log
from headcount.inputs.reading.deployments import resolve_model_and_gpu

ARGUMENTS = (
    "model_path='meta-llama/Meta-Llama-3.1-8B-Instruct', kv_cache_dtype='auto', quantization=None, "
    "context_length=None, mem_fraction_static=0.85, max_running_requests=None, chunked_prefill_size=4096, "
    "max_prefill_tokens=16384, schedule_policy='lpm', schedule_conservativeness=1.0, tp_size=2, dp_size=1, "
    "disable_radix_cache=False, disable_overlap_schedule=True"
)


def log_text(arguments: str = ARGUMENTS, pool: str = "max_total_num_tokens=950123, chunked_prefill_size=4096, ") -> str:
    """What SGLang logs at the start of a server on two GPUs, as far as it is read."""
    return f"""
[2026-08-27 03:45:20] server_args=ServerArgs({arguments})
[2026-08-27 03:45:41 TP0] Load weight begin. avail mem=77.43 GB
[03:45:53 TP0] Load weight end. elapsed=3.2 s, type=LlamaForCausalLM, avail mem=69.9 GB, mem usage=7.53 GB.
[03:45:53 TP1] Load weight end. elapsed=3.2 s, type=LlamaForCausalLM, avail mem=69.9 GB, mem usage=7.55 GB.
[2026-08-27 03:45:54 TP0] KV Cache is allocated. #tokens: 950123, K size: 29.00 GB, V size: 29.00 GB
[2026-08-27 03:46:10 TP0] {pool}max_prefill_tokens=16384, max_running_requests=3711, context_len=131072, mem=9.1 GB
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "server.log"
    path.write_text(text, encoding="utf-8")
    return path


def test_settings_and_sizes_are_read_and_the_fullest_rank_decides(tmp_path: Path) -> None:
    log = read_startup_log(written(tmp_path, log_text()))
    assert log.memory_gib == {"weights": 7.55, "available_kv": 58.0}
    assert log.options == {
        "engine": "sglang",
        "model": "meta-llama/Meta-Llama-3.1-8B-Instruct",
        "tensor_parallel_size": 2,
        "dp_size": 1,
        "kv_cache_dtype": "auto",
        "mem_fraction_static": 0.85,
        "chunked_prefill_size": 4096,
        "max_prefill_tokens": 16384,
        "schedule_policy": "lpm",
        "schedule_conservativeness": 1.0,
        "disable_radix_cache": False,
        "disable_overlap_schedule": True,
        "max_total_num_tokens": 950_123,
        "context_length": 131_072,
    }


def test_the_server_is_simulated_as_it_runs(tmp_path: Path) -> None:
    log = read_startup_log(written(tmp_path, log_text()))
    args = resolve_model_and_gpu("llama-3.1-8b", "h100-sxm", {}, log).args
    assert args.max_total_num_tokens == 950_123
    assert not args.async_scheduling


@pytest.mark.parametrize(
    ("logged", "what"),
    [
        ("enable_hierarchical_cache=True", "enable_hierarchical_cache is True: HiCache is not simulated with SGLang"),
        ("disaggregation_mode='prefill'", "disaggregation_mode is prefill: separate prefill and decode is not"),
        ("pp_size=2", "pp_size is 2: pipeline parallelism is not simulated"),
    ],
)
def test_a_server_that_does_what_is_not_simulated_is_refused(tmp_path: Path, logged: str, what: str) -> None:
    with pytest.raises(ValueError, match=f"server_args.{what}"):
        read_startup_log(written(tmp_path, log_text(f"{ARGUMENTS}, {logged}")))


def test_drafts_are_read(tmp_path: Path) -> None:
    """As SGLang 0.5.23 logs them."""
    chain = "speculative_algorithm='EAGLE', speculative_num_steps=2, speculative_eagle_topk=1"
    log = read_startup_log(written(tmp_path, log_text(f"{ARGUMENTS}, {chain}, speculative_num_draft_tokens=3")))
    assert log.options["speculation"] == {"method": "mtp", "num_speculative_tokens": 2}
    with pytest.raises(ValueError, match="server_args: --speculative-algorithm NGRAM is not simulated"):
        read_startup_log(written(tmp_path, log_text(f"{ARGUMENTS}, {chain.replace('EAGLE', 'NGRAM')}")))


def test_what_a_server_does_not_ask_for_is_no_reason_to_refuse(tmp_path: Path) -> None:
    off = "enable_hierarchical_cache=False, disaggregation_mode='null', speculative_algorithm=None, pp_size=1"
    plain, more = (read_startup_log(written(tmp_path, log_text(f"{ARGUMENTS}{given}"))) for given in ("", f", {off}"))
    assert more.options == plain.options


def test_another_size_than_the_log_s_is_refused(tmp_path: Path) -> None:
    log = read_startup_log(written(tmp_path, log_text()))
    with pytest.raises(ValueError, match="--tensor-parallel-size 2, not 4"):
        resolve_model_and_gpu("llama-3.1-8b", "h100-sxm", {"tensor_parallel_size": 4, "engine": "sglang"}, log)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (log_text(pool=""), "max_total_num_tokens=' is missing"),
        (log_text(ARGUMENTS.replace("0.85", "1.5")), "server_args: mem_fraction_static is 1.5"),
        (log_text(ARGUMENTS.replace("'lpm'", "'mine'")), "server_args: no schedule_policy 'mine'"),
    ],
)
def test_a_log_that_says_no_such_thing_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read_startup_log(written(tmp_path, text))
