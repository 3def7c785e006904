"""Constants are recovered from kernel times that were made with them."""

import json
import tomllib
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache.models.catalog import find_gpu
from simulator.latency.gpu_constants import constants_for
from validation.constants.kernel_tables.__main__ import main
from validation.constants.kernel_tables.experts import dealt
from validation.constants.kernel_tables.fits import fit_gpu, fit_older
from validation.constants.kernel_tables.priors import prior_text
from validation.constants.kernel_tables.tables import available, read_table

pytest.importorskip("pyarrow", reason="the tables are parquet files")

GPU = find_gpu("h100-sxm")
BANDWIDTH, PEAK, LINK = GPU.memory_bandwidth_bytes_per_s, GPU.flops_per_s, GPU.interconnect_bytes_per_s
KNOWN = {
    ("gemm_bandwidth_share", "bf16"): 0.7,
    ("gemm_bandwidth_share", "fp8"): 0.6,
    ("gemm_depth_s", ""): 3e-10,
    ("gemm_start_s", ""): 5e-6,
    ("gemm_overlap_power", ""): 2.0,
    ("gemm_compute_share", "bf16"): 0.66,
    ("gemm_compute_share", "fp8"): 0.44,
    ("quantized_gemm_start_factor", ""): 1.5,
    ("decode_attention_bandwidth_share", "16"): 0.61,
    ("decode_attention_start_s", ""): 8e-6,
    ("decode_attention_sequence_s", ""): 20e-9,
    ("prefill_attention_compute_share", "128"): 0.47,
    ("prefill_attention_extra_positions", ""): 400.0,
    ("all_reduce_start_s", "nvlink"): 6e-6,
    ("all_reduce_start_growth", ""): 0.2,
    ("all_reduce_link_share", "nvlink"): 0.41,
    ("all_reduce_rank_exponent", "nvlink"): 0.5,
    ("all_reduce_one_stage_share", "nvlink"): 0.6,
    ("all_reduce_second_stage_s", "nvlink"): 5e-6,
    ("expert_bandwidth_share", "bf16"): 0.77,
    ("expert_read_s", "bf16"): 1e-7,
    ("expert_overlap_power", "bf16"): 1.6,
    ("expert_tile_reads", "bf16"): 0.3,
    ("expert_compute_share", "bf16"): 0.5,
    ("expert_activation_bytes_per_element", "bf16"): 11.0,
    ("expert_start_s", "bf16"): 30e-6,
}


def write(data: Path, family: str, name: str, table: pd.DataFrame, release: str = "0.24.0") -> None:
    folder = data / "measured" / "op_tables" / "h100_sxm" / family / "vllm" / release
    folder.mkdir(parents=True, exist_ok=True)
    table.to_parquet(folder / f"{name}_perf.parquet")


def grid(**values: list[object]) -> pd.DataFrame:
    return pd.DataFrame(list(product(*values.values())), columns=list(values))


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kernel times in ms by the terms as they are written down, without the code that is fitted."""
    data = tmp_path_factory.mktemp("tables")
    gemms = grid(gemm_dtype=["bfloat16", "fp8"], m=[1, 64, 512, 8192], n=[8192, 16384, 65536], k=[1024, 4096, 16384])
    m, n, k = (gemms[name].to_numpy(float) for name in "mnk")
    quantized = (gemms["gemm_dtype"] == "fp8").to_numpy()
    peak = np.where(quantized, PEAK["fp8"] * 0.44, PEAK["bf16"] * 0.66)
    weights = np.where(quantized, n * k + 4 * n, 2 * n * k)
    moved_s = (weights + 2 * m * (n + k)) / (np.where(quantized, 0.6, 0.7) * BANDWIDTH)
    own_s = np.where(quantized, 7.5e-6, 5e-6) + 3e-10 * k
    gemms["latency"] = 1e3 * (np.hypot(moved_s, 2 * m * n * k / peak) + own_s)
    write(data, "gemm", "gemm", gemms)

    heads = {"num_heads": [32], "num_key_value_heads": [8], "head_dim": [128], "kv_cache_dtype": ["bfloat16"]}
    decodes = grid(batch_size=[1, 64, 256, 1024], step=[7, 255, 8191], window_size=[0], **heads)
    context = decodes["batch_size"] * (decodes["step"] + 1)
    sequences_s = 20e-9 * 8 * decodes["batch_size"]
    decodes["latency"] = 1e3 * (8e-6 + sequences_s + context * 4096 / (0.61 * BANDWIDTH))
    write(data, "attention", "generation_attention", decodes)
    prefills = grid(batch_size=[1, 8], isl=[1024, 2048, 8192], window_size=[0], **heads)
    positions = prefills["isl"] * ((prefills["isl"] + 1) / 2 + 400)
    prefills["latency"] = 1e3 * prefills["batch_size"] * positions * 4 * 32 * 128 / (0.47 * PEAK["bf16"])
    write(data, "attention", "context_attention", prefills)

    sums = grid(num_gpus=[2, 4, 8], message_size=[2**power for power in range(10, 27, 2)], backend=["graph", "eager"])
    ranks, message = sums["num_gpus"], 2 * sums["message_size"]
    bulk_s = (2 * (ranks - 1) / ranks) ** 0.5 * message / (0.41 * LINK)
    whole_s = np.where(ranks == 2, bulk_s, (ranks - 1) * message / (0.6 * LINK))
    most = ranks.map({2: 2**23, 4: 2**19 - 1, 8: 2**18 - 1})
    moving_s = np.where(message <= most, whole_s, bulk_s + 5e-6)
    sums["latency"] = 1e3 * (6e-6 * (1 + 0.2 * np.log2(ranks)) + moving_s)
    sums.loc[sums["backend"] == "eager", "latency"] *= 1.5  # with a copy of the message
    write(data, "comm", "custom_allreduce", sums)

    moes = grid(
        num_tokens=[1, 4, 16, 64, 256, 1024, 4096, 16384], moe_tp_size=[1, 4], distribution=["balanced"],
        hidden_size=[2048, 4096], inter_size=[1024], topk=[8], num_experts=[64], moe_ep_size=[1],
        moe_dtype=["bfloat16"], kernel_source=["vllm_triton"],
    )  # fmt: skip
    one = 3 * moes["hidden_size"] * moes["inter_size"] / moes["moe_tp_size"]
    chosen = 8 * moes["num_tokens"]
    distinct, each = np.minimum(chosen, 64), np.maximum(chosen / 64, 1)
    one_s, rows = 2 * one / (0.77 * BANDWIDTH), each.map(lambda count: min(max(2 ** np.ceil(np.log2(count)), 8), 64))
    tile_s = 0.3 * one_s + rows * 2 * one / (0.5 * PEAK["bf16"])
    read_s, computed_s = distinct * (one_s + 1e-7), distinct * np.ceil(each / rows) * tile_s
    extra_s = chosen * moes["hidden_size"] * 11 / BANDWIDTH
    moes["latency"] = 1e3 * ((read_s**1.6 + computed_s**1.6) ** (1 / 1.6) + extra_s + 30e-6)
    write(data, "moe", "moe", moes)
    return data


@pytest.mark.slow
def test_known_constants_are_recovered(tables: Path) -> None:
    fitted, _ = fit_gpu(tables, "h100_sxm")
    found = {(item.constant, item.key): item.value for item in fitted}
    assert {key: found[key] for key in KNOWN} == pytest.approx(KNOWN, rel=0.01)


@pytest.mark.slow
def test_a_fit_is_nearer_than_what_is_shipped(tables: Path) -> None:
    for item in fit_gpu(tables, "h100_sxm")[0]:
        assert item.median_error_percent < item.shipped_error_percent


@pytest.mark.slow
def test_what_is_written_is_read_as_constants(tables: Path) -> None:
    fitted, _ = fit_gpu(tables, "h100_sxm")
    enough = [item for item in fitted if item.constant.startswith("gemm")]
    written = tomllib.loads(prior_text("h100_sxm", [*enough], enough, {17: 1.3, 48: 1.0}))
    assert written["priors"]["row_wise_tile_factor"]["value"] == {"17": 1.3, "48": 1.0}
    assert set(written["priors"]) <= set(constants_for(GPU).sources)
    assert set(written) <= {"priors", "before"}


def test_older_tables_are_asked_for_by_release(tables: Path, tmp_path: Path) -> None:
    for release, latency in (("0.19.0", 2.0), ("0.24.0", 1.0)):
        write(tmp_path, "gemm", "gemm", pd.DataFrame({"latency": [latency]}), release)
    newest, older = (read_table(tmp_path, "h100_sxm", "gemm", "gemm", before=name) for name in (None, "0.24.0"))
    assert newest is not None and older is not None
    assert (newest["measured_s"][0], older["measured_s"][0]) == (1e-3, 2e-3)
    assert read_table(tmp_path, "h100_sxm", "gemm", "gemm", before="0.19.0") is None
    assert fit_older(tables, "h100_sxm", []) == []


@given(st.integers(1, 4096), st.integers(1, 8), st.sampled_from([16, 64, 256]), st.sampled_from([8.0, 64.0]))
def test_no_way_to_deal_reaches_more_experts_or_needs_fewer_tiles_than_an_even_one(
    tokens: int, topk: int, num_experts: int, rows: float
) -> None:
    total = tokens * topk
    even, uneven = (dealt(tokens, topk, num_experts, name, rows) for name in ("balanced", "power_law_1.01"))
    assert even[0] == min(total, num_experts) >= uneven[0] >= 1
    for distinct, tiles in (even, uneven):
        assert distinct <= tiles <= distinct + total / rows


def test_a_folder_without_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no kernel tables in .*give the folder"):
        available(tmp_path)


@pytest.mark.slow
def test_the_benchmark_prints_every_constant(
    tables: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["kernel_tables", "--data", str(tables), "--json"])
    assert main() == 0
    constants = json.loads(capsys.readouterr().out)["gpus"]["h100-sxm"]["constants"]
    assert {(item["constant"], item["key"]) for item in constants} >= set(KNOWN)
    monkeypatch.setattr("sys.argv", ["kernel_tables", "--data", str(tables)])
    assert main() == 0
    assert "gemm_compute_share fp8" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["kernel_tables", "--data", str(tables / "nowhere")])
    assert main() == 2
