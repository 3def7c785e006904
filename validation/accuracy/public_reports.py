"""Points that people published in issues and posts, beside what the command line says of the same deployment."""

import csv
import io
import json
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from files.errors import HeadcountError
from headcount.cli.main import cli

REPORTS: Final = Path("measured") / "public_reports.csv"
ARGUMENTS, MEASURED = "arguments of simulate", "measured (ms, requests/s, tokens/s)"
# Figures of the reports: key of the answer, statistic, its unit over the answer's; E2E follows from TTFT and TPOT.
FIGURES: Final = {
    "tpot": ("tpot_s", "mean", 1e3),
    "tpot_p50": ("tpot_s", "p50", 1e3),
    "ttft": ("ttft_s", "mean", 1e3),
    "ttft_p50": ("ttft_s", "p50", 1e3),
    "tok_s": ("output_tokens_per_s", None, 1.0),
}
AT_RANDOM, CLOSED_LOOP, BURST = LOADS = ("at random", "closed loop", "burst")
# vLLM issue 42058: eight prompts of 1,024 and of 16,384 tokens, TPOT 35.1 and 36.5 ms. To wait for each other's prompts
# would take 12 ms a token with the latter, at the GPU's peak: so it is of decodes, once all prompts are done.
DECODES_ALONE: Final = ("vllm42058",)
METRICS: Final = {"tpot": "tpot", "tpot_p50": "tpot", "ttft": "ttft", "ttft_p50": "ttft", "tok_s": "throughput"}


def public_reports(data: Path) -> dict[str, Any]:
    """Errors in % by GPU and kind of server, whether the 90 % interval holds them, and what could not be asked.

    `loads`: the same by kind of load.
    """
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    by_load: dict[str, list[dict[str, Any]]] = {load: [] for load in LOADS}
    refused: set[str] = set()
    with (data / REPORTS).open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["figure"] not in FIGURES:
                continue
            answer = _answer(row[ARGUMENTS])
            if answer is None:
                refused.add(row["report"])
                continue
            words = shlex.split(row[ARGUMENTS])
            kind = "eager" if "--enforce-eager" in words else "TP 2" if "-tp" in words else "one GPU"
            point = _judged(row, answer)
            found[words[words.index("--gpu") + 1], kind].append(point)
            by_load[load_of(words)].append(point)
    rows = [{"gpu": gpu, "kind": kind} | _medians(points) for (gpu, kind), points in sorted(found.items())]
    loads = [{"load": load} | _medians(points) for load, points in by_load.items()]
    return {"rows": rows, "loads": loads, "refused": sorted(refused)}


def load_of(words: Sequence[str]) -> str:
    """One of LOADS, by the arguments of simulate: a burst has no client that sends twice."""
    if "--concurrency" not in words:
        return AT_RANDOM
    clients, requests = (int(words[words.index(name) + 1]) for name in ("--concurrency", "--num-requests"))
    return BURST if clients >= requests else CLOSED_LOOP


@cache
def _answer(arguments: str) -> Mapping[str, Any] | None:
    """What `headcount simulate … --json` prints; None where it refuses the arguments."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        try:
            cli.main(args=["simulate", *shlex.split(arguments), "--json"], standalone_mode=False)
        except (HeadcountError, click.ClickException):
            return None
    found: Mapping[str, Any] = json.loads(out.getvalue())
    return found


def _judged(row: Mapping[str, str], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Error of one figure in %, and for means whether it is within the answer's interval."""
    key, statistic, factor = FIGURES[row["figure"]]
    measured, value = float(row[MEASURED]) / factor, answer[key]
    simulated, inside = (value if statistic is None else value[statistic]), None
    if statistic == "mean":
        is_decode = row["figure"] == "tpot" and row["report"].startswith(DECODES_ALONE)
        simulated = answer["itl_s"]["p50"] if is_decode else simulated
        low, high = (value[end] * simulated / value["mean"] for end in ("mean_low", "mean_high"))
        inside = low <= measured <= high
    return {"metric": METRICS[row["figure"]], "error": 100 * (simulated / measured - 1), "inside": inside}


def _medians(points: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"n": len(points)}
    for metric in dict.fromkeys(METRICS.values()):
        errors = [point["error"] for point in points if point["metric"] == metric]
        found[metric] = float(np.median(np.abs(errors))) if errors else None
        found[f"{metric}_bias"] = float(np.median(errors)) if errors else None
        found[f"{metric}_worst"] = float(np.max(np.abs(errors))) if errors else None
    judged = [point["inside"] for point in points if point["inside"] is not None]
    return found | {"judged": len(judged), "inside": sum(judged)}
