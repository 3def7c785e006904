"""The tables of docs/measurements/sglang.md, from stored results."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from simulator.latency.model import LogError
from validation.accuracy import sglang
from validation.constants.kernel_tables import engines
from validation.markdown import table

FIGURES = ("tpot", "ttft", "e2e")


def sglang_tables() -> dict[str, Callable[[], str]]:
    """By the names of the page's markers."""
    runs = json.loads(sglang.RESULT.read_text(encoding="utf-8"))
    kernels = json.loads(engines.RESULT.read_text(encoding="utf-8"))
    return {
        "runs": partial(_runs, runs),
        "judged": partial(_judged, runs),
        "skipped": lambda: table(("left out", "rows"), [(why, f"{count:,}") for why, count in runs["skipped"].items()]),
        "kernels": partial(_kernels, kernels),
    }


def _runs(runs: Mapping[str, Any]) -> str:
    heads = ("model", "GPU", "weights", "SGLang", "settings", *(f"{name.upper()} (bias), %" for name in FIGURES))
    rows = [
        (
            *(kind[name] for name in sglang.BY),
            f"{kind['n']:.0f}",
            *(_error(kind[f"{name}_median"], kind[f"{name}_bias"]) for name in FIGURES),
        )
        for kind in runs["kinds"]
    ]
    return table(heads, rows)


def _error(median: float | None, bias: float | None) -> str:
    return "not judged" if median is None or bias is None else f"{median:.1f} ({bias:+.1f})"


def _judged(runs: Mapping[str, Any]) -> str:
    heads = ("", "settings", "median error, %", "bias, %", "90 % interval", "settings of a model left out inside, %")
    rows = []
    for name in ("tpot", "ttft"):
        found = runs[name]
        half = LogError(**found["log_error"]).half_width
        rows.append(
            (
                name.upper(),
                f"{found['n']}",
                f"{found['median_percent']:.1f}",
                f"{found['bias_percent']:+.1f}",
                f"±{half:.0%}",
                f"{found['covered_percent']:.0f}",
            )
        )
    return table(heads, rows)


def _kernels(kernels: Mapping[str, Any]) -> str:
    names = [gpu.removesuffix("_sxm").upper() for gpu in engines.GPUS]
    rows: dict[str, dict[str, str]] = {}
    for pair in kernels["kernels"]:
        text = f"{pair['median']:.2f} ({pair['low']:.2f} to {pair['high']:.2f})"
        rows.setdefault(pair["kernels"], {})[pair["gpu"]] = text
    return table(
        ("kernels", *names), [(says, *(by.get(gpu, "–") for gpu in engines.GPUS)) for says, by in rows.items()]
    )
