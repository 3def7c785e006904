"""Finished answers, kept under a digest of all that decides what a command shows."""

import hashlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import click
import msgspec

from files.cache.row_store import RowStore
from files.dependencies import watched_dependencies
from files.errors import HeadcountError
from files.limits import limits
from files.registry import search_path
from headcount.cli.command import input_files
from headcount.cli.given import Given
from headcount.cli.rendered_output import Shown
from simulator.study.store.origin import origin

_OURS = ("files", "kvcache", "workloads", "simulator", "calibrate", "headcount")
_ROOT = Path(__file__).parents[2]
_QUOTED = re.compile(r"'([^'\\\\]+)'")  # texts among the values: any may name a file


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
