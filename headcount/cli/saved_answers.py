"""What a command shows of an answer: text or JSON, warnings and errors, the exit code; saved under a digest."""

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import click
import msgspec

from files.cache.row_store import RowStore
from files.dependencies import watched_dependencies
from files.errors import HeadcountError
from files.limits import limits
from files.names import one_line
from files.registry import search_path
from headcount.cli.command import input_files
from headcount.cli.given import Given
from headcount.diagnostics import Severity
from headcount.queries.result import Result
from headcount.text.blocks import Line, Table
from headcount.text.units import finite
from headcount.views.shown import blocks
from headcount.views.terminal.drawing import draw
from simulator.study.store.origin import origin

_OURS = ("files", "kvcache", "workloads", "simulator", "calibrate", "headcount")
_ROOT = Path(__file__).parents[2]
_QUOTED = re.compile(r"'([^'\\\\]+)'")  # texts among the values: any may name a file


@dataclass(frozen=True, kw_only=True)
class Shown:
    """It holds plain values alone, so that it can be kept."""

    told: tuple[str, ...] = ()  # on stderr, while the answer was worked out
    lines: tuple[tuple[Line | None, Table | None], ...] = ()  # one of them each
    whole: str | None = None  # the answer with all that its report needs, as --json prints it
    alerts: tuple[str, ...] = ()
    code: int

    def show(self, *, as_json: bool) -> int:
        """Print it; the exit code."""
        if as_json:
            assert self.whole is not None, "an answer is printed as JSON once it is complete"
            print(self.whole)
        else:
            draw(line or table or Line() for line, table in self.lines)
        for alert in self.alerts:
            click.echo(alert, err=True)
        return self.code

    def asked_by(self, command: str) -> "Shown":
        """The same as the answer to another command that asks the same: its JSON and its report tell that one."""
        if self.whole is None:
            return self
        answer = json.loads(self.whole)
        answer["report"]["asked"] = command
        return replace(self, whole=json_text(answer))

    def show_again(self, *, as_json: bool) -> int:
        """Print it with what was told on the way; the exit code."""
        for line in self.told:
            click.echo(line, err=True)
        return self.show(as_json=as_json)


def shown(answer: Result, *, is_whole: bool, told: Sequence[str] = ()) -> Shown:
    """What to show of it, and with `is_whole` what its JSON and its report need, which may take some seconds."""
    return Shown(
        told=tuple(told),
        lines=tuple((each, None) if isinstance(each, Line) else (None, each) for each in blocks(answer)),
        whole=json_text(answer.to_json(report=True)) if is_whole else None,
        alerts=tuple(
            f"headcount: {'' if note.severity is Severity.ERROR else f'{note.severity}: '}{one_line(str(note))}"
            for note in answer.alerts
        ),
        code=int(answer.verdict),
    )


def json_text(value: dict[str, object]) -> str:
    """One object; what is not finite becomes null, since JSON has no word for it."""
    return json.dumps(finite(value), indent=2, allow_nan=False)


def kept_answers(base: Path | None = None) -> RowStore[Shown]:
    """The store in that cache folder, by default the user's."""
    return RowStore("answers", msgspec.msgpack.encode, _shown, base)


def _shown(content: bytes) -> Shown:
    try:
        return msgspec.msgpack.decode(content, type=Shown)
    except msgspec.MsgspecError as error:
        raise HeadcountError("no answer") from error


@dataclass(frozen=True, kw_only=True)
class Repeatable:
    """A command that may have been answered before: found again while nothing that decides its answer has changed.

    Where code of the user's takes part, or a file that no option names, the answer is not kept.
    """

    key: bytes | None  # None where not all that decides the answer can be told
    files: frozenset[str] = frozenset()  # their content is part of the key
    _seen: set[str] = field(default_factory=set)

    def find(self) -> Shown | None:
        """What was shown the last time."""
        if self.key is None:
            return None
        with closing(kept_answers()) as store:
            return store.get(self.key)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Sees what takes part while the answer is worked out."""
        with watched_dependencies() as seen:
            yield
        self._seen.update(seen)

    def kept(self, found: Shown) -> Shown:
        """The same, kept for the next time unless something took part that the key does not hold."""
        others = (each for each in self._seen if not _is_ours(each) and os.path.realpath(each) not in self.files)
        if self.key is not None and not any(others):
            with closing(kept_answers()) as store:
                store.put(self.key, found)
        return found


def repeatable(ctx: click.Context, question: str, asked: Given) -> Repeatable:
    """This command, with the values of its options; `question` names what is asked."""
    given = repr([question, asked, limits()])
    if " at 0x" in given or search_path():
        return Repeatable(key=None)
    named = {str(path) for _, path in input_files(ctx)} | set(filter(os.path.lexists, _QUOTED.findall(given)))
    files = {os.path.realpath(path) for each in named for path in (each, *_beside(Path(each)))}
    code = origin(_OURS, "*")
    parts = [given, code.code, code.machine, *_distributions(), *(f"{path} {_content(path)}" for path in sorted(files))]
    return Repeatable(key=hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).digest(), files=frozenset(files))


def _beside(path: Path) -> list[Path]:
    """What a file of settings may name or take for granted: others of its kind in its folder."""
    if path.suffix not in (".json", ".toml") or not path.is_file():
        return []
    return [each for each in path.parent.glob(f"*{path.suffix}") if each.stat().st_size <= limits().settings_bytes]


def _content(path: str) -> str:
    """Its digest, or what else is there."""
    if not os.path.isfile(path):
        return "a folder" if os.path.isdir(path) else "nothing"
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _distributions() -> list[str]:
    """Installed packages with their versions: a drawing library decides what a table looks like."""
    folders = [folder for folder in dict.fromkeys(sys.path) if os.path.isdir(folder)]
    return sorted(name for folder in folders for name in os.listdir(folder) if name.endswith(".dist-info"))


def _is_ours(path: str) -> bool:
    return any(Path(path).is_relative_to(_ROOT / name) for name in _OURS)
