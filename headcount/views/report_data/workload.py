"""What an answer takes for granted of its load and deployment, each figure with its source."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from headcount.text.words import joined, slo_text
from headcount.views.report_data.assumptions import gpu_rows, of_terms
from simulator.deployment import Assumption, Deployment, default_router
from simulator.engines.engines import engine_of
from workloads.populations.population import Population
from workloads.populations.population_file import population_from_mapping
from workloads.traces.trace import Trace

if TYPE_CHECKING:
    from simulator.study.capacity_question import CapacityQuestion

UNITLESS = ("sigma", "sigmas", "shape", "weights")


def assumptions_of(question: "CapacityQuestion", plan: Deployment | None) -> list[dict[str, str]]:
    """Of the load, the GPU, memory and step times, those of the load first."""
    asked = (
        ("service level (SLO)", slo_text(question.slo), "as asked, or of the preset that the load is or extends"),
        ("router", _router(question), "as asked, or the default"),
        ("precision of the users", f"±{question.precision:.1%}", "as asked, or the default"),
    )
    found = [*of_terms("load", [*asked, *workload_rows(question)]), *of_terms("GPU", gpu_rows(question.gpu))]
    return [*found, *([] if plan is None else of_terms("memory and step times", plan.assumptions))]


def _router(question: "CapacityQuestion") -> str:
    if question.router is not None:
        return str(getattr(question.router, "__name__", question.router))
    ranks = question.args.num_engines
    several = default_router(ranks, 2)
    alone = default_router(ranks, 1, engine_of(question.args))
    return several if ranks == 1 else f"{alone} in one server, {several} for several"


def workload_rows(question: "CapacityQuestion") -> list[Assumption]:
    """Of a preset or a population, what its file says; of a trace, its statistics."""
    workload = question.workload
    if not isinstance(workload, Trace):
        return _rows(workload)
    about = joined([workload.source or workload.name, "counted in the trace"])
    rows = [(_words(name), f"{value:,.6g}", about) for name, value in workload.statistics().items()]
    return [*rows, ("think time (s)", f"{question.think_time_s:,.3g}", "--think-time, or the trace's sessions")]


def workload_text(question: "CapacityQuestion") -> str:
    """What users do, in a sentence or two."""
    load = question.workload
    if not isinstance(load, Trace):
        return (
            f"Users hold one conversation after another (workload '{load.name}'). Each turn sends the system prompt, "
            "the conversation so far and a new message. After the answer the user thinks for "
            f"{question.think_time_s:,.3g} s on average."
        )
    sessions = load.num_sessions < load.num_requests
    return (
        f"The trace '{load.name}' ({load.format} format) is replayed faster or slower: arrival times are divided by a "
        "factor; order and lengths stay. Each replication starts at a random place and wraps around. "
        + ("" if sessions else "The trace has no sessions, so the number of users is derived: ")
        + f"users = λ (Z + R), with requests per second λ, response time R, think time Z = "
        f"{question.think_time_s:,.3g} s."
    )


def _rows(population: Population) -> list[Assumption]:
    """What the file says with its sources, as far as it is what was simulated: --think-time may differ."""
    if not population.tables:
        return _bare_rows(population)
    asked = population_from_mapping(population.tables, name=population.name)
    if replace(population, think_time_s=asked.think_time_s) != asked:
        return _bare_rows(population)
    rows = {
        name: (name.removesuffix("_s").replace("_", " "), _value(name, part), str(part.get("source", "")))
        for name, part in population.tables.items()
        if isinstance(part, Mapping)
    }
    if population.think_time_s != asked.think_time_s:
        mean = f"mean {population.think_time_s.mean():g} s, exponential"
        rows["think_time_s"] = ("think time", mean, "given with --think-time")
    return list(rows.values())


def _bare_rows(population: Population) -> list[Assumption]:
    names = ("system_prompt_tokens", "turns", "user_tokens", "output_tokens", "think_time_s", "retrieved")
    parts = {name: getattr(population, name) for name in (*names, "thinking_share")}
    return [  # of a distribution the mean: changed ones have no name of their own
        (_words(name), f"mean {part.mean():,.4g}" if hasattr(part, "mean") else str(part), population.source)
        for name, part in parts.items()
        if part is not None
    ]


def _value(name: str, part: Mapping[str, object]) -> str:
    """A preset's table in words, such as `lognormal, median 39.7 s, sigma 1.224`."""
    unit = " s" if name.endswith("_s") else " tokens" if name.endswith("_tokens") else ""
    found = []
    for key, value in part.items():
        text = f"{value:,}" if isinstance(value, int | float) else str(value)
        if key == "kind":
            found.append(text)
        elif key == "tokens":
            found.append(f"{text} tokens")
        elif isinstance(value, Mapping):
            found.append(f"{key.replace('_', ' ')} ({_value(name, value)})")
        elif key != "source":
            found.append(f"{key.replace('_', ' ')} {text}{'' if key in UNITLESS else unit}")
    return ", ".join(found)


def _words(name: str) -> str:
    """A statistic's name with its unit in brackets."""
    if name.endswith("_per_s"):
        return name.removesuffix("_per_s").replace("_", " ") + " per second"
    return name.removesuffix("_s").replace("_", " ") + (" (s)" if name.endswith("_s") else "")
