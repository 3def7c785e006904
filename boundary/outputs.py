"""Files that appear whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from boundary.names import shortened


def check_out_file(option: str, path: Path, suffixes: tuple[str, ...] = (), example: str = "") -> None:
    """Refuse before the long work a file that could not be written after it; `option` names it in the message.

    `suffixes` are the endings that are allowed, if any. What is there stays as it is. Raises ValueError.
    """
    given = f"{option} {shortened(str(path), 200)}"
    try:
        if path.is_dir():
            raise ValueError(f"{given} is a folder; name a file" + f" in it, such as {path / example}" * bool(example))
        if path.resolve().is_relative_to("/dev") or (path.exists() and not path.is_file()):
            raise ValueError(f"{given} is not an ordinary file; name one" + f" such as {example}" * bool(example))
        if suffixes and path.suffix.lower() not in suffixes:
            raise ValueError(f"{given}: the file's name must end in {' or '.join(suffixes)}")
        folder = path.resolve().parent
        if not folder.is_dir():
            raise ValueError(f"{given}: there is no folder {folder}; create it or name another")
        if path.exists() and not os.access(path, os.W_OK):
            raise ValueError(f"{given} is write-protected; name another file")
        _temporary(path).touch()
    except (OSError, RuntimeError) as error:  # RuntimeError: a link to itself
        raise ValueError(f"{given} cannot be written: {_reason(error)}; name another file") from None
    _temporary(path).unlink(missing_ok=True)


def check_report(option: str, path: str | os.PathLike[str], suffixes: tuple[str, ...] = (".html",)) -> None:
    """Refuse before the long work what would make a report impossible after it. Raises ValueError."""
    check_out_file(option, Path(path), suffixes, example=f"report{suffixes[0]}")
    if any(find_spec(name) is None for name in ("matplotlib", "jinja2")):
        raise ValueError("the report needs matplotlib and jinja2; install headcount[report]")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` to write to; it takes the name at the end, unless something went wrong.

    A link stays a link. Raises ValueError where the system refuses.
    """
    temporary = _temporary(path)
    try:
        yield temporary
        temporary.replace(path.resolve())
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {_reason(error)}") from None
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a file that appears whole or not at all, also where the machine stops. Raises ValueError if refused."""
    with whole_file(Path(path)) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _temporary(path: Path) -> Path:
    """Another name for each process, no longer than a name may be."""
    target = path.resolve()
    return target.with_name(f".{target.name[:40]}.{os.getpid()}.part")


def _reason(error: Exception) -> str:
    told = error.strerror if isinstance(error, OSError) else "a link that leads to itself"
    return (told or str(error)).lower()
