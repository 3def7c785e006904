"""What was computed, kept under digests in one SQLite file, which any number of processes share."""

import hashlib
import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

from files.cache.private_folder import check_private_file, private_folder
from files.errors import HeadcountError
from files.limits import limits
from files.outputs import cache_folder
from files.warn_once import warn_once

T = TypeVar("T")
Kept = TypeVar("Kept")
SCHEMA = 1  # of the table; what a row holds is decided by the code that its key names
BUSY_S = 5.0  # to wait for another process; what it commits takes milliseconds
PAGE_BYTES = 16384  # rows have some 100 kB; each page costs a call
EVICTED_SHARE = 0.1  # of the rows, at once
_COLUMNS = "(number integer primary key, key blob not null unique, checksum blob not null, content blob not null)"
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_REASONS = {
    sqlite3.SQLITE_BUSY: "another program keeps it locked",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "it is write-protected",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_IOERR: "the disk fails, or is full",
}


class NewerStoreError(HeadcountError):
    """A later release of Headcount wrote it."""


class DamagedStoreError(HeadcountError):
    """More of the file is damaged than a row."""


class RowStore(Generic[Kept]):
    """Keeps finished things of one kind. Where that fails it says so once on stderr, and from then on keeps nothing.

    A row is committed as it is put: a process that is killed loses none that it had put. The oldest make room where
    the limit `store_bytes` is reached.
    """

    def __init__(
        self, kind: str, encode: Callable[[Kept], bytes], decode: Callable[[bytes], Kept], base: Path | None = None
    ) -> None:
        """`kind` names the folder, the table and what is kept, such as "simulations".

        `decode` raises HeadcountError or TypeError for bytes that are something else.
        """
        self.kind, self._encode, self._decode = kind, encode, decode
        self._base = (cache_folder() if base is None else base).absolute()
        self._lock = Lock()
        self._opened: sqlite3.Connection | None = None
        self._inode = 0
        self._is_off = False
        self._is_checked = False  # since a damaged row was found

    @property
    def path(self) -> Path:
        """The file; it need not exist."""
        return self._base / self.kind / "store.sqlite3"

    @property
    def damaged(self) -> Path:
        """What a damaged file is named; it need not exist."""
        return self.path.with_suffix(".damaged")

    def get(self, key: bytes) -> Kept | None:
        """What was put under the key, if it is still there and undamaged."""
        row = self._tried(lambda database: self._row(database, key), None)
        if row is None:
            return None
        checksum, content = row
        try:
            if checksum != _checksum(key, content):
                raise HeadcountError("its checksum is wrong")
            return self._decode(content)
        except (ValueError, TypeError):
            if self._tried(self._check_whole, False):
                warn_once(f"a damaged row in {self.path} is computed again")
            return None

    def put(self, key: bytes, value: Kept) -> None:
        """Keep it."""
        content = self._encode(value)

        def write(database: sqlite3.Connection) -> None:
            row = (key, _checksum(key, content), content)
            database.execute(f"insert or replace into {self.kind} (key, checksum, content) values (?, ?, ?)", row)
            while _used_bytes(database) > limits().store_bytes and self._evict(database):
                pass

        self._tried(write, None)

    def count(self) -> int:
        """How many are kept."""
        return self._tried(self._rows, 0)

    def clear(self) -> bool:
        """Forget all of them, and give the disk its space back; False where that failed."""

        def clear(database: sqlite3.Connection) -> bool:
            for statement in (f"delete from {self.kind}", "vacuum", "pragma wal_checkpoint(truncate)"):
                database.execute(statement)
            return True

        return self._tried(clear, False)

    def close(self) -> None:
        """Leave the file; the next call opens it again."""
        with self._lock:
            self._disconnect()

    def _tried(self, act: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        with self._lock:
            if self._is_off:
                return otherwise
            try:
                return act(self._database())
            except (sqlite3.Error, OSError, NewerStoreError, DamagedStoreError) as error:
                self._is_off = True
                self._disconnect()
                self._tell(error)
                return otherwise

    def _database(self) -> sqlite3.Connection:
        if self._opened is None:
            private_folder(self._base, self.kind)
            descriptor = os.open(self.path, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o600)
            found = os.fstat(descriptor)
            os.close(descriptor)
            check_private_file(found, self.path)
            self._inode = found.st_ino
            self._opened = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            self._prepare(self._opened)
        return self._opened

    def _disconnect(self) -> None:
        if self._opened is not None:
            with suppress(sqlite3.Error):
                self._opened.close()
        self._opened = None

    def _tell(self, error: Exception) -> None:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        kept = f"finished {self.kind} are not kept in {self.path}"
        if code in _DAMAGED or isinstance(error, DamagedStoreError):
            aside = self._move_aside()
            warn_once(f"{kept} in this run: the file is damaged{aside}; the next run begins a new one")
        else:
            told = _REASONS.get(code) or getattr(error, "strerror", None) or str(error)
            warn_once(f"{kept}: {told}; the run goes on without")

    def _move_aside(self) -> str:
        """Give the damaged file another name, unless another process has done so and begun a new one."""
        damaged = self.damaged
        try:
            if self.path.stat().st_ino != self._inode:
                return ""
            self.path.replace(damaged)
            for suffix in ("-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        except OSError:
            return ""
        return f" and now named {damaged.name}"

    def _prepare(self, database: sqlite3.Connection) -> None:
        """Make the table, or see that it is one that this release reads."""
        schema = _value(database, "pragma user_version")
        if schema > SCHEMA:
            raise NewerStoreError("a newer release of Headcount wrote it")
        if schema < SCHEMA:
            database.execute(f"pragma page_size = {PAGE_BYTES}")
        database.execute("pragma journal_mode = wal")
        database.execute("pragma synchronous = normal")  # a lost machine may lose the last rows, never the file
        if schema < SCHEMA:
            database.execute(f"create table if not exists {self.kind} {_COLUMNS}")
            database.execute(f"pragma user_version = {SCHEMA}")

    def _row(self, database: sqlite3.Connection, key: bytes) -> tuple[bytes, bytes] | None:
        found: tuple[bytes, bytes] | None = database.execute(
            f"select checksum, content from {self.kind} where key = ?", (key,)
        ).fetchone()
        return found

    def _check_whole(self, database: sqlite3.Connection) -> bool:
        """True. Raises DamagedStoreError where pages are damaged, to which a new row may be written; looks once."""
        if not self._is_checked and database.execute("pragma quick_check(1)").fetchone()[0] != "ok":
            raise DamagedStoreError
        self._is_checked = True
        return True

    def _rows(self, database: sqlite3.Connection) -> int:
        return _value(database, f"select count(*) from {self.kind}")

    def _evict(self, database: sqlite3.Connection) -> bool:
        """Forget the oldest; False where there is but one, which was put just now."""
        rows = self._rows(database)
        if rows < 2:
            return False
        oldest = f"select number from {self.kind} order by number limit ?"
        database.execute(
            f"delete from {self.kind} where number in ({oldest})", (min(1 + int(rows * EVICTED_SHARE), rows - 1),)
        )
        return True


def _value(database: sqlite3.Connection, question: str) -> int:
    found: int = database.execute(question).fetchone()[0]
    return found


def _used_bytes(database: sqlite3.Connection) -> int:
    pages = _value(database, "pragma page_count") - _value(database, "pragma freelist_count")
    return pages * _value(database, "pragma page_size")


def _checksum(key: bytes, content: bytes) -> bytes:
    return hashlib.sha256(key + hashlib.sha256(content).digest()).digest()
