"""Where the links of the chain from people to users come from, and whether a source measured or assumed."""

import re
from collections.abc import Mapping
from typing import Final

from headcount.inputs.traffic import TrafficInput
from workloads.demand import StandIn
from workloads.load import load_preset
from workloads.populations.population import Population
from workloads.traces.trace import Trace

MEASURED, SPECIFIED, ASSUMED = "measured", "specified", "assumed"
_ASSUMED = re.compile(r"assum|judgement|not measured|wider than measured|no start-up log|default stands", re.IGNORECASE)
_MEASURED = re.compile(
    r"\bfitted|measured|kernel tables|kernel times|start-up log|out-of-memory messages|request logs|\btrace|arXiv|"
    r"dataset|conversations|latency profile|recording",
    re.IGNORECASE,
)

_LENGTHS: Final = ("turns", "user_tokens", "output_tokens")


def kind_of(source: str) -> str:
    """As its source says; what nobody measured and nobody guessed stands in a specification or was given."""
    if _ASSUMED.search(source):
        return ASSUMED
    return MEASURED if _MEASURED.search(source) else SPECIFIED


def think_time_link(asked: TrafficInput, workload: Population | Trace, mean_s: float) -> StandIn:
    """The mean think time Z: asked for, or as the workload's file has it; a trace takes the chat preset's."""
    if asked.think_time_s is not None or "think-time" in asked.changes:
        return StandIn(mean_s, "", "given")
    population = load_preset("chat") if isinstance(workload, Trace) else workload
    return _of_tables(mean_s, population, ("think_time_s",))


def tokens_link(workload: Population | Trace, tokens: float) -> StandIn:
    """Mean tokens of a request: counted in a trace, or as a population's lengths have them."""
    if isinstance(workload, Trace):
        return StandIn(tokens, f"counted in {workload.name}", "measured")
    return _of_tables(tokens, workload, _LENGTHS)


def _of_tables(value: float, population: Population, names: tuple[str, ...]) -> StandIn:
    """Measured where each of the tables says so."""
    parts = [population.tables.get(name) for name in names]
    sources = [str(part.get("source", "")) if isinstance(part, Mapping) else "" for part in parts]
    said = "; ".join(dict.fromkeys(filter(None, sources)))
    source = f"workload {population.name}{f': {said}' if said else ''}"
    is_measured = all(kind_of(each) == MEASURED for each in sources)
    return StandIn(value, source, "measured" if is_measured else "assumed")
