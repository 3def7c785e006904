"""The tables of docs pages that list what is found by name: workloads, formats, release rules."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from calibrate.readers import READERS, reader
from files.limits import reference_rows as limits
from files.schema import Strict
from headcount.inputs.reading.traffic import usage
from headcount.text.populations import LIST_COLUMNS, list_row
from kvcache.releases import Rule, rules
from simulator.study.slo import PRESETS as SLOS
from validation.markdown import table
from validation.pages.structure import first_line
from workloads.arrivals import PROCESSES
from workloads.clients import Library
from workloads.demand import CHAINS, LINKS
from workloads.distributions import KINDS
from workloads.images import ImagesTable
from workloads.load import load_preset, preset_names
from workloads.populations.at_limit import AtLimit
from workloads.populations.summary import population_summary
from workloads.tenants import TenantTable
from workloads.traces.trace_format import trace_formats
from workloads.traffic import TRACE_CHANGES
from workloads.traffic_changes import CHANGES, FORMS

Tables = dict[str, Callable[[], str]]


def workload_tables() -> Tables:
    """Of docs/reference/workloads.md."""
    return {
        "presets": _presets,
        "distributions": _distributions,
        "arrivals": _arrivals,
        "client": _client,
        "tenant": partial(_by_hand, TenantTable, "[tenants.NAME]"),
        "at-limit": partial(_by_hand, AtLimit, "[at_limit]"),
        "images": partial(_by_hand, ImagesTable, "[images]"),
        "slos": _slos,
    }


def demand_tables() -> Tables:
    """Of docs/explanation/demand.md."""
    return {"links": _links}


def file_format_tables() -> Tables:
    """Of docs/reference/file-formats.md."""
    return {"traces": _traces, "readers": _readers}


def change_tables() -> Tables:
    """Of docs/explanation/workloads.md."""
    return {"changes": _changes}


def limit_tables() -> Tables:
    """Of docs/reference/limits.md."""
    return {"limits": _limits}


def release_tables() -> Tables:
    """Of docs/reference/release-rules.md."""
    return {"rules": _rules}


def _presets() -> str:
    found = [population_summary(load_preset(name)) for name in preset_names()]
    return table(LIST_COLUMNS, [(f"`{each.name}`", *list_row(each)[1:]) for each in found])


def _changes() -> str:
    rows = []
    for name, change in CHANGES.items():
        by_form = {"mean": f"`x2`, or {change.unit}", "share": f"`10%:32K`: share and {change.unit}"}
        forms = "a number" if change.unit == "retries" else by_form.get(change.form, FORMS[change.form])
        rows.append((f"`{name}`", change.meaning, forms, "yes" if name in TRACE_CHANGES else "no"))
    return table(("change", "what", "amount", "in a trace"), rows)


def _links() -> str:
    rows = []
    for name, kind in LINKS.items():
        starts = ", ".join(f"`{start}`" for start, chain in CHAINS.items() if name in chain) or "a start"
        found = kind.default
        default, source = ("", "") if found is None else (f"{100 * found.value:g} %, {found.kind}", found.source)
        rows.append((f"`{name}`", f"{kind.meaning}, {kind.unit}", starts, default, source))
    return table(("link", "what", "in the chain of", "default", "source"), rows)


def _limits() -> str:
    return table(("limit", "default", "why"), ((f"`{name}`", f"{most:,.0f}", why) for name, most, why in limits()))


def _distributions() -> str:
    rows = []
    for kind, form in KINDS.items():
        schemas = msgspec.json.schema(form)["$defs"][form.__name__]["properties"]
        parameters = "; ".join(f"`{name}` {_allowed(schema)}" for name, schema in schemas.items())
        rows.append((f"`{kind}`", parameters, (form.__doc__ or "").partition("\n")[0]))
    return table(("kind", "parameters", "what"), rows)


def _client() -> str:
    schemas = msgspec.json.schema(Library)["$defs"]["Library"]["properties"]
    rows = [
        (f"`{name}`", _allowed(schema), str(schema.get("default", "none")).lower()) for name, schema in schemas.items()
    ]
    return table(("`[client]`", "value", "default"), [row for row in rows if row[0] != "`source`"])


def _by_hand(kind: type[Strict], title: str) -> str:
    """The keys of a table that somebody writes by hand."""
    schemas = msgspec.json.schema(kind)["$defs"][kind.__name__]["properties"]
    allowed = {name: _allowed(schema.get("anyOf", [schema])[0]) for name, schema in schemas.items()}
    return table((f"`{title}`", "value"), [(f"`{key}`", text) for key, text in allowed.items() if key != "source"])


def _arrivals() -> str:
    rows = []
    for name, form in PROCESSES.items():
        schemas = msgspec.json.schema(form)["$defs"][form.__name__]["properties"]
        parameters = "; ".join(f"`{key.removesuffix('_s')}` {_allowed(schema)}" for key, schema in schemas.items())
        rows.append((f"`{usage(name)}`", parameters, " ".join((form.__doc__ or "").split())))
    return table(("process", "parameters", "what"), rows)


def _allowed(schema: dict[str, Any]) -> str:
    each = f"each {schema['items']['description']}" if "items" in schema else ""
    return str(schema.get("description", each)).replace("a number ", "")


def _slos() -> str:
    rows = [
        (f"`{name}`", f"{slo.ttft_s:g} s", f"{1e3 * slo.tpot_s:g} ms", f"{100 * slo.attainment:g} %", source)
        for name, (slo, source) in SLOS.items()
        if slo.ttft_s is not None and slo.tpot_s is not None
    ]
    return table(("`--slo`", "TTFT", "TPOT", "attainment", "source"), rows)


def _traces() -> str:
    rows = [(f"`{known.name}`", known.looks_like, known.source) for known in trace_formats()]
    return table(("format", "found by", "source"), rows)


def _readers() -> str:
    rows = [(f"`{name}`", reader(name).LOOKS_LIKE, first_line(path)) for name, path in READERS.files().items()]
    return table(("`--format`", "found by", "what"), rows)


def _rules() -> str:
    found = sorted(rules().items(), key=lambda item: (_order(item[1]), item[0]))
    rows = [(_range(rule), rule.meaning, rule.source) for _, rule in found]
    return table(("releases", "rule", "source"), rows)


def _order(rule: Rule) -> tuple[int, ...]:
    return tuple(map(int, (rule.since or rule.until or "0").split(".")))


def _range(rule: Rule) -> str:
    since = f"since {rule.since}" if rule.since else ""
    until = f"before {rule.until}" if rule.until else ""
    return ", ".join(filter(None, (since, until))) or "all"
