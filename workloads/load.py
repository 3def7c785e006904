"""A workload by its name or its path."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from files.documents import read_toml
from files.names import nearest_hint, one_line, shortened
from files.reading import InputError, check_confined, shown
from files.registry import Registry
from files.schema import AtLeastOne, typed
from workloads.fitted import MARK
from workloads.populations.population import Population
from workloads.populations.population_file import population_from_mapping
from workloads.requests import RequestTable
from workloads.traces.trace import Trace
from workloads.traces.trace_file import Source, TraceFile

if TYPE_CHECKING:
    from workloads.fitted.fitted_trace import FittedTrace

FITTED: Final = "fitted"
"""Format of a trace that was drawn from a model."""
PRESETS = Registry(what="preset", section="presets", folder=Path(__file__).parent / "presets", suffix=".toml")

KEY_BY_KEY: Final = ("retrieved", "client")
"""Tables of a population that are settings beside each other, not one distribution."""


def _are_tables(first: Mapping[str, object], second: Mapping[str, object], key: str) -> bool:
    return isinstance(first.get(key), dict) and isinstance(second.get(key), dict)


def preset_names() -> tuple[str, ...]:
    """Names of the presets, in order."""
    return PRESETS.names()


def load_preset(name: str) -> Population:
    """A preset, by its name in any case."""
    return _population(PRESETS.path(name.lower()), name.lower())


def usual_think_time_s() -> float:
    """Of the users who are taken to send a trace where none is given: the chat preset's mean."""
    return load_preset("chat").think_time_s.mean()


def presets_of(workload: Source) -> tuple[str, ...]:
    """Presets that a workload is made of: itself, and those that its file `extends`, the nearest first.

    () for a trace, and for a population that extends no preset. Raises InputError.
    """
    name, path = str(workload), Path(workload)
    if name.lower() in preset_names():
        path = PRESETS.path(name.lower())
    elif path.suffix != ".toml" or not os.path.lexists(path):
        return ()
    known = {PRESETS.path(each).resolve(): each for each in preset_names()}
    check_confined(path)
    files = [each.resolve() for each, _ in _extended(path)]
    return tuple(known[each] for each in files if each in known)


def _population(path: Path, name: str) -> Population:
    """A population's file; where it `extends` another, a table that it lacks is the other's, with its source.

    Of a table in `KEY_BY_KEY`, a key that it lacks is the other's.
    """
    tables: dict[str, Any] = {}
    for file, own in reversed(_extended(path)):
        merged = {key: {**tables[key], **own[key]} for key in KEY_BY_KEY if _are_tables(tables, own, key)}
        tables = {**tables, **own, **merged}
        found = population_from_mapping(tables, name=name if file == path else file.stem, file=file)
    return found


def _extended(path: Path) -> list[tuple[Path, dict[str, Any]]]:
    """A file with its own tables, then those that it `extends`, each checked before it is read."""
    found: list[tuple[Path, dict[str, Any]]] = []
    while True:
        tables = read_toml(path)
        base = tables.pop("extends", None)
        found.append((path, tables))
        if base is None:
            return found
        path = _base_path(typed(base, str, path, name="extends"), path)
        files = [each for each, _ in found]
        if path.resolve() in [each.resolve() for each in files]:
            circle = " → ".join(each.name for each in (*files, path))
            raise InputError(
                f"{shown(files[-1])}: extends leads back to where it began: {circle}; leave out one 'extends'"
            )


def _base_path(base: str, path: Path) -> Path:
    """A preset by its name, or a file beside the one that extends it."""
    is_preset = base.lower() in preset_names()
    found = PRESETS.path(base.lower()) if is_preset else path.parent / base
    check_confined(found)
    if not is_preset and not found.is_file():
        given = shortened(one_line(base), 200)
        raise InputError(
            f"{shown(path)}: extends '{given}': neither a preset nor a file beside it; "
            f"{nearest_hint(base, preset_names())}"
        )
    return found


def load_workload(
    name_or_path: Source, *, trace_block_size: int | None = None, num_requests: int | None = None
) -> Population | Trace:
    """A preset by name, a population from a .toml file, or a trace from any other file, its format found by content.

    A .toml file of a fitted trace is a trace: a draw of it, always the same, of `num_requests` if given.

    A preset's name wins over a file of that name; write ./chat for the file. A TraceFile says how its content is to be
    read, and at which times its requests come. `trace_block_size` is the number of tokens that one of a trace's block
    ids names, if not as its format has it.
    A trace is read as far as its first `num_requests` rows, if that is given; what comes after them is not looked at.
    Raises InputError.
    """
    file = name_or_path if isinstance(name_or_path, TraceFile) else TraceFile(name_or_path)
    found = [_loaded(each, trace_block_size, num_requests) for each in file.files]
    population = next((each for each in found if isinstance(each, Population)), None)
    if population is not None:
        if file.changes:
            given = " and ".join(file.changes)
            raise InputError(f"'{shortened(population.name, 200)}' is a population; only a trace takes {given}")
        return population
    return _at_other_times(file, [each for each in found if isinstance(each, Trace)])


def _at_other_times(file: TraceFile, traces: Sequence[Trace]) -> Trace:
    """The traces of a file and of those that follow it, as the file asks for them."""
    if not file.changes:
        return traces[0]
    from workloads.traces import times  # noqa: PLC0415  imported where it is asked for

    if file.spread_ticks:
        traces = [times.spread_in_ticks(each) for each in traces]
    found = times.spliced(traces[0], traces[1:]) if file.splice else traces[0]
    found = found if file.stretch is None else times.stretched(found, file.stretch)
    found = found if file.rate_scale is None else times.rate_scaled(found, file.rate_scale)
    found.table.validate()
    return found


def _loaded(file: TraceFile, trace_block_size: int | None, num_requests: int | None) -> Population | Trace:
    """What one file holds."""
    name, path = str(file), Path(file)
    if file.how and (name.lower() in preset_names() or path.suffix == ".toml"):
        raise InputError(
            f"'{shortened(one_line(name), 200)}' is a population; only a trace takes {' and '.join(file.how)}"
        )
    if name.lower() in preset_names():
        return load_preset(name)
    check_confined(path)
    if not name or not os.path.lexists(name):  # a link that leads nowhere is told by the reader
        hint = nearest_hint(name, preset_names())
        raise InputError(f"no workload '{shortened(one_line(name), 200)}': neither a file nor a preset; {hint}")
    if num_requests is not None:
        typed(num_requests, AtLeastOne, "", name="num_requests")
    if trace_block_size is not None:
        typed(trace_block_size, AtLeastOne, "", name="trace_block_size")
    if path.suffix == ".toml":
        fitted = load_fitted(path)
        return _population(path, path.stem) if fitted is None else drawn_trace(fitted, num_requests)
    found, recorded = file.recorded(trace_block_size, num_requests)
    table = recorded.table if num_requests is None else recorded.table.head(num_requests)
    table.validate()
    return Trace(
        name=path.name,
        format=found.name if found else "columns",
        table=table,
        source=found.source if found else "the columns that were named",
        notes=(
            *recorded.notes,
            *(_early_rows(table) if found is None or found.is_by_time else ()),
            *_priorities(table),
        ),
        block_size=recorded.block_size,
        session_turns=recorded.session_turns,
    )


def _early_rows(table: RequestTable) -> tuple[str, ...]:
    """How many rows arrive before one that stands above them."""
    times = table.arrival_s[~np.isnan(table.arrival_s)]
    count = int((times < np.maximum.accumulate(times)).sum())
    if not count:
        return ()
    return (f"{count:,} of {len(times):,} rows are not in order of time; each request comes at its own time",)


def _priorities(table: RequestTable) -> tuple[str, ...]:
    """That there are some, for they count under one policy alone."""
    if np.ptp(table.priority) == 0:
        return ()
    return (f"its requests have {len(np.unique(table.priority))} priorities; they count with a priority policy alone",)


def load_fitted(path: str | Path) -> "FittedTrace | None":
    """The model in a file that `headcount workload fit` wrote; None for any other workload. Raises InputError."""
    file = Path(path)
    if file.suffix != ".toml" or str(path).lower() in preset_names():
        return None
    tables = read_toml(file)
    if MARK not in tables:
        return None
    from workloads.fitted.fitted_file import fitted_from_mapping  # noqa: PLC0415  the compiler, where there is a model

    return fitted_from_mapping(tables, name=file.name, file=file)


def drawn_trace(model: "FittedTrace", num_requests: int | None = None, seed: int = 0) -> Trace:
    """Requests drawn from a model, by default as many as its trace had."""
    return Trace(
        name=model.name,
        format=FITTED,
        table=model.draw(num_requests, seed),
        source="headcount workload fit",
        notes=(f"drawn from a model {model.title}",),
        block_size=model.block_size,
    )
