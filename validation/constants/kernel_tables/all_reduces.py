"""Kernel times of all-reduces."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from simulator.latency.gpu_constants import Constants
from simulator.latency.step_time import FloatArray
from simulator.latency.terms import NVLINK, all_reduce_s
from validation.constants.kernel_tables.rows import Free, Rows, floats, lone_rank, powers
from validation.constants.kernel_tables.tables import read_table

# Messages are counted in 16-bit elements: only so A100, H100 reach NCCL's known bandwidths.
MESSAGES = (2**10, 2**26)  # one token of the smallest model to 8192 tokens of the largest


def all_reduce_rows(data: Path, gpu: str) -> Iterator[Rows]:
    """All-reduces in CUDA graphs; those launched one by one copy their message before, which a server does not.

    aiconfigurator, collector/network/collect_all_reduce.py: `input_tensor.clone()`.
    """
    table = read_table(data, gpu, "comm", "custom_allreduce")
    if table is None:
        return
    table = table[table["backend"].str.endswith("graph") & table["message_size"].between(*MESSAGES)]
    rank = lone_rank(gpu)
    counts = sorted(table["num_gpus"].unique())
    table = table.sort_values(["num_gpus", "message_size"])

    def term_s(constants: Constants) -> FloatArray:
        ours = replace(rank, constants=constants)
        return np.concatenate(
            [
                all_reduce_s(ours, floats(table[table["num_gpus"] == count], "message_size"), 1, ranks=int(count))
                for count in counts
            ]
        )

    link = rank.gpu.interconnect
    shapes = pd.DataFrame({"ranks": table["num_gpus"], "elements": powers(table["message_size"], 8)})
    free: tuple[Free, ...] = (
        ("all_reduce_start_s", link),
        ("all_reduce_link_share", link),
        ("all_reduce_rank_exponent", link),
        ("all_reduce_start_growth", ""),
    )
    if link == NVLINK:
        free += (("all_reduce_one_stage_share", link), ("all_reduce_second_stage_s", link))
    yield Rows("all-reduce", floats(table, "measured_s"), shapes, term_s, free)
