"""Kernel times of matrix multiplies."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd

from kvcache.shape.tensors import Tensor
from simulator.latency.gpu_constants import Constants
from simulator.latency.step_time import FloatArray
from simulator.latency.terms import gemm
from validation.constants.kernel_tables.rows import MOST_TOKENS, Free, Rows, floats, lone_rank, powers, summed
from validation.constants.kernel_tables.tables import read_table

# The tables' words beside ours
GEMM_FORMATS = {"bfloat16": "bf16", "fp8": "fp8", "nvfp4": "nvfp4"}
SMALLEST_GEMM = 512  # rows or columns: below, no layer of a served model
WIDE_GEMM = 16384  # rows: below, quantizing the activations by itself, which served models fuse, outweighs the multiply
LARGE_GEMM = 2e7  # elements: smaller ones are read from the L2 in part
TILE_TOKENS, TILE_ENDS, LEAST_TILE_FACTOR = (17, 33), (16, 48), 1.1


def gemm_rows(data: Path, gpu: str) -> Iterator[Rows]:
    """Matrix multiplies, all formats at once: they share the kernel's start and its way through k."""
    table = read_table(data, gpu, "gemm", "gemm")
    if table is None:
        return
    table = table[table["gemm_dtype"].isin(GEMM_FORMATS) & (table["m"] <= MOST_TOKENS)]
    narrowest = np.where(table["gemm_dtype"] == "bfloat16", SMALLEST_GEMM, WIDE_GEMM)
    table = table[(table["n"] >= narrowest) & (table["k"] >= SMALLEST_GEMM)].sort_values("gemm_dtype")
    formats = [(name, table[table["gemm_dtype"] == name]) for name in sorted(table["gemm_dtype"].unique())]
    ranks = {name: lone_rank(gpu, quantization=GEMM_FORMATS[name]) for name, _ in formats}

    def term_s(constants: Constants) -> FloatArray:
        return np.concatenate(
            [
                summed(gemm(replace(ranks[name], constants=constants), floats(part, "m"), _matrices(part)))
                for name, part in formats
            ]
        )

    types = [ranks[name].scheme.gemm_dtype_on(ranks[name].gpu) for name, _ in formats]
    free: list[Free] = [(name, "") for name in ("gemm_start_s", "gemm_depth_s", "gemm_overlap_power")]
    free += [(name, dtype) for name in ("gemm_bandwidth_share", "gemm_compute_share") for dtype in dict.fromkeys(types)]
    if {"fp8", "fp4"} & set(types):
        free.append(("quantized_gemm_start_factor", ""))
    shapes = pd.DataFrame(
        {
            "n": powers(table["n"], 4),
            "format": table["gemm_dtype"],
            "m": powers(table["m"], 4),
            "k": powers(table["k"], 4),
        }
    )
    yield Rows("gemm", floats(table, "measured_s"), shapes, term_s, tuple(free))


def tile_factors(data: Path, gpu: str) -> dict[int, float]:
    """What large fp8 matrices with scales of whole rows take over a line from 16 to 48 tokens, by tokens.

    Nothing where a tile that is hardly filled costs less than a tenth.
    """
    table = read_table(data, gpu, "gemm", "gemm")
    if table is None:
        return {}
    table = table[(table["gemm_dtype"] == "fp8") & (table["n"] * table["k"] >= LARGE_GEMM)]
    times = table.pivot_table(index=["n", "k"], columns="m", values="measured_s", aggfunc="median")
    first, last = TILE_ENDS
    if not {first, last, *TILE_TOKENS} <= set(times.columns):
        return {}
    line = {m: (times[first] * (last - m) + times[last] * (m - first)) / (last - first) for m in TILE_TOKENS}
    found = {m: round(float((times[m] / line[m]).median()), 2) for m in TILE_TOKENS}
    return {**found, last: 1.0} if min(found.values()) >= LEAST_TILE_FACTOR else {}


def _matrices(table: pd.DataFrame) -> Tensor:
    """All matrices of the table in one: the terms are element-wise in rows and columns."""
    rows, cols = (cast(int, floats(table, name)) for name in ("n", "k"))
    return Tensor("mlp", rows, cols, quantizable=True)
