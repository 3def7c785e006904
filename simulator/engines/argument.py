"""An engine argument: how it is read, what it does, what it is where the user gives nothing; each said once."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self, TypeAlias, get_type_hints

from files.arguments import check_argument
from files.errors import HeadcountError
from simulator.engines.interconnect import PCIeLink, read_link
from simulator.engines.values import (
    LARGEST,
    MAX_SECONDS,
    Duration,
    DurationOrAuto,
    FilePath,
    Kind,
    Number,
    Switch,
    Text,
    TokenCount,
    WholeNumber,
)

Settings: TypeAlias = Mapping[str, Any]
"""What an engine was given: its arguments by their names, with its model and GPU, or the environment of its process.

Each has the type of its field in the engine's arguments, or is what their kind reads.
"""
AUTO = "auto"
SLOWEST_HOST, FASTEST_HOST = 0.1, 10.0  # cores differ by less
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
            case Duration() | DurationOrAuto():
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


@dataclass(frozen=True, kw_only=True)
class SimulatedArgs:
    """What every engine's arguments share: step times, which its simulation takes, and how values are checked."""

    latency_model: str = argument(
        Text(names_code=True),
        "Step-time model: physical, constant, or your own by name.",
        decides=STEP_TIME,
        default="physical",
        is_engine_s=False,
    )
    step_s: float | None = argument(
        Number("seconds, such as 0.01"),
        "Seconds per step. Needs --latency-model constant.",
        decides=STEP_TIME,
        default_text="0.01",
        is_engine_s=False,
    )
    latency_profile: Path | None = argument(
        FilePath(),
        "Latency profile with step times fitted to your server, from 'headcount calibrate fit'.",
        decides=STEP_TIME,
        is_engine_s=False,
    )
    cold_start_s: float | Literal["auto"] = argument(
        DurationOrAuto(),
        "Extra time of a cold server's first step. auto: as H100 servers stalled, 0.05 to 0.55 s once, with MoE 1 s "
        "six times.",
        decides=COLD_START,
        default=0.0,
        default_text="0s",
        flag="cold-start",
        is_engine_s=False,
    )

    host_speed: float = argument(
        Number("a factor, such as 0.5"),
        "Speed of one CPU core of the server, 1: as where step times were measured. 0.5 doubles launches and what API "
        "servers take.",
        decides=STEP_TIME,
        default=1.0,
        is_engine_s=False,
    )

    interconnect: str | None = argument(
        Text("LINK"),
        "PCIe between the GPUs of a server: pcie4x16, pcie4x8-p2p (cards read each other's memory), pcie3x4-host "
        "(through CPU memory).",
        decides=STEP_TIME,
        default_text="of the GPU",
        is_engine_s=False,
    )

    @property
    def splits_dense_over_groups(self) -> bool:
        """Whether all of a server's ranks share MLPs without experts."""
        return False

    @property
    def splits_shared_over_groups(self) -> bool:
        """And shared experts."""
        return False

    @property
    def splits_head_over_groups(self) -> bool:
        return False

    def kv_cache_spelling(self, kept: str) -> str:
        """The engine's own name of a format that the KV cache is kept in."""
        return kept

    @property
    def attention_groups(self) -> int:
        """Of a server's tensor-parallel ranks, each with requests and attention of its own."""
        return 1

    @property
    def attention_ranks(self) -> int:
        """GPUs that share a layer's attention; 1 where it is not said how many share the layer."""
        engine_args: Any = self
        return int(engine_args.tensor_parallel_size or self.attention_groups) // self.attention_groups

    def with_attention_ranks(self, count: int) -> Self:
        """The same with so many GPUs that share a layer's attention."""
        changed: Any = {"tensor_parallel_size": count * self.attention_groups}
        return replace(self, **changed)

    @property
    def pcie_link(self) -> PCIeLink | None:
        """None: as usual for the GPU."""
        return None if self.interconnect is None else read_link(self.interconnect)

    def __post_init__(self) -> None:
        if self.interconnect is not None:
            read_link(self.interconnect)
        if not SLOWEST_HOST <= self.host_speed <= FASTEST_HOST:
            raise HeadcountError(
                f"host_speed is {self.host_speed:g}; it must be from {SLOWEST_HOST:g} to {FASTEST_HOST:g}, where 1 is "
                "the hosts that step times were measured on"
            )
        if isinstance(self.latency_profile, str):
            object.__setattr__(self, "latency_profile", Path(self.latency_profile))
        engine_args: Any = type(self)
        described = arguments_of(engine_args)
        for name, kind in _types(engine_args).items():
            value = getattr(self, name)
            if value is None and (name not in described or described[name].default is None):
                continue
            check_argument(name, value, kind)
            least, most = described[name].range if name in described else (0, LARGEST)
            if isinstance(value, int | float) and not least <= value <= most:
                raise HeadcountError(f"{name} is {value:,}, must be at least {least}, at most {most:,}")

    def with_defaults(self, *of: object) -> Self:
        """The same with a value for each whose default depends `of` the model and the GPU, in the order of fields."""
        args = self
        for name, described in arguments_of(type(self)).items():
            if described.default_of is not None and getattr(args, name) is None:
                args = replace(args, **{name: described.default_of(args, *of)})
        return args


@cache
def _types(engine_args: object) -> dict[str, object]:
    return get_type_hints(engine_args)


def arguments_of(engine_args: type) -> MappingProxyType[str, Argument]:
    """The arguments of an engine by the field's name, in order; those that engines share last."""
    kind: Any = engine_args
    return _arguments_of(kind)


@cache
def _arguments_of(engine_args: Any) -> MappingProxyType[str, Argument]:
    shared = {item.name for item in fields(SimulatedArgs)}
    found = {item.name: item.metadata["argument"] for item in fields(engine_args) if "argument" in item.metadata}
    return MappingProxyType({name: found[name] for name in sorted(found, key=shared.__contains__)})


def flag_of(name: str, described: Argument) -> str:
    """The engine's flag, without dashes in front, such as `max-model-len`."""
    return (described.flag or name).replace("_", "-")


def command_line(args: object) -> list[str]:
    """The words of an engine's command line that say what these arguments set, defaults left out."""
    words: list[str] = []
    for name, described in arguments_of(type(args)).items():
        value = getattr(args, name)
        if not described.is_engine_s or value == described.default:
            continue
        flag = flag_of(name, described)
        words += [f"--{'' if value else 'no-'}{flag}"] if described.is_switch else [f"--{flag}", _word(value)]
    return words


def _word(value: object) -> str:
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)


def flags_of(name: str, described: Argument) -> list[str]:
    """What sets an argument on the command line, on and off for a switch; the short flag last."""
    flag = flag_of(name, described)
    names = [f"--{flag}", f"--no-{flag}"] if described.is_reversible else [f"--{flag}"]
    return [*names, f"-{described.short}"] if described.short else names
