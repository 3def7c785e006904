"""The tables of docs/reference/inputs.md, from the fields of the inputs and the signatures of the questions."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import fields
from functools import partial
from inspect import getdoc, isfunction, unwrap
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import headcount
from headcount.inputs.engine import EngineInput, TrainingInput
from headcount.inputs.fields import Inputs, described
from validation.markdown import table

TOPICS = {  # tables of fields, by the modules of `headcount.inputs` whose inputs they list
    "load": ("load",),
    "traffic": ("traffic",),
    "slo": ("slo",),
    "people": ("people", "prices"),
    "routing": ("routing",),
    "disaggregation": ("disaggregation",),
    "autoscaling": ("autoscaling",),
    "search": ("search",),
    "run": ("run", "run_files"),
    "measured": ("measured",),
}
WITHOUT_OPTION = {  # fields that the command line makes of something else
    "progress": "Called with an `hc.Progress` while the question works.",
}


def input_tables() -> dict[str, Callable[[], str]]:
    """By the names of the page's markers. Raises ValueError for an input that is in no table."""
    listed = {f"headcount.inputs.{name}" for names in TOPICS.values() for name in names}
    kinds = (kind for kind in input_classes().values() if issubclass(kind, Inputs))
    if left_out := sorted(kind.__name__ for kind in kinds if kind.__module__ not in listed):
        raise ValueError(f"add the modules of {', '.join(left_out)} to TOPICS")
    topics = {topic: partial(_fields, names) for topic, names in TOPICS.items()}
    return {"questions": _questions, "inputs": _inputs, **topics}


def input_classes() -> dict[str, type]:
    """The public ones by name."""
    public = {name: getattr(headcount, name) for name in dir(headcount)}
    return {name: found for name, found in public.items() if _is_input(found)}


def _is_input(found: object) -> bool:
    return isinstance(found, type) and (issubclass(found, Inputs) or found in (EngineInput, TrainingInput))


def _questions() -> str:
    """Which inputs a question takes, under which name."""
    rows = []
    for name in dir(headcount):
        found = getattr(headcount, name)
        hints = get_type_hints(unwrap(found)) if isfunction(found) else {}
        taken = [f"`{parameter}`: `{kind.__name__}`" for parameter, kind in hints.items() if _is_input(kind)]
        if taken:
            rows.append((f"`hc.{name}()`", ", ".join(taken)))
    return table(("question", "inputs"), rows)


def _inputs() -> str:
    rows = [(f"`{name}`", (getdoc(kind) or "").partition("\n")[0]) for name, kind in input_classes().items()]
    return table(("input", "what"), rows)


def _fields(modules: Collection[str]) -> str:
    """The fields of some modules' inputs; a field that several have alike is told once."""
    owners: dict[tuple[str, ...], list[str]] = {}
    for name, kind in input_classes().items():
        for row in _rows(kind) if kind.__module__.rpartition(".")[2] in modules else ():
            owners.setdefault(row, []).append(f"`{name}`")
    rows = [(field, ", ".join(names), *rest) for (field, *rest), names in owners.items()]
    return table(("field", "of", "value", "option", "default", "what"), rows)


def _rows(kind: Any) -> Iterator[tuple[str, ...]]:
    hints, known = get_type_hints(kind), described(kind)
    for item in fields(kind):
        value = _type_text(hints[item.name])
        if (each := known.get(item.name)) is None:
            yield f"`{item.name}`", value, "", "", WITHOUT_OPTION[item.name]
            continue
        flag = f"`--{each.flag_of(item.name)}{'' if each.is_flag else f' {each.kind.name}'}`"
        plain = "" if each.default is None or each.default == () else str(each.default)
        yield f"`{item.name}`", value, _in_cell(flag), each.default_text or plain, _in_cell(each.help)


def _type_text(hint: Any) -> str:
    """Such as `float`, or `str or Path`; that it may be None is left out."""
    if get_origin(hint) in (Union, UnionType):
        parts = [_type_text(part) for part in get_args(hint) if part is not NoneType]
        return " or ".join(dict.fromkeys(parts))
    inside = [_type_text(part) for part in get_args(hint) if part is not Ellipsis and not isinstance(part, list)]
    base = str(getattr(hint, "__name__", hint))
    if base == "Callable":
        return "function"
    return f"{base} of {' to '.join(inside)}" if inside else base


def _in_cell(text: str) -> str:
    return text.replace("|", "\\|")
