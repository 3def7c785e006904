"""Files that people upload: kept under a digest of their content, bounded in size and number."""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import BinaryIO, Final

from files.cache.private_folder import private_folder
from files.errors import HeadcountError
from headcount.web.scenario import Scenario

MOST_BYTES: Final = 4 << 30  # of all uploads; the oldest make room
_PIECE_BYTES: Final = 1 << 20


class Uploads:
    """A folder of files; nothing in it is ever run, and each is read by the worker of a job alone."""

    def __init__(self, base: Path) -> None:
        self._base = base

    def keep(self, name: str, content: BinaryIO) -> str:
        """The file as a link names it. Raises OSError where it cannot be kept."""
        folder = private_folder(self._base, "web", "uploads")
        self._make_room(folder)
        temporary = folder / f".{os.urandom(8).hex()}.part"
        try:
            digest = hashlib.sha256()
            with temporary.open("xb") as file:
                while piece := content.read(_PIECE_BYTES):
                    digest.update(piece)
                    file.write(piece)
            found = digest.hexdigest()[:32]
            temporary.replace(folder / found)
        finally:
            temporary.unlink(missing_ok=True)
        return f"upload:{found}/{safe_name(name)}"

    @contextmanager
    def folder_of(self, scenario: Scenario) -> Iterator[Path]:
        """A new folder that holds the scenario's files under their own names, and nothing else.

        Raises HeadcountError for a file that made room for others.
        """
        kept = private_folder(self._base, "web", "uploads")
        folder = Path(mkdtemp(dir=private_folder(self._base, "web", "jobs")))
        try:
            for name, digest in scenario.uploads.items():
                if not (kept / digest).is_file():
                    raise HeadcountError(f"{name} is no longer here; choose the file again")
                shutil.copyfile(kept / digest, folder / name)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _make_room(self, folder: Path) -> None:
        files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
        used = sum(path.stat().st_size for path in files)
        while files and used > MOST_BYTES:
            used -= files[0].stat().st_size
            files.pop(0).unlink(missing_ok=True)


def safe_name(given: str) -> str:
    """A file's own name, as far as letters, digits, dots, dashes and underscores go; never a path."""
    last = re.split(r"[/\\]", given)[-1]
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", last).lstrip("._-")
    stem, dot, suffix = name.rpartition(".")
    return f"{stem[:60]}{dot}{suffix[:20]}" if stem else name[:60] or "file"
