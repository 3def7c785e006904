"""What the users were taken to do."""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from headcount.report.findings import Findings
from headcount.report.html import join, paragraph, table
from workloads.load import preset_names
from workloads.population import Population, population_from_mapping
from workloads.trace import Trace

TITLE = "The workload"
ORDER = 70
COLUMNS = ("what", "value", "source")


def render(findings: Findings) -> str:
    workload = findings.question.workload
    if isinstance(workload, Trace):
        return _trace(findings, workload)
    return _population(findings, workload)


def _population(findings: Findings, population: Population) -> str:
    described = _described(findings.workload_name)
    intro = paragraph(
        f"Users hold one conversation after another, as '{population.name}' describes. Each turn sends the "
        "system prompt, all that was said before in the conversation, a new message; after the answer the user thinks. "
        f"Think time: mean {findings.question.think_time_s:,.3g} s."
    )
    if not described:
        return join(
            intro, table(COLUMNS, [("workload", population.name, population.source)], caption="", layout="text")
        )
    changed = population_from_mapping(described, name=population.name).think_time_s != population.think_time_s
    rows = [
        (name.removesuffix("_s").replace("_", " "), _value(name, part), str(part.get("source", "")))
        for name, part in described.items()
        if isinstance(part, Mapping) and not (changed and name == "think_time_s")
    ]
    if changed:
        mean = f"mean {findings.question.think_time_s:g} s, exponential"
        rows.append(("think time", mean, "given with --think-time"))
    caption = str(described.get("title", population.name))
    return join(intro, table(COLUMNS, rows, caption=caption, layout="text"))


def _described(workload_name: str) -> Mapping[str, Any]:
    """The population's own file; empty where it is no longer there to be read."""
    name, path = workload_name.lower(), Path(workload_name)
    if name in preset_names():
        return tomllib.loads(files("workloads").joinpath("presets", f"{name}.toml").read_text(encoding="utf-8"))
    if path.suffix == ".toml" and path.is_file():
        return tomllib.loads(path.read_text(encoding="utf-8"))
    return {}


def _value(name: str, part: Mapping[str, Any]) -> str:
    unit = " s" if name.endswith("_s") else " tokens" if name.endswith("_tokens") else ""
    found = []
    for key, value in part.items():
        if key == "source":
            continue
        plain = key in ("kind", "sigma", "shape", "weights", "sigmas", "tokens")
        text = f"{value:,}" if isinstance(value, int | float) else str(value)
        found.append(str(value) if key == "kind" else f"{key.replace('_', ' ')} {text}{'' if plain else unit}")
    return ", ".join(found)


def _trace(findings: Findings, trace: Trace) -> str:
    sessions = trace.num_sessions < trace.num_requests
    intro = paragraph(
        f"The trace '{trace.name}' ({trace.format} format) replayed faster or slower: arrival times are divided by a "
        "factor, order and lengths kept; each replication starts at its own random place, wrapped round. "
        + ("" if sessions else "The trace has no sessions, so it says nothing of users by itself: ")
        + f"users = λ (Z + R), with requests per second λ, response time R, think time Z = "
        f"{findings.question.think_time_s:,.3g} s."
    )
    rows = [(name.replace("_", " "), f"{value:,.6g}", trace.source) for name, value in trace.statistics().items()]
    return join(intro, table(COLUMNS, rows, caption="The trace as recorded; times in seconds", layout="text"))
