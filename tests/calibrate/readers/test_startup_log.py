"""A server's start-up log is read, and stands in for the memory model."""

import csv
import tarfile
from pathlib import Path

import pytest

from calibrate.readers.parsing.startup_log import StartupLog, read_startup_log
from kvcache.layout.kv_layout import KVLayout, kv_layout
from kvcache.models.catalog import load_model

DATA = Path(__file__).parents[4] / "shared" / "data" / "measured"


def log_text(*, version: str = "0.32.0", tokens: str = "418,688", length: str = "8,192", arguments: str) -> str:
    """What vLLM logs at the start of a server on two GPUs, as far as it is read."""
    return f"""
INFO Initializing a V1 LLM engine (v{version}) with config: model='x'
(APIServer pid=1) INFO 04-22 00:09:44 [utils.py:233] non-default args: {arguments}
(Worker_TP0) INFO Model loading took 15.27 GiB memory and 7.798531 seconds
(Worker_TP1) INFO Model loading took 15.31 GiB memory and 7.798531 seconds
(Worker_TP0) DEBUG torch peak memory increase: 2.21GiB; non-torch forward increase memory: 0.25GiB; weights: 8GiB.
(Worker_TP0) INFO Available KV cache memory: 57.50 GiB
(Worker_TP1) INFO Available KV cache memory: 57.46 GiB
(EngineCore pid=2) INFO GPU KV cache size: {tokens} tokens
(EngineCore pid=2) INFO Maximum concurrency for {length} tokens per request: 51.11x
INFO Graph capturing finished in 5 secs, took 0.52 GiB
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "server.log"
    path.write_text(text, encoding="utf-8")
    return path


ARGUMENTS = "{'model': 'Qwen/Qwen3-8B', 'max_model_len': 8192, 'gpu_memory_utilization': 0.95}"


def test_every_figure_is_read_and_the_fullest_rank_decides(tmp_path: Path) -> None:
    text = log_text(arguments=ARGUMENTS.replace("}", ", 'tensor_parallel_size': 2}"))
    log = read_startup_log(written(tmp_path, text))
    assert not log.missing + log.contradictions
    assert (log.vllm_version, log.kv_cache_tokens, log.max_model_len) == ("0.32.0", 418_688, 8192)
    assert log.memory_gib == {
        "weights": 15.31,
        "activation_peak": 2.21,
        "non_torch": 0.25,
        "cuda_graph": 0.52,
        "available_kv": 57.46,
    }
    assert log.max_concurrency == 51.11
    assert log.options == {
        "model": "Qwen/Qwen3-8B",
        "gpu_memory_utilization": 0.95,
        "max_model_len": 8192,
        "vllm_version": "0.32.0",
        "tensor_parallel_size": 2,
    }


@pytest.mark.parametrize(
    ("version", "tokens", "length", "blocks"),
    [
        ("0.19.0", 418_688, 8192, 26_168),
        ("0.32.0", 418_688, 8192, 26_168),
        ("0.32.0", int(1000 / 63 * 1001), 1001, 1000),  # 63 blocks hold 1,001 tokens
    ],
)
def test_blocks_follow_from_the_tokens(version: str, tokens: int, length: int, blocks: int, tmp_path: Path) -> None:
    text = log_text(version=version, tokens=f"{tokens:,}", length=f"{length:,}", arguments=ARGUMENTS)
    assert read_startup_log(written(tmp_path, text)).num_gpu_blocks(kv_layout(load_model("qwen3-8b"))) == blocks


def test_a_hybrid_model_s_blocks_follow_from_the_bytes_in_later_releases(tmp_path: Path) -> None:
    layout = kv_layout(load_model("openai/gpt-oss-20b"))
    log = read_startup_log(written(tmp_path, log_text(arguments=ARGUMENTS)))
    assert log.num_gpu_blocks(layout) == int(57.46 * 2**30) // layout.block_bytes()
    text = log_text(arguments=ARGUMENTS).replace("Available KV cache memory", "?")
    with pytest.raises(ValueError, match="give --num-gpu-blocks-override"):
        read_startup_log(written(tmp_path, text)).num_gpu_blocks(layout)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "vLLM's version, 'GPU KV cache size', 'Maximum concurrency for' is missing"),
        (
            log_text(arguments="{'a': <object at 0x7>}"),
            "line 3: its non-default args, {'a': <object at 0x7>}, cannot be read; remove the line",
        ),
        (log_text(arguments=ARGUMENTS, tokens="0"), "GPU KV cache size is 0; it must be a whole number, at least 1"),
        (log_text(arguments=ARGUMENTS, tokens="9" * 20), "GPU KV cache size is 100000000000000000000; it must be"),
        (log_text(arguments="{'gpu_memory_utilization': -0.5}"), "gpu_memory_utilization is -0.5, must lie in"),
        (log_text(arguments="{'max_num_seqs': 2147483648}"), "max_num_seqs is 2,147,483,648, must be at least 1"),
        (log_text(arguments=ARGUMENTS).replace("GPU KV cache size", ""), "'GPU KV cache size' is missing"),
    ],
)
def test_what_is_no_start_up_log_is_told(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=told):
        read_startup_log(written(tmp_path, text))


@pytest.mark.skipif(not DATA.is_dir(), reason="the measured start-up logs are not here")
def test_blocks_of_real_servers(tmp_path: Path) -> None:
    """All 0.19 logs of models known by name: exact, or within a block per group where the tokens are rounded down."""
    with (DATA / "kv_capacity.csv").open(encoding="utf-8") as file:
        rows = {row["source"].split("logs/")[-1]: row for row in csv.DictReader(file) if "logs/" in row["source"]}
    with tarfile.open(DATA / "vllm_startup_logs_h100.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    compared = 0
    for path in sorted(tmp_path.rglob("*.log")):
        if path.name.endswith(".FAILED.log") or path.name not in rows:
            continue
        log = read_startup_log(path)
        layout = layout_of(log)
        if layout is None:
            continue
        compared += 1
        logged = float(rows[path.name]["kv_blocks"])
        assert 0 <= logged - log.num_gpu_blocks(layout) < len(layout.groups), path.name
    assert compared >= 15


def layout_of(log: StartupLog) -> KVLayout | None:
    try:
        architecture = load_model(log.options["model"])
    except ValueError:
        return None
    return kv_layout(architecture, tensor_parallel_size=log.arguments.get("tensor_parallel_size", 1))
