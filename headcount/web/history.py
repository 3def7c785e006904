"""Finished answers: found again by their scenario, also by the next server."""

import re
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec

from files.cache.private_folder import private_folder
from files.outputs import write_whole
from files.warn_once import warn_once
from headcount.web.saved_jobs import SavedJob
from headcount.web.worker import Answered

MOST_KEPT: Final = 500  # answers; the oldest are forgotten
REPORT, FIGURES = ".html", ".answer"  # what is kept beside the line of the list
_KEY = re.compile(r"[0-9a-f]{32}")


class History:
    """Answers beside the study store, in a folder that nobody else may write to.

    Where that fails, it says so and remembers them as long as it lives.
    """

    def __init__(self, base: Path) -> None:
        self._base = base
        self._lock = Lock()
        self._unwritten: OrderedDict[str, Answered] = OrderedDict()  # what no file could hold
        self._kept: OrderedDict[str, SavedJob] = OrderedDict()
        for path in sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime):
            self._read(path)

    @property
    def _folder(self) -> Path:
        return self._base / "web" / "answers"

    def keep(self, key: str, found: Answered) -> None:
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = found.kept
            try:
                folder = private_folder(self._base, "web", "answers")
                write_whole(folder / f"{key}{REPORT}", found.report)
                write_whole(folder / f"{key}{FIGURES}", found.figures)
                write_whole(folder / f"{key}.json", msgspec.json.encode(found.kept).decode())
            except (OSError, ValueError) as error:
                warn_once(f"answers cannot be saved: {error}")
                self._unwritten[key] = found
            while len(self._kept) > MOST_KEPT:
                self._forget(next(iter(self._kept)))

    def find(self, key: str) -> SavedJob | None:
        """The answer, also of another server that uses this folder."""
        with self._lock:
            if key not in self._kept and _KEY.fullmatch(key):
                self._read(self._folder / f"{key}.json")
            return self._kept.get(key)

    def report(self, key: str) -> str | None:
        """Its report."""
        return self._unwritten[key].report if key in self._unwritten else self._text(key, REPORT)

    def figures(self, key: str) -> str | None:
        """The object of --json, as text."""
        return self._unwritten[key].figures if key in self._unwritten else self._text(key, FIGURES)

    def _text(self, key: str, suffix: str) -> str | None:
        if not _KEY.fullmatch(key):
            return None
        try:
            return (self._folder / f"{key}{suffix}").read_text(encoding="utf-8")
        except OSError:
            return None

    def newest(self) -> list[tuple[str, SavedJob]]:
        """All with their keys, newest first."""
        with self._lock:
            return list(reversed(self._kept.items()))

    def _read(self, path: Path) -> None:
        try:
            self._kept[path.stem] = msgspec.json.decode(path.read_bytes(), type=SavedJob)
        except (OSError, msgspec.MsgspecError):  # of another release, or damaged: it is asked again
            return

    def _forget(self, key: str) -> None:
        del self._kept[key]
        self._unwritten.pop(key, None)
        for suffix in (REPORT, FIGURES, ".json"):
            (self._folder / f"{key}{suffix}").unlink(missing_ok=True)
