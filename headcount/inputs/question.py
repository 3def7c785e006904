"""A question as a function of inputs, which also takes their fields as keywords: `plan("llama-3.1-8b", users=500)`."""

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, Final, ParamSpec, Protocol, TypeVar, cast, get_type_hints, overload

from files.arguments import check_argument
from files.names import UnknownNameError, check_names
from files.outputs import check_out_files
from headcount.inputs.engine import EngineInput, TrainingInput, training_settings
from headcount.inputs.fields import Inputs
from headcount.inputs.reading.deployments import ENGINE_ARGUMENTS
from simulator.engines.engines import own_names
from simulator.once import one_question

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
_READ: Final = ("model", "workload", "paths", "before", "after", "startup_log", "latency_profile")
_WRITTEN: Final = ("requests_out", "steps_out", "out")
CALL: Final = "hc."  # how a call that is written out begins
_UNSAID: Final = ("progress",)  # of a call that is written out
_NAMED: Final[dict[Any, tuple[Callable[[], frozenset[str]], str]]] = {  # inputs that hold what others name
    EngineInput: (lambda: ENGINE_ARGUMENTS | own_names().keys(), "engine argument"),
    TrainingInput: (training_settings, "training setting"),
}


class Question(Protocol[P, R_co]):
    """A question's function; with its inputs, or with their fields."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(self, *args: object, **shortcuts: object) -> R_co: ...


@cache
def input_groups(function: Callable[..., object]) -> dict[str, type]:
    """The parameters that are inputs, with their classes."""
    hints = get_type_hints(function)
    return {
        name: hint
        for name, hint in hints.items()
        if isinstance(hint, type) and (issubclass(hint, Inputs) or hint in _NAMED) and name != "return"
    }


def with_groups(function: Callable[..., object], given: Mapping[str, object]) -> dict[str, object]:
    """What was given by keyword, fields gathered into their inputs.

    Raises HeadcountError for a name that neither the function nor an input has, with the nearest that one has.
    """
    groups, own = input_groups(function), signature(function).parameters
    field_of = {item.name: name for name, kind in groups.items() for item in fields(kind) if item.name != "arguments"}
    named = {key: name for name, kind in groups.items() if kind in _NAMED for key in _NAMED[kind][0]()}
    plain: dict[str, object] = {}
    parts: dict[str, dict[str, Any]] = {name: {} for name in groups}
    for name, value in given.items():
        if name in groups and isinstance(value, groups[name]):
            plain[name] = value
        elif name in field_of:
            parts[field_of[name]][name] = value
        elif name in own and name not in groups:
            plain[name] = value
        elif name in named:
            parts[named[name]].setdefault("arguments", {})[name] = value
        else:
            raise _unknown(name, [*own, *field_of], groups.values())
    for name, values in parts.items():
        if values:
            plain[name] = _made(groups[name], plain.get(name), values)
    return plain


def _unknown(name: str, known: Collection[str], groups: Collection[type]) -> UnknownNameError:
    """The error for an unknown keyword, with the nearest known names."""
    named = [(names(), what) for names, what in (_NAMED[kind] for kind in groups if kind in _NAMED)]
    nearest = get_close_matches(name, [*known, *(each for names, _ in named for each in names)], n=1)
    for names, what in (*((names, what) for names, what in named if {*nearest} <= names), (known, "argument")):
        try:
            check_names([name], names, what)
        except UnknownNameError as error:
            return error
    raise AssertionError(f"{name} is known, and belongs nowhere")


def _made(kind: type, whole: Any, values: dict[str, Any]) -> Any:
    if whole is None:
        return kind(**values)
    if "arguments" in values:
        values["arguments"] = {**whole.arguments, **values["arguments"]}
    return replace(whole, **values)


def question(function: Callable[P, R]) -> Question[P, R]:
    """Gathers keywords into inputs, checks types, tells the result how it was asked and what it read.

    Raises HeadcountError for an unknown keyword, a value of another type, or an output that is an input.
    """
    own = signature(function)

    @wraps(function)
    def ask(*args: object, **kwargs: object) -> R:
        hints = get_type_hints(function)
        bound = own.bind(*args, **with_groups(function, kwargs))
        for name, value in bound.arguments.items():
            if value is not own.parameters[name].default:
                check_argument(name, value, hints[name])
        read, written = _files(bound.arguments, _READ), _files(bound.arguments, _WRITTEN)
        check_out_files(dict(written), read)
        said = [repr(value) for value in args]
        said += [f"{name}={value!r}" for name, value in kwargs.items() if name not in _UNSAID]
        with one_question():
            found = function(*bound.args, **bound.kwargs)
        asked = f"{CALL}{function.__name__}({', '.join(said)})"
        bound.apply_defaults()
        explain = all(getattr(value, "explain", True) for value in bound.arguments.values())
        return cast(R, replace(cast(Any, found), asked=asked, inputs=tuple(read), explain=explain))

    vars(ask)["__signature__"] = _flat(own, input_groups(function))
    vars(ask)["checks_arguments"] = True
    return cast(Question[P, R], ask)


def _flat(own: Signature, groups: Mapping[str, type]) -> Signature:
    """With the fields of inputs as keywords, for tab completion and the docs."""
    plain = [each for name, each in own.parameters.items() if name not in groups]
    kinds = [kind for kind in groups.values() if kind not in _NAMED]
    taken = {each.name for each in plain}
    keywords = [
        Parameter(item.name, Parameter.KEYWORD_ONLY, default=item.default, annotation=item.type)
        for kind in kinds
        for item in fields(kind)
        if item.name not in taken
    ]
    more = [Parameter(name, Parameter.VAR_KEYWORD) for name, kind in groups.items() if kind in _NAMED][:1]
    return own.replace(parameters=[*plain, *keywords, *more])


def _files(arguments: Mapping[str, object], names: tuple[str, ...]) -> list[tuple[str, Path]]:
    """The files that arguments or fields of inputs name."""
    values = dict(arguments)
    for value in arguments.values():
        if isinstance(value, EngineInput):
            values |= dict(value.arguments) | {"startup_log": value.startup_log}
        elif is_dataclass(value) and isinstance(value, Inputs):
            values |= {item.name: getattr(value, item.name) for item in fields(value)}
    return [(name, path) for name in names for path in _paths(values.get(name))]


def _paths(value: object) -> list[Path]:
    """The files in `value`; a start-up log has its own path."""
    listed = value if isinstance(value, list | tuple) else [value]
    found = [Path(path) for each in listed if isinstance(path := getattr(each, "path", each), str | Path)]
    return [path / "config.json" if os.path.exists(path / "config.json") else path for path in found]
