"""What a command was given, as the inputs of its question."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from inspect import signature, unwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click
from click.core import ParameterSource

from files.documents import Json
from headcount.inputs.engine import EngineInput, TrainingInput, training_settings
from headcount.inputs.fields import Inputs, described
from headcount.inputs.question import input_groups
from headcount.inputs.reading.deployments import ENGINE_ARGUMENTS

if TYPE_CHECKING:
    from calibrate.readers.parsing.startup_log import StartupLog

_SHOWN: Final = ("report", "as_json", "emit", "manifest_formats")  # options that decide no figure
I = TypeVar("I", bound=Inputs)  # noqa: E741


class Given:
    """The values of a command's options and arguments, each read by its kind."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self.values = values

    def __repr__(self) -> str:
        """What decides the answer, in the order of names: how it is shown does not."""
        return repr(sorted(pair for pair in self.values.items() if pair[0] not in _SHOWN))

    def input(self, kind: type[I], **more: object) -> I:
        """An input of these options; a field whose option was not given has its default. `more` are other fields."""
        found: dict[str, object] = dict(more)
        for name, each in described(kind).items():
            value = self.values.get(each.parameter_of(name))
            if each.is_flag:
                value = not each.default if value else None
            if value is not None and value != ():
                found[name] = value
        known = {item.name for item in fields(kind)}
        return kind(**{name: value for name, value in found.items() if name in known})

    @property
    def engine(self) -> EngineInput:
        arguments = {name: value for name, value in self.values.items() if name in ENGINE_ARGUMENTS}
        return EngineInput(arguments=arguments, startup_log=cast("StartupLog | None", self.values.get("startup_log")))

    @property
    def engine_given(self) -> EngineInput:
        """What was given, on the command line or in a file: defaults do not win over what measurements say."""
        source = click.get_current_context().get_parameter_source
        defaults = [name for name in self.engine.arguments if source(name) in (ParameterSource.DEFAULT, None)]
        return self.engine.without(*defaults)

    @property
    def training(self) -> TrainingInput:
        return TrainingInput(arguments={name: self.values[name] for name in training_settings() if name in self.values})

    def arguments(self, function: Callable[..., object], **more: object) -> Json:
        """What a function takes of these options: its inputs, and its other parameters where they were given.

        `more` are values of its parameters and of fields of its inputs; they win.
        """
        groups, found = input_groups(function), dict[str, object]()
        for name in signature(unwrap(function)).parameters:
            kind: Any = groups.get(name)
            if name in more:
                found[name] = more[name]
            elif kind in (EngineInput, TrainingInput):
                found[name] = self.engine if kind is EngineInput else self.training
            elif kind is not None:
                found[name] = self.input(kind, **more)
            elif self.values.get(name) is not None:
                found[name] = self.values[name]
        return found

    def path(self, name: str) -> Path | None:
        """A file, if any."""
        return cast("Path | None", self.values.get(name))

    def text(self, name: str) -> str | None:
        """A text, if any."""
        return cast("str | None", self.values.get(name))

    def is_on(self, name: str) -> bool:
        """Whether a flag was given."""
        return bool(self.values.get(name))
