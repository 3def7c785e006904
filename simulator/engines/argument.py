"""An engine argument: how it is read, what it does, what it is where the user gives nothing; each said once."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from simulator.engines.values import MAX_SECONDS, Duration, Kind, Switch, TokenCount, WholeNumber

MEMORY, SCHEDULER, STEP_TIME, COLD_START = "memory", "scheduler", "step time", "cold start"


@dataclass(frozen=True, kw_only=True)
class Argument:
    """What is known of one field of an engine's arguments."""

    kind: Kind
    help: str
    decides: str  # MEMORY, and with it all else; the SCHEDULER; the STEP_TIME; a first step, at a COLD_START
    default: Any = None  # None where nothing is set, or where it depends
    default_of: Callable[..., Any] | None = None  # of the arguments so far, model and GPU: what None stands for
    default_text: str = ""  # of a default that depends, for people
    short: str = ""  # a second, short flag
    flag: str = ""  # the engine's own flag, without dashes, where it is not the field's name
    aliases: tuple[str, ...] = ()  # other flags of the engine that mean the same, without dashes
    is_engine_s: bool = True  # an argument of the engine, not only of its simulation

    @property
    def range(self) -> tuple[float, float]:
        """The least and the most that a count or a time may be."""
        match self.kind:
            case WholeNumber(minimum=minimum, most=most):
                return minimum, most
            case TokenCount(most=most):
                return 1, most
            case Duration():
                return 0, MAX_SECONDS
        return -math.inf, math.inf

    @property
    def is_switch(self) -> bool:
        return isinstance(self.kind, Switch)

    @property
    def is_reversible(self) -> bool:
        """Whether the engine has a flag that turns it off, too."""
        return isinstance(self.kind, Switch) and self.kind.has_opposite


def argument(kind: Kind, help: str, *, decides: str, default: Any = None, **known: Any) -> Any:
    """A field of a frozen dataclass of arguments."""
    described = Argument(kind=kind, help=help, decides=decides, default=default, **known)
    return field(default=default, metadata={"argument": described})


def arguments_of(engine_args: type) -> dict[str, Argument]:
    """The arguments of an engine by the field's name, in order."""
    return {item.name: item.metadata["argument"] for item in fields(engine_args) if "argument" in item.metadata}


def flag_of(name: str, described: Argument) -> str:
    """The engine's flag, without dashes in front, such as `max-model-len`."""
    return (described.flag or name).replace("_", "-")


def command_line(args: Any) -> list[str]:
    """The words of an engine's command line that say what these arguments set, defaults left out."""
    words: list[str] = []
    for name, described in arguments_of(type(args)).items():
        value = getattr(args, name)
        if not described.is_engine_s or value == described.default:
            continue
        flag = flag_of(name, described)
        words += [f"--{'' if value else 'no-'}{flag}"] if described.is_switch else [f"--{flag}", _word(value)]
    return words


def _word(value: Any) -> str:
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)


def flags_of(name: str, described: Argument) -> list[str]:
    """What sets an argument on the command line, on and off for a switch; the short flag last."""
    flag = flag_of(name, described)
    names = [f"--{flag}", f"--no-{flag}"] if described.is_reversible else [f"--{flag}"]
    return [*names, f"-{described.short}"] if described.short else names
