"""What a command was given, as the inputs of its question."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from headcount.inputs.engine import EngineInput
from headcount.inputs.fields import Inputs, described
from headcount.inputs.reading.deployments import ENGINE_ARGUMENTS
from headcount.inputs.training import SETTINGS, TrainingInput

if TYPE_CHECKING:
    from calibrate.readers.parsing.startup_log import StartupLog
    from workloads.arrivals import Arrivals

I = TypeVar("I", bound=Inputs)  # noqa: E741


class Given:
    """The values of a command's options and arguments, each read by its kind."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    def __repr__(self) -> str:
        """What decides the answer, in the order of names: how it is shown does not."""
        return repr(sorted(pair for pair in self._values.items() if pair[0] not in ("report", "as_json")))

    def input(self, kind: type[I], **more: object) -> I:
        """An input of these options; a field whose option was not given has its default. `more` are other fields."""
        found: dict[str, object] = dict(more)
        for name, each in described(kind).items():
            value = self._values.get(each.parameter_of(name))
            if each.is_flag:
                value = not each.default if value else None
            if value is not None and value != ():
                found[name] = value
        known = {item.name for item in fields(kind)}
        return kind(**{name: value for name, value in found.items() if name in known})

    @property
    def engine(self) -> EngineInput:
        arguments = {name: value for name, value in self._values.items() if name in ENGINE_ARGUMENTS}
        return EngineInput(arguments=arguments, startup_log=cast("StartupLog | None", self._values.get("startup_log")))

    @property
    def training(self) -> TrainingInput:
        return TrainingInput(arguments={name: self._values[name] for name in SETTINGS if name in self._values})

    def text(self, name: str) -> str:
        """A value that is required, or has a default."""
        found = self._values[name]
        assert isinstance(found, str), f"{name} is text"
        return found

    def maybe_text(self, name: str) -> str | None:
        """A value, if any."""
        return cast("str | None", self._values[name])

    def arrivals(self, name: str) -> "Arrivals | None":
        """How requests arrive, if it was said."""
        return cast("Arrivals | None", self._values[name])

    def texts(self, name: str) -> tuple[str, ...]:
        """Those of an option that is a list, or may be repeated."""
        return tuple(cast("tuple[str, ...]", self._values[name]))

    def numbers(self, name: str) -> tuple[int, ...]:
        """Those of an option that is a list of whole numbers."""
        return tuple(cast("tuple[int, ...]", self._values[name]))

    def counts(self, name: str) -> dict[str, int]:
        """Numbers by name."""
        return dict(cast("dict[str, int]", self._values[name]))

    def number(self, name: str) -> int | None:
        """A whole number, if any."""
        return cast("int | None", self._values[name])

    def path(self, name: str) -> Path | None:
        """A file, if any."""
        return cast("Path | None", self._values.get(name))

    def paths(self, name: str) -> tuple[Path, ...]:
        """Those of an argument that may be repeated."""
        return tuple(cast("tuple[Path, ...]", self._values[name]))

    def seconds(self, name: str) -> float | None:
        """A time or a rate, if any."""
        return cast("float | None", self._values[name])

    def has(self, name: str) -> bool:
        """Whether the command has such an option."""
        return name in self._values

    def is_on(self, name: str) -> bool:
        """Whether a flag was given."""
        return bool(self._values.get(name))
