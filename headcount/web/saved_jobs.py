"""What is kept of an answer: its scenario, its headline, its main figures; several beside one another."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from files.documents import Json
from headcount.queries.result import Result
from headcount.text.units import finite, percent, seconds
from headcount.views.shown import summary
from headcount.web.scenario import Scenario

FIGURES: Final = {  # the keys of --json that are shown beside one another, with their names for people
    "gpu": "GPU", "gpus": "GPUs", "layout": "layout", "servers": "servers", "replicas": "replicas", "tp": "TP",
    "users_low": "users at 95 % confidence", "users": "expected users",
    "users_high": "upper end of the 90 % interval of users",
    "usd_per_month": "US dollars a month", "usd_per_user_month": "US dollars per user and month",
    "requests_per_s": "requests per second", "output_tokens_per_s": "output tokens per second",
    "in_flight": "requests in flight", "kv_usage": "KV cache in use",
    "ttft_s.p50": "TTFT p50", "ttft_s.p95": "TTFT p95", "tpot_s.p50": "TPOT p50", "tpot_s.p95": "TPOT p95",
    "e2e_s.p50": "whole answer p50", "e2e_s.p95": "whole answer p95",
    "attainment.mean": "requests within the SLO", "binding": "bottleneck", "num_gpu_blocks": "KV blocks or pages",
    "kv_cache_tokens": "KV-cache tokens", "model_fits": "the model fits",
}  # fmt: skip
_LOADS: Final = {"at_users_low": True, "at_users_to_serve": True, "at_users": False}  # whether it is shown
_SHARES: Final = ("attainment.mean", "kv_usage")
MOST: Final = 4


@dataclass(frozen=True, kw_only=True)
class SavedJob:
    """A finished answer, small enough to be read for every line of a list."""

    scenario: Scenario
    asked_at: str  # in UTC
    headline: str
    verdict: int
    alerts: tuple[str, ...]
    rows: tuple[Json, ...]  # FIGURES of every row of the answer, the leading one first


def saved_job_of(scenario: Scenario, answer: Result) -> SavedJob:
    return SavedJob(
        scenario=scenario,
        asked_at=f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
        headline=summary(answer.complete()).answer,
        verdict=int(answer.verdict),
        alerts=tuple(map(str, answer.alerts)),
        rows=tuple(_rows(answer)),
    )


def _rows(answer: Result) -> list[Json]:
    found = [_flat(finite(row)) for row in answer.rows()]
    latencies = {f"{row['latency']}.{name}": value for row in found if "latency" in row for name, value in row.items()}
    if latencies:  # a simulation has a row for each latency
        found = [{**_flat(finite(answer.figures())), **latencies}]
    rows = [{name: row[name] for name in FIGURES if row.get(name) is not None} for row in found]
    return sorted(rows, key=lambda row: -(row.get("users_low") or 0)) if "capacity" in answer.figures() else rows


def _flat(row: dict[str, object], before: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in row.items():
        if name in _LOADS and isinstance(value, dict):
            found |= _flat(value) if _LOADS[name] else {}
            continue
        found |= _flat(value, f"{before}{name}.") if isinstance(value, dict) else {f"{before}{name}": value}
    return found


def figure_text(name: str, value: Any) -> str:
    """A figure for people, in its unit."""
    if value is None:
        return "–"
    if "_s." in name:
        return seconds(value)
    if name in _SHARES:
        return percent(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


@dataclass(frozen=True)
class Comparison:
    """Rows of cells, one for each answer; those that differ are marked."""

    asked: list[tuple[str, list[str], bool]]
    answered: list[tuple[str, list[str], bool]]


def compared(answers: Sequence[SavedJob]) -> Comparison:
    """Every field that one of them gave, every figure that one of them has."""
    names = dict.fromkeys(name for kept in answers for name, _ in kept.scenario.values)
    asked = [_row(name.replace("-", " "), [kept.scenario.shown(name) or "–" for kept in answers]) for name in names]
    rows = [kept.rows[0] if kept.rows else {} for kept in answers]
    figures = [name for name in FIGURES if any(name in row for row in rows)]
    answered = [_row(FIGURES[name], [figure_text(name, row.get(name)) for row in rows]) for name in figures]
    questions = [_row("question", [kept.scenario.question for kept in answers])]
    return Comparison(asked=[*questions, *asked], answered=answered)


def _row(name: str, cells: list[str]) -> tuple[str, list[str], bool]:
    return name, cells, len(set(cells)) > 1
