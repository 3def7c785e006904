"""Where the links of the chain from people to users come from that a workload tells."""

from collections.abc import Mapping
from typing import Final

from headcount.inputs.traffic import TrafficInput
from headcount.queries.report_data.evidence_kind import MEASURED, kind_of
from workloads.demand import StandIn
from workloads.load import load_preset
from workloads.populations.population import Population
from workloads.traces.trace import Trace

_LENGTHS: Final = ("turns", "user_tokens", "output_tokens")


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
