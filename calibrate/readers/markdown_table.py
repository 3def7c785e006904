"""Markdown tables of latencies over concurrency or rate: one run per row, named by the header.

A latency's column names it, its statistic (else it is taken as the mean) and its unit, which may stand in the cells
instead. A table without a load or without a latency is passed over.
"""

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.engine_options import engine_option
from calibrate.readers.parsing.files import Head, numbers, result_text
from files.errors import HeadcountError

LOOKS_LIKE = "a markdown table with columns such as 'concurrency' and 'mean TTFT (ms)'"
_RULE = re.compile(r"\s*\|?(?:\s*:?-{2,}:?\s*\|)+(?:\s*:?-{2,}:?\s*)?$")
_CELL = re.compile(r"[~≈]?\s*([0-9][0-9,]*(?:\.[0-9]+)?|inf|∞)\s*(ms|s|µs|us)?\b", re.I)
_UNIT = re.compile(r"[(\[,\s](ms|milliseconds|s|sec|seconds|µs|us)\b", re.I)
_SECONDS = {"ms": 1e-3, "milliseconds": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0, "µs": 1e-6, "us": 1e-6}
_LATENCIES = {
    "ttft_s": r"\bTTFT\b|time to first token",
    "tpot_s": r"\bTPOT\b|time per output token",
    "itl_s": r"\bITL\b|inter[- ]token latency",
    "e2e_s": r"\bE2EL?\b|end[- ]to[- ]end",
}
_STATISTIC = re.compile(r"\b(mean|avg|average|median|std|max|p[0-9]{2}(?:\.[0-9])?)\b", re.I)
_STATISTICS = {"avg": "mean", "average": "mean", "median": "p50"}
_LOADS = {
    "concurrency": r"concurren|\bclients\b|\bconc\.?$|^c$|\busers\b",
    "rate": r"request rate|\bQPS\b|\bRPS\b(?!.*throughput)|^rate\b",
    "input_len": r"input (?:len|tokens)|\bISL\b|prompt (?:len|tokens)",
    "output_len": r"output (?:len|tokens)\b(?!/)|\bOSL\b",
    "num_requests": r"num[_ -]prompts|(?:number of|#) ?(?:prompts|requests)",
}
_RATES = {
    "requests_per_s": r"req(?:uests)?/s|requests per second",
    "output_tokens_per_s": r"output.{0,30}tok(?:en)?s?/s|output token throughput|gen.{0,30}tok(?:en)?s?/s",
    "total_tokens_per_s": r"total.{0,30}tok(?:en)?s?/s",
}


def recognizes(path: Path, head: Head) -> bool:
    return isinstance(head, str) and any(_has_both(_columns(header)) for header, _ in _tables(result_text(path)))


def read(path: Path) -> list[MeasuredRun]:
    """One run per row of every such table. Raises HeadcountError for a latency without a unit."""
    return [
        run
        for header, rows in _tables(result_text(path))
        if _has_both(columns := _columns(header))
        for row in rows
        if (run := _run(path, header, columns, row)) is not None
    ]


def _tables(text: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Header and rows of each table of a text."""
    lines = [line.lstrip("> ") for line in text.splitlines()]
    for index, line in enumerate(lines[1:], start=1):
        if "|" in line and _RULE.match(line) and "|" in lines[index - 1]:
            rows: list[list[str]] = []
            for row in lines[index + 1 :]:
                if "|" not in row:
                    break
                rows.append(_cells(row))
            yield _cells(lines[index - 1]), rows


def _cells(line: str) -> list[str]:
    return [cell.strip().strip("*`_").strip() for cell in line.strip().strip("|").split("|")]


def _columns(header: Sequence[str]) -> list[str | None]:
    """The figure's name of each column, such as `ttft_s.p99` or `load.concurrency`."""
    return [_column(title) for title in header]


def _column(title: str) -> str | None:
    if title.lower() in ("model", "tp"):
        return {"model": "option.model", "tp": "option.tensor_parallel_size"}[title.lower()]
    for name, pattern in _LATENCIES.items():
        if re.search(pattern, title, re.I):
            found = _STATISTIC.search(title)
            statistic = found[1].lower() if found else "mean"
            return f"{name}.{_STATISTICS.get(statistic, statistic)}"
    for kind, patterns in (("", _RATES), ("load.", _LOADS)):
        for name, pattern in patterns.items():
            if re.search(pattern, title, re.I):
                return f"{kind}{name}"
    return None


def _has_both(columns: Sequence[str | None]) -> bool:
    told = [name for name in columns if name is not None]
    return any(name in ("load.concurrency", "load.rate") for name in told) and any(
        name.startswith(tuple(f"{latency}." for latency in _LATENCIES)) for name in told
    )


def _run(path: Path, header: Sequence[str], columns: Sequence[str | None], row: Sequence[str]) -> MeasuredRun | None:
    """None where a row has no load, as one that continues a title."""
    load, options, figures = dict[str, float](), dict[str, object](), dict[str, float]()
    for title, name, cell in zip(header, columns, row, strict=False):
        if name is None or not cell:
            continue
        kind, _, rest = name.partition(".")
        if kind == "option":
            options[rest] = engine_option(rest, cell, path, title)
        elif kind == "load":
            load |= numbers(**{rest: _number(cell)})
        elif rest:
            figures[name] = _number(cell) * _seconds(path, title, cell)
        else:
            figures[name] = _number(cell)
    if not {"concurrency", "rate"} & load.keys():
        return None
    assumed = [title for title, name in zip(header, columns, strict=True) if name and name.endswith("_s.mean")]
    unsaid = [title for title in assumed if not _STATISTIC.search(title)]
    notes = ("read from a table: it has figures, but no requests",)
    return MeasuredRun(
        source=path,
        tool="markdown table",
        options=options,
        load=load,
        aggregates=numbers(**figures),
        notes=(*notes, f"taken as means: {', '.join(unsaid)}") if unsaid else notes,
    )


def _number(cell: str) -> float:
    found = _CELL.match(cell)
    if found is None:
        return math.nan
    return math.inf if found[1].lower() in ("inf", "∞") else float(found[1].replace(",", ""))


def _seconds(path: Path, title: str, cell: str) -> float:
    """A cell's unit, else the header's, in seconds."""
    own = _CELL.match(cell)
    if own is None:
        return 1.0
    of_title = _UNIT.search(title)
    unit = own[2] or (of_title[1] if of_title else None)
    if unit is None:
        raise HeadcountError(
            f"{path}: column '{title}' has no unit; write '{title} (ms)' or '{title} (s)' in its header"
        )
    return _SECONDS[unit.lower()]
