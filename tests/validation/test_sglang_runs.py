"""Public runs of SGLang are read as they were started, and the shipped interval is that of their errors."""

import json
from pathlib import Path

import pandas as pd
import pytest

from headcount.diagnostics.shipped import TIMES_OF_SGLANG
from simulator.latency.evidence import SGLANG_TPOT, SGLANG_TTFT
from simulator.latency.model import LogError
from validation.accuracy.sglang import RESULT
from validation.constants.kernel_tables.engines import RELEASES, TABLES, compare
from validation.measured.sglang_runs import FILE, R1, arguments_of, judged, read_sglang_settings, simulate

ROW = {
    "backend": "sglang", "backend_version": "0.5.9", "model_path": R1, "system": "h200_sxm", "precision": "fp8",
    "mode": "agg", "isl": 1024, "osl": 1024, "tp_size": 8, "moe_ep_size": 1, "silicon_ttft_ms": 260.0,
    "silicon_tpot_ms": 10.0, "silicon_data_source": "x; silicon_concurrency=4; measured=2026-03-25T00:00:00.000Z; y",
}  # fmt: skip
COLD = ROW["silicon_data_source"].replace("2026-03-25", "2025-11-10")  # type: ignore[attr-defined]


def clone(folder: Path, *rows: dict[str, object]) -> Path:
    (folder / FILE).parent.mkdir(parents=True)
    pd.DataFrame([ROW | row for row in rows]).to_csv(folder / FILE)
    return folder


def test_repeats_are_one_setting_and_what_cannot_be_simulated_is_left_out_by_name(tmp_path: Path) -> None:
    many = {"system": "b200_sxm", "silicon_data_source": "x; silicon_concurrency=256; measured=2026-03-25"}
    rows = [
        {}, {"silicon_tpot_ms": 12.0, "model_path": "deepseek-ai/DeepSeek-V3"}, {"backend": "vllm"},
        {"mode": "disagg"}, {"model_path": "zhipuai/GLM-5"}, {"moe_ep_size": 8}, {"tp_size": 16},
        {"silicon_data_source": COLD}, many,
    ]  # fmt: skip
    (setting,), skipped = read_sglang_settings(clone(tmp_path, *rows))
    assert (setting.model, setting.concurrency, setting.tpot_s) == (R1, 4, 0.011)
    assert list(skipped.values()) == [1, 1, 2, 1, 1]
    assert judged(setting).ttft
    args = arguments_of(setting)
    assert (args.max_running_requests, args.chunked_prefill_size, args.disable_radix_cache) == (512, 32768, True)


def test_a_run_of_nvidia_s_is_simulated_under_sglang_s_defaults(tmp_path: Path) -> None:
    mine = {"model_path": "Qwen/Qwen3-32B", "system": "h100_sxm", "precision": None, "tp_size": 2, "osl": 128}
    (setting,), _ = read_sglang_settings(clone(tmp_path, mine))
    ttft_s, tpot_s = simulate(setting)
    assert 0.1 < ttft_s < 1 and 0.008 < tpot_s < 0.03
    assert arguments_of(setting).chunked_prefill_size is None


def test_the_interval_is_that_of_the_stored_result_and_the_note_tells_it() -> None:
    stored = json.loads(RESULT.read_text(encoding="utf-8"))
    assert LogError(**stored["tpot"]["log_error"]) == SGLANG_TPOT
    assert LogError(**stored["ttft"]["log_error"]) == SGLANG_TTFT
    assert f"{stored['tpot']['n']} public SGLang settings is {stored['tpot']['median_percent']:.0f} %" in (
        TIMES_OF_SGLANG
    )


def test_kernels_are_paired_by_shape(tmp_path: Path) -> None:
    shapes = [{"gemm_dtype": "bfloat16", "m": m, "n": 4096, "k": 4096} for m in range(1, 30)]
    for engine, release in RELEASES.items():
        for gpu in ("h100_sxm", "h200_sxm", "b200_sxm"):
            folder = tmp_path / TABLES / gpu / "gemm" / engine / release
            folder.mkdir(parents=True)
            times = [{**shape, "latency": shape["m"] * (1.5 if engine == "sglang" else 1.0)} for shape in shapes]
            pd.DataFrame(times[engine == "vllm" :]).to_parquet(folder / "gemm_perf.parquet")
    found = next(compare(tmp_path))
    assert (found["shapes"], found["median"]) == (28, pytest.approx(1.5))
