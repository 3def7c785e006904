"""The table of flags beside an installed engine's own argument parser."""

from dataclasses import dataclass
from pathlib import Path

from conformance.components.probes import FOLDER
from conformance.probing import answers
from simulator.engines.argument import arguments_of, flags_of
from simulator.engines.engines import ENGINES
from simulator.engines.flags import inverse_of, read_flag


@dataclass(frozen=True, kw_only=True)
class FlagComparison:
    """What an engine's server takes, and what of it nothing here says."""

    engine: str
    version: str
    flags: tuple[str, ...]  # with their dashes
    unclassified: tuple[str, ...]
    twice: tuple[str, ...]  # of an argument and of the table


def check_flags(python: Path, engine: str) -> FlagComparison:
    """Raises HeadcountError where the interpreter has no such engine."""
    case = {"name": engine}
    (found,) = answers(python, "flags_probe", [case], failure=f"the flags of {engine} failed", folder=FOLDER)
    own = argument_flags(engine)
    names = {flag: flag.lstrip("-") for flag in found["flags"]}
    groups = {flag: read_flag(engine, name)[0] for flag, name in names.items()}
    return FlagComparison(
        engine=engine,
        version=found["version"],
        flags=tuple(names),
        unclassified=tuple(flag for flag, name in names.items() if groups[flag] is None and name not in own),
        twice=tuple(flag for flag, name in names.items() if groups[flag] is not None and name in own),
    )


def argument_flags(engine: str) -> set[str]:
    """Every spelling of an argument here that is the engine's, without dashes."""
    described = {name: each for name, each in arguments_of(ENGINES[engine]).items() if each.is_engine_s}
    flags = {flag.lstrip("-") for name, each in described.items() for flag in flags_of(name, each)}
    flags |= {name.replace("_", "-") for name in described}
    flags |= {inverse_of(name) for name in flags if f"no-{name}" in flags}
    return flags | {alias for each in described.values() for alias in (*each.aliases, *_off(each.aliases))}


def _off(aliases: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"no-{alias}" for alias in aliases)
