"""The arguments that a vLLM server logged, and what its engine and its ranks say beside them."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from calibrate.readers.parsing.engine_options import OPTIONS, engine_option
from calibrate.readers.parsing.log_text import log_pattern
from files.documents import Json
from files.names import shortened
from files.reading import InputError, shown

READ = {*OPTIONS, "model", "model_tag"}
_SIZES = (
    "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size",
)  # fmt: skip
_ARGUMENTS = log_pattern(r"non-default args: (?={)")
_NAMESPACE = log_pattern(r"\bargs: Namespace(?=\()")  # up to vLLM 0.8, with every default
_ENGINE = log_pattern(r"LLM engine \(v[^)\n]{1,40}\) with config: ([^\n]{1,20000})")
_RANK = log_pattern(r"Worker[A-Za-z0-9_]{0,20} [A-Za-z0-9_]{0,20}?TP([0-9]{1,4})\b|TP rank ([0-9]{1,4})\b")
_FIELD = r"(?<![a-z_]){}'? [=:] ('[^'\n]{{0,500}}'|None|True|False|-?[0-9][0-9.e+-]{{0,20}}) (?=[,)}}])"
_LONGEST_ARGUMENTS = 100_000  # characters; a Python literal takes some hundred times its length to parse
_PAIRS = {"{": "}", "[": "]", "(": ")"}


@dataclass(frozen=True, kw_only=True)
class LoggedArguments:
    """By name, those that are not vLLM's defaults; what is not in the log; where the log contradicts itself."""

    values: Mapping[str, object] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    is_size_known: bool = True  # else the ranks' lines say of the tensor parallel size that it is no smaller
    contradictions: tuple[str, ...] = ()


def read_logged_arguments(path: Path, text: str) -> LoggedArguments:
    """Of a log whose wrapped lines are joined. Raises InputError for arguments that no server takes."""
    found = _ARGUMENTS.search(text) or _NAMESPACE.search(text)
    line = text.count("\n", 0, found.start()) + 1 if found is not None else 0
    given, missing = ({}, ("'non-default args'",)) if found is None else _given(path, line, found, text)
    engine = _engine_s(text)
    ranks = max((int(found[1] or found[2]) + 1 for found in _RANK.finditer(text)), default=1)
    inferred = {name: value for name, value in engine.items() if value != 1}
    is_size_known = not missing or "tensor_parallel_size" in engine
    if ranks > 1 and "tensor_parallel_size" not in engine:
        inferred["tensor_parallel_size"] = ranks
    known = {"model" if name == "model_tag" else name: value for name, value in given.items() if name in READ}
    place = {name: f"line {line}: {name}" for name in known}
    checked = {
        name: engine_option(name, value, path, place.get(name, name)) for name, value in (inferred | known).items()
    }
    return LoggedArguments(
        values=given | checked,
        missing=missing,
        is_size_known=is_size_known or "tensor_parallel_size" in given,
        contradictions=tuple(_contradictions(given if not missing else {}, engine, ranks)),
    )


def _contradictions(given: Json, engine: Json, ranks: int) -> Iterator[str]:
    size = int(engine.get("tensor_parallel_size") or given.get("tensor_parallel_size") or 1)
    for name in _SIZES:
        if given and name in engine and engine[name] != (asked := given.get(name) or 1):
            yield f"its arguments say {name} {asked}, its engine {engine[name]}"
    if ranks > size:
        yield f"it says tensor_parallel_size {size}, and has lines of rank TP{ranks - 1}"


def _engine_s(text: str) -> Json:
    """What the engine says of its model and its sizes when it starts."""
    found = _ENGINE.search(text)
    return {} if found is None else _fields(found[1], ("model", *_SIZES))


def _given(path: Path, line: int, begin: re.Match[str], text: str) -> tuple[Json, tuple[str, ...]]:
    """The arguments that begin there, and what of them is not in the log."""
    rest = text[begin.end() : begin.end() + _LONGEST_ARGUMENTS + 1].split("\n", 1)[0]
    literal = _literal(rest)
    if begin.re is _NAMESPACE:
        return _fields(literal or rest, READ), ()
    if literal:
        return _parsed(path, line, literal), ()
    if len(rest) > _LONGEST_ARGUMENTS:
        raise _unreadable(path, line, rest)
    return _fields(rest, READ), ("the end of 'non-default args'",)


def _parsed(path: Path, line: int, literal: str) -> Json:
    """vLLM writes them as a Python literal; values that are none, such as objects, make the line unreadable."""
    try:
        return {str(name): value for name, value in dict(ast.literal_eval(literal)).items()}
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        raise _unreadable(path, line, literal) from None


def _unreadable(path: Path, line: int, literal: str) -> InputError:
    return InputError(
        f"{shown(path)}: line {line}: its non-default args, {shortened(literal)}, cannot be read; remove the line and "
        "give the options yourself"
    )


def _literal(text: str) -> str:
    """What begins with a bracket, up to the one that closes it; nothing where it is not closed."""
    closing, quote, is_escaped = list[str](), "", False
    for index, character in enumerate(text):
        if quote:
            quote = "" if character == quote and not is_escaped else quote
            is_escaped = character == "\\" and not is_escaped
        elif character in "'\"":
            quote = character
        elif character in _PAIRS:
            closing.append(_PAIRS[character])
        elif closing and character == closing[-1]:
            closing.pop()
            if not closing:
                return text[: index + 1]
    return ""


def _fields(text: str, names: Iterable[str]) -> Json:
    """Those of the names that stand in a text as `name=value` or `'name': value`, unless the value is None."""
    found = {name: log_pattern(_FIELD.format(name)).search(text) for name in names}
    values = {name: ast.literal_eval(field[1]) for name, field in found.items() if field is not None}
    return {name: value for name, value in values.items() if value is not None}
