"""How long SGLang's kernels take beside vLLM's, shape by shape.

    python -m validation.constants.kernel_tables.engines CLONE [--write]

CLONE is a clone of github.com/ai-dynamo/aiconfigurator (Apache-2.0), whose tables hold both engines' kernel times on
the same GPUs: `<gpu>/<family>/<engine>/<release>`. `--write` puts the figures into docs/measurements/results.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from validation.constants.kernel_tables.attention import FROM_MEMORY_BYTES
from validation.constants.kernel_tables.gemms import SMALLEST_GEMM
from validation.markdown import DOCS

TABLES: Final = Path("aic-core/src/aiconfigurator_core/systems/data")
RELEASES: Final = {"sglang": "0.5.14", "vllm": "0.24.0"}
GPUS: Final = ("h100_sxm", "h200_sxm", "b200_sxm")
RESULT: Final = DOCS / "measurements" / "results" / "sglang-kernels.json"
SHORT_KERNEL_MS = 0.05  # of a prefill: below, its start is what is measured
FEWEST_SHAPES = 20
Part = Callable[[pd.DataFrame], Any]  # which rows of the pairs


def _context_bytes(rows: pd.DataFrame) -> "pd.Series[float]":
    width = rows["head_dim"] * rows["num_key_value_heads"] * np.where(rows["kv_cache_dtype"] == "fp8", 1, 2)
    return 2 * width * rows["batch_size"] * rows["step"]


@dataclass(frozen=True)
class Kernels:
    """One row of the result: which of a table's shapes it is of."""

    says: str
    table: str  # family/name
    keys: tuple[str, ...]  # what makes a shape
    chosen: Part


_GEMM = ("gemm/gemm", ("gemm_dtype", "m", "n", "k"))
_ATTENTION = (
    "batch_size",
    "isl",
    "num_heads",
    "num_key_value_heads",
    "head_dim",
    "kv_cache_dtype",
    "step",
    "window_size",
)
_DECODE = ("attention/generation_attention", _ATTENTION)
_PREFILL = ("attention/context_attention", (*_ATTENTION, "attn_dtype"))
_EXPERTS = (
    "moe/moe",
    ("moe_dtype", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size",
     "distribution"),
)  # fmt: skip
_REDUCE = ("comm/custom_allreduce", ("num_gpus", "message_size", "in_graph"))


def _gemm(dtype: str, least: int, most: int) -> Part:
    return lambda rows: (
        (rows["gemm_dtype"] == dtype) & rows["m"].between(least, most) & (rows[["n", "k"]].min(axis=1) >= SMALLEST_GEMM)
    )


def _decode(dtype: str) -> Part:
    return lambda rows: (
        (rows["kv_cache_dtype"] == dtype) & (rows["window_size"] == 0) & (_context_bytes(rows) > FROM_MEMORY_BYTES)
    )


def _prefill(rows: pd.DataFrame) -> Any:
    is_plain = (rows["head_dim"] == 128) & (rows["kv_cache_dtype"] == "bfloat16") & (rows["window_size"] == 0)
    return is_plain & (rows["latency_vllm"] > SHORT_KERNEL_MS)


KERNELS: Final = (
    Kernels("GEMM, bf16, up to 256 tokens", *_GEMM, _gemm("bfloat16", 1, 256)),
    Kernels("GEMM, bf16, above 1,024 tokens", *_GEMM, _gemm("bfloat16", 1025, 16384)),
    Kernels("GEMM, fp8, up to 256 tokens", *_GEMM, _gemm("fp8", 1, 256)),
    Kernels("GEMM, fp8, above 1,024 tokens", *_GEMM, _gemm("fp8", 1025, 16384)),
    Kernels("decode attention, bf16 cache", *_DECODE, _decode("bfloat16")),
    Kernels("decode attention, fp8 cache", *_DECODE, _decode("fp8")),
    Kernels("prefill attention, head dim 128", *_PREFILL, _prefill),
    Kernels("experts, bf16", *_EXPERTS, lambda rows: rows["moe_dtype"] == "bfloat16"),
    Kernels("experts, fp8 in blocks", *_EXPERTS, lambda rows: rows["moe_dtype"] == "fp8_block"),
    Kernels("all-reduce in a CUDA graph, 2 GPUs", *_REDUCE, lambda rows: rows["in_graph"] & (rows["num_gpus"] == 2)),
    Kernels("all-reduce in a CUDA graph, 8 GPUs", *_REDUCE, lambda rows: rows["in_graph"] & (rows["num_gpus"] == 8)),
)


def compare(clone: Path) -> Iterator[dict[str, Any]]:
    """SGLang's time over vLLM's of the same shape: median, and the range of 8 in 10 shapes."""
    for kernels in KERNELS:
        for gpu in GPUS:
            rows = _pairs(clone, gpu, kernels)
            rows = rows[kernels.chosen(rows)]
            if len(rows) < FEWEST_SHAPES:
                continue
            low, middle, high = np.quantile(rows["latency_sglang"] / rows["latency_vllm"], (0.1, 0.5, 0.9))
            found = {"median": middle, "low": low, "high": high}
            yield {"kernels": kernels.says, "gpu": gpu, "shapes": len(rows)} | {
                name: round(float(value), 3) for name, value in found.items()
            }


def _pairs(clone: Path, gpu: str, kernels: Kernels) -> pd.DataFrame:
    family, name = kernels.table.split("/")
    both = []
    for engine, release in RELEASES.items():
        table = pd.read_parquet(clone / TABLES / gpu / family / engine / release / f"{name}_perf.parquet")
        if "backend" in table:
            table["in_graph"] = table["backend"].str.endswith("graph")
        table = table[table["latency"] > 0].groupby(list(kernels.keys), as_index=False)["latency"].median()
        both.append(table.rename(columns={"latency": f"latency_{engine}"}))
    return both[0].merge(both[1], on=list(kernels.keys))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=Path, help="folder of the clone")
    parser.add_argument("--write", action="store_true", help=f"put the figures into {RESULT.name}")
    given = parser.parse_args()
    text = json.dumps({"releases": RELEASES, "kernels": list(compare(given.clone))}, indent=1) + "\n"
    if given.write:
        RESULT.write_text(text, encoding="utf-8")
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
