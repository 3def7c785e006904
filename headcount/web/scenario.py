"""A question with what was given: the whole of a link, and the words of a command line."""

import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import urlencode

from files.errors import HeadcountError
from files.names import check_names, printable, shortened
from headcount.version import __version__
from headcount.web.fields import QUESTIONS, Field, fields_of
from simulator.study.store.origin import origin

LONGEST_VALUE: Final = 20_000  # characters: a vllm line, a JSON of drafts
MOST_FILES: Final = 20  # of one scenario
UPLOAD = re.compile(r"upload:([0-9a-f]{32})/([A-Za-z0-9][A-Za-z0-9._-]{0,99})")  # as a link names a file
_MAY_HOLD_SLASHES: Final = ("vllm-args", "sglang-args", "log-pattern")
_PATH = re.compile(r"""(^|[\s=:,"'])(/|~|\.{1,2}/|[A-Za-z]:\\|\\\\)""")


@dataclass(frozen=True)
class Scenario:
    """A question and its values by the fields' names, in the order of the form; those left empty are not there."""

    question: str
    values: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def get(self, name: str) -> tuple[str, ...]:
        return dict(self.values).get(name, ())

    def one(self, name: str) -> str:
        """The value, or nothing."""
        return ", ".join(self.get(name))

    def shown(self, name: str) -> str:
        """The same for people: an upload by its name, and enough of its content's to tell two of one name apart."""
        return UPLOAD.sub(lambda found: f"{found[2]} ({found[1][:6]})", self.one(name))

    def having(self, **changed: str) -> "Scenario":
        """The same with other values; nothing takes one away."""
        new = {name.replace("_", "-"): (value,) if value else () for name, value in changed.items()}
        return replace(self, values=_in_order(self.question, {**dict(self.values), **new}))

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """A link's."""
        return [(name, value) for name, given in self.values for value in given]

    @property
    def query(self) -> str:
        return urlencode(self.pairs)

    @property
    def path(self) -> str:
        """The link, on this server."""
        return f"/{self.question}?{self.query}" if self.values else f"/{self.question}"

    @property
    def key(self) -> str:
        """Another for everything that gives another answer: values, files, and the code that simulates."""
        content = json.dumps([self.question, self.values, origin().code, __version__])
        return hashlib.sha256(content.encode()).hexdigest()[:32]

    @property
    def uploads(self) -> dict[str, str]:
        """Digests of its files by their names."""
        found = (UPLOAD.fullmatch(value) for _, value in self.pairs)
        return {match[2]: match[1] for match in found if match is not None}

    @property
    def words(self) -> list[str]:
        """Of the command line, files under their own names."""
        return list(self._words())

    @property
    def command(self) -> str:
        return shlex.join(["headcount", *QUESTIONS[self.question], *self.words])

    @property
    def label(self) -> str:
        """What was given, in a line."""
        named = {name: ", ".join(map(_file_name, given)) for name, given in self.values}
        return " · ".join(each if name in ("model", "gpu") else f"{name} {each}" for name, each in named.items())

    def _words(self) -> Iterator[str]:
        given, behind = dict(self.values), list[str]()
        for field in fields_of(self.question):
            for value in map(_as_path, given.get(field.name, ())):
                if field.parameter.param_type_name == "argument":
                    behind.append(value)
                elif field.is_switch:
                    names = field.parameter.opts if value == "on" else field.parameter.secondary_opts
                    yield from names[:1]
                else:
                    yield f"--{field.name}={value}"
        if behind:
            yield from ("--", *behind)


def _as_path(value: str) -> str:
    found = UPLOAD.fullmatch(value)
    return f"./{found[2]}" if found is not None else value


def _file_name(value: str) -> str:
    return _as_path(value).removeprefix("./") if UPLOAD.fullmatch(value) else shortened(value)


def read_scenario(question: str, given: Iterable[tuple[str, str]]) -> Scenario:
    """Of a link's or a form's pairs. Raises HeadcountError for a field that is none, or a value that no field may have.

    What a value means is for the command to judge, which reads it as on the command line; here is refused what would
    reach beyond the question: files that were not uploaded, and code.
    """
    known = {field.name: field for field in fields_of(question)}
    found: dict[str, tuple[str, ...]] = {}
    for name, value in given:
        check_names([name], known, "field")
        lines = value.splitlines() if known[name].is_many else [value]
        for each in filter(None, map(str.strip, lines)):
            _check(known[name], each)
            found[name] = (*found.get(name, ()), each)
    twice = next((name for name, each in found.items() if len(each) > 1 and not known[name].is_many), None)
    if twice is not None:
        raise HeadcountError(f"{twice} is given twice; give it once")
    scenario = Scenario(question, _in_order(question, found))
    _check_files(scenario)
    return scenario


def _in_order(question: str, given: Mapping[str, tuple[str, ...]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    names = [field.name for field in fields_of(question)]
    return tuple((name, given[name]) for name in names if given.get(name))


def _check(field: Field, value: str) -> None:
    shown = shortened(printable(value))
    if len(value) > LONGEST_VALUE:
        raise HeadcountError(f"{field.label} has {len(value):,} characters; give at most {LONGEST_VALUE:,}")
    if "\0" in value:
        raise HeadcountError(f"{field.label}: '{shown}' holds a null character; leave it out")
    if UPLOAD.fullmatch(value):
        if not (field.is_file or field.may_be_file):
            raise HeadcountError(f"{field.label} takes no file; give a value")
    elif field.is_file:
        raise HeadcountError(f"{field.label}: '{shown}' was not uploaded; choose the file")
    elif _names_a_path(field, value):
        raise HeadcountError(f"{field.label}: '{shown}' is a path, which the page does not read; choose the file")
    if field.runs_code(value):
        raise HeadcountError(f"{field.label}: '{shown}' would run code; give that on the command line")
    if field.is_switch and value not in ("on", "off"):
        raise HeadcountError(f"{field.label}: '{shown}' is neither on nor off")


def _names_a_path(field: Field, value: str) -> bool:
    """Whether it may name a file of the server's; a pasted command may hold slashes."""
    if field.name not in _MAY_HOLD_SLASHES:
        return _PATH.search(value) is not None
    is_word = len(value.split()) == 1 and not value.startswith("-")
    return field.may_be_file and is_word and (value.startswith("@") or _PATH.search(value) is not None)


def _check_files(scenario: Scenario) -> None:
    files = [value for _, value in scenario.pairs if UPLOAD.fullmatch(value)]
    if len(files) > MOST_FILES:
        raise HeadcountError(f"{len(files)} files are too many; give at most {MOST_FILES}")
    names = [PurePosixPath(value).name for value in dict.fromkeys(files)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise HeadcountError(f"two different files are called {twice}; rename one of them")
