"""Users at 95 % confidence from few replications compared with confirmed ones: `python -m validation.coarse_ends`.

Few replications scale the low end; confirmed rows simulate it. Prints a row of docs/measurements/search.md each.
"""

from dataclasses import replace
from typing import Any, Final

import headcount as hc
from simulator.study.candidate import Level, RunContext
from simulator.study.capacity import PRECISION
from simulator.study.capacity_table import CapacityTable

ASKED: Final[tuple[tuple[str, str, str, int, dict[str, Any]], ...]] = (
    ("llama-3.1-8b", "h100-sxm", "chat", 1, {}),
    ("llama-3.1-8b", "h100-sxm", "chat", 1, {"enable_prefix_caching": False}),
    ("llama-3.1-8b", "h100-sxm", "summarize", 1, {}),
    ("qwen3-8b", "h100-sxm", "rag", 1, {}),
    ("qwen3-30b-a3b", "h100-sxm", "chat", 1, {}),
    ("llama-3.1-8b", "rtx-pro-6000", "chat", 1, {}),
    ("llama-3.1-8b", "l40s", "chat", 2, {}),
    ("gemma-3-12b", "a100-80gb", "chat", 1, {}),
)


def main() -> None:
    """One row for each layout and router."""
    for model, gpu, workload, gpus, options in ASKED:
        few: dict[str, Any] = {"replications": 2, "precision": 0.9, "store": False}
        first = hc.capacity(model, gpu, gpus=[gpus], workload=workload, **few, **options).question
        table = CapacityTable(question=replace(first, replications=None, precision=PRECISION), how=RunContext())
        for candidate in table.candidates(gpus):
            coarse, confirmed = (candidate.known_as(level).row(gpus) for level in (Level.COARSE, Level.CONFIRMED))
            hits = confirmed.point.mean("prefix_hit_rate") if confirmed.point else 0.0
            router = f", {confirmed.router_name}" if confirmed.router_name else ""
            print(
                f"| {model}, {workload}{', no prefix caching' if options else ''} | {gpus} × {gpu}, TP {confirmed.tp}"
                f"{router} | {confirmed.step_time_error or 0:.0%} | {hits:.0%} | {coarse.users_low} | "
                f"{confirmed.users_low} | {coarse.users_low / confirmed.users_low - 1:+.1%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
