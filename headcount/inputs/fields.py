"""A field of an input: how it is read, what it does, what it is where nothing is given; each said once."""

from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, ClassVar, get_type_hints

from files.arguments import check_argument
from simulator.engines.values import Kind, Switch


@dataclass(frozen=True, kw_only=True)
class Described:
    """What options, `--config` keys, the page's form and the docs' tables are made from."""

    kind: Kind
    help: str
    heading: str  # of --help
    default: object = None
    default_text: str = ""  # as --help says it, where it is no plain value
    flag: str = ""  # without dashes in front, where it is not the field's name
    short: str = ""  # a second, short flag
    is_many: bool = False  # may be repeated
    is_required: bool = False

    def flag_of(self, name: str) -> str:
        return self.flag or name.replace("_", "-")

    def parameter_of(self, name: str) -> str:
        """What the command line calls it: a flag that turns a field off has a name of its own."""
        return self.flag_of(name).replace("-", "_") if self.is_flag and self.default else name

    @property
    def is_flag(self) -> bool:
        """Whether it is an option without a value."""
        return isinstance(self.kind, Switch) and not self.kind.has_opposite


def given(kind: Kind, help: str, *, heading: str = "", default: Any = None, **more: Any) -> Any:
    """A field of a frozen dataclass of inputs; its heading is the class's, unless it has one of its own."""
    return field(
        default=default,
        metadata={"input": Described(kind=kind, help=help, heading=heading, default=default, **more)},
    )


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a question is asked with: each value of its field's type, or HeadcountError.

    `heading` of a class is the one of --help under which its fields stand.
    """

    heading: ClassVar[str] = ""

    def __init_subclass__(cls, heading: str = "") -> None:
        cls.heading = heading or cls.heading

    def __post_init__(self) -> None:
        kind: object = type(self)
        hints = _hints(kind)
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not item.default:
                check_argument(item.name, value, hints[item.name])


_hints = cache(get_type_hints)


def described(kind: type[Inputs]) -> dict[str, Described]:
    """The fields of an input by name, in order."""
    found = {item.name: item.metadata["input"] for item in fields(kind) if "input" in item.metadata}
    return {name: each if each.heading else replace(each, heading=kind.heading) for name, each in found.items()}
