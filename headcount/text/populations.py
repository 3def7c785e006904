"""Populations as text: the list of presets, and every number of one."""

from collections.abc import Iterator, Mapping
from typing import Final

from headcount.text.blocks import Block, Line, Table
from workloads.populations.population import Population
from workloads.populations.summary import Part, PopulationSummary, population_summary
from workloads.traces.trace import Trace

LIST_COLUMNS: Final = ("workload", "what", "mean think time", "turns", "context tokens", "answer tokens")
_TITLES: Final = {"system_prompt": "system prompt", "think_time_s": "think time", "patience_s": "patience"}


def mean_context_tokens(load: Population | Trace) -> float:
    """Of a request's prompt and answer together; in a trace of the prompts, whose lengths are what is varied."""
    if isinstance(load, Population):
        return population_summary(load).mean_context_tokens
    return float(load.table.prompt_tokens.mean())


def context_text(load: Population | Trace) -> str:
    """Such as `average context 3,623 tokens`."""
    what = "context" if isinstance(load, Population) else "prompt"
    return f"average {what} {mean_context_tokens(load):,.0f} tokens"


def list_row(summary: PopulationSummary) -> tuple[str, ...]:
    """One row under LIST_COLUMNS; all figures are means."""
    return (
        summary.name,
        summary.title,
        f"{summary.mean_think_time_s:,.0f} s",
        f"{summary.mean_turns:.1f}",
        f"{summary.mean_context_tokens:,.0f}{' + images' * ('images' in summary.beside)}",
        f"{summary.mean_output_tokens:,.0f}",
    )


def population_blocks(summary: PopulationSummary) -> Iterator[Block]:
    """Every number of a population, then the sources."""
    yield Line(bold=summary.name, text=f": {summary.title}" * bool(summary.title))
    yield Line()
    rows = [_row(part) for part in summary.parts]
    yield Table(columns=("", "mean", "p50", "p95", "given as"), rows=rows, text_columns=(0, 4))
    yield Line()
    beside = ", beside images, whose tokens the model decides" if "images" in summary.beside else ""
    yield Line(
        f"  prompt and answer together: {summary.mean_context_tokens:,.0f} tokens on average as a turn ends{beside}"
    )
    for name, table in summary.beside.items():
        yield Line(f"  {name.replace('_', ' ')}: {_given(table)}")
    sources = [part for part in summary.parts if part.source]
    if sources:
        yield Line()
        yield Line(bold="Sources")
    for part in sources:
        yield Line(f"  {_title(part)}: {part.source}")


def _row(part: Part) -> tuple[str, ...]:
    return (_title(part), *(_figure(value, part.unit) for value in (part.mean, part.p50, part.p95)), _given(part.given))


def _figure(value: float, unit: str) -> str:
    if unit == "share":
        return f"{100 * value:.1f} %"
    return f"{value:,.0f} tokens" if unit == "tokens" else f"{value:,.1f} {unit}"


def _given(given: object) -> str:
    """Such as `lognormal, median 47.7, sigma 1.1`."""
    if not isinstance(given, Mapping):
        return "" if given is None else str(given)
    kind = [str(given["kind"])] if "kind" in given else []
    rest = (f"{key.replace('_', ' ')} {_value(each)}" for key, each in given.items() if key != "kind")
    return ", ".join([*kind, *rest])


def _value(given: object) -> str:
    if isinstance(given, Mapping):
        return f"({_given(given)})"
    if isinstance(given, list):
        return f"[{', '.join(map(str, given))}]"
    if isinstance(given, bool):
        return "yes" if given else "no"
    return str(given).replace("_", " ")


def _title(part: Part) -> str:
    return _TITLES.get(part.name, part.name.replace("_", " "))
