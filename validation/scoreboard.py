"""Every kind of public run that simulations are compared with, in one table: the worst first.

`python -m validation.scoreboard` prints it, from the stored figures in docs/measurements/results.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from validation.accuracy.load_tables import signed
from validation.markdown import DOCS, table
from validation.wide_ep import RUNGS
from validation.wide_ep import simulated as simulated_rung

MEASURED = DOCS / "measurements"
Results = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Runs that are alike: errors in %, of one figure, by group; the page that has them all."""

    runs: str
    figure: str
    errors: Mapping[str, float]  # of each group, its median
    count: int  # runs or settings
    page: str
    is_signed: bool = True  # else medians of absolute errors

    @property
    def worst(self) -> tuple[str, float]:
        return max(self.errors.items(), key=lambda item: abs(item[1]))

    @property
    def median(self) -> float:
        """Of the groups' absolute errors: each group counts once."""
        ordered, count = sorted(map(abs, self.errors.values())), len(self.errors)
        return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2

    def cells(self) -> list[str]:
        name, error = self.worst
        shown = f"{self.median:.1f}" if len(self.errors) > 1 else "–"
        return [
            f"[{self.runs}]({self.page})", self.figure, f"{self.count:,}", f"{len(self.errors)}", shown,
            f"{signed(error) if self.is_signed else f'±{error:.1f}'}: {name}",
        ]  # fmt: skip


def results(name: str) -> Results:
    """The stored figures of that name."""
    found: Results = json.loads((MEASURED / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def entries() -> Iterable[Entry]:
    """Every kind of run whose figures are stored, or are computed at once."""
    accuracy, sglang, families = (results(name) for name in ("accuracy", "sglang-runs", "new-families"))
    held, chat = accuracy["held-out"]["scoreboard"], accuracy["chat"]["error_percent"]["simulated"]
    yield Entry(
        runs="closed loops under vLLM, each group left out of the fit", figure="mean TPOT",
        errors={f"{row['model']} on {row['gpu']}, vLLM {row['version']}": row["tpot_median"] for row in held},
        count=sum(row["n"] for row in held), page="step-times.md", is_signed=False,
    )  # fmt: skip
    yield Entry(
        runs="closed loops under SGLang", figure="mean TPOT",
        errors={f"{row['model']} on {row['gpu']}, SGLang {row['version']}": row["tpot_median"]
                for row in sglang["kinds"]},
        count=sglang["settings"], page="sglang.md", is_signed=False,
    )  # fmt: skip
    reports = [row for row in accuracy["public-reports"]["rows"] if row["tpot"] is not None]
    yield Entry(
        runs="public reports", figure="mean TPOT",
        errors={f"{row['gpu']}, {row['kind']}": row["tpot_bias"] for row in reports},
        count=sum(row["n"] for row in reports), page="intervals.md",
    )  # fmt: skip
    for part, runs in (("h100", "requests at random on H100"), ("h100-aggregates", "published means of such requests")):
        rows = accuracy[part]["rows"]
        yield Entry(
            runs=runs, figure="mean E2E", errors=_by_model({row["run"]: row["e2e"] for row in rows}),
            count=len(rows), page="requests.md",
        )  # fmt: skip
    yield Entry(
        runs="a chat load of 450 users on H100", figure="TPOT p95", errors={"Llama-3.1-8B": chat["tpot_p95"]}, count=1,
        page="requests.md",
    )  # fmt: skip
    lone = accuracy["lone-prompts"]["rows"]
    yield Entry(
        runs="one request at a time on H100", figure="TTFT",
        errors=_medians((f"{row['kind']}", row["ttft"]) for row in lone), count=len(lone), page="requests.md",
    )  # fmt: skip
    runs = [run for run in families["runs"] if "error_percent" in run]
    yield Entry(
        runs="models of 2025 and 2026", figure="mean TPOT",
        errors=_medians((_model_of(run["command"]), run["error_percent"]) for run in runs), count=len(runs),
        page="new-families.md",
    )  # fmt: skip
    for name, run in results("runs").items():
        yield Entry(
            runs=f"{name}, by {run['measured_by']}", figure="mean E2E", errors={name: run["errors"]["e2e_s.mean"]},
            count=run["runs"], page="scoreboard.md#add-a-run",
        )  # fmt: skip
    rungs = [(rung.deployment, 100 * (simulated_rung(rung) / rung.tokens_per_s - 1)) for rung in RUNGS]
    yield Entry(
        runs="wide expert parallelism", figure="tokens/s of a GPU", errors=_medians(rungs), count=len(rungs),
        page="expert-parallelism.md",
    )  # fmt: skip


def _by_model(errors: Mapping[str, float]) -> dict[str, float]:
    """Of runs whose names end in their load, such as `llama-2-7b-tp1-codegen at 5/s`."""
    return _medians((run.rpartition("-")[0], error) for run, error in errors.items())


def _medians(errors: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Of each group, the error in the middle."""
    groups: dict[str, list[float]] = {}
    for name, error in errors:
        groups.setdefault(name, []).append(error)
    return {name: sorted(found, key=abs)[len(found) // 2] for name, found in groups.items()}


def _model_of(command: str) -> str:
    words = command.split()
    return words[words.index("--model") + 1]


def page_table() -> str:
    """All of them, the worst group first."""
    rows: Sequence[Entry] = sorted(entries(), key=lambda entry: -abs(entry.worst[1]))
    head = ("runs", "figure", "runs or settings", "groups", "median of the groups, %", "the worst group, %")
    return table(head, [entry.cells() for entry in rows])


def scoreboard_tables() -> dict[str, Callable[[], str]]:
    """The tables of docs/measurements/scoreboard.md."""
    return {"all-runs": page_table}


if __name__ == "__main__":
    print(page_table())
