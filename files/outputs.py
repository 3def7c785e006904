"""Files that appear whole or not at all."""

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from files.errors import HeadcountError
from files.names import shortened


def check_out_file(option: str, path: Path, suffixes: tuple[str, ...] = (), example: str = "") -> None:
    """Refuse before the long work a file that could not be written after it; `option` names it in the message.

    `suffixes` are the endings that are allowed, if any. What is there stays as it is; of a link it warns.
    Raises HeadcountError.
    """
    given = f"{option} {shortened(str(path), 200)}"
    try:
        if path.is_dir():
            raise HeadcountError(
                f"{given} is a folder; name a file" + f" in it, such as {path / example}" * bool(example)
            )
        if path.resolve().is_relative_to("/dev") or (path.exists() and not path.is_file()):
            raise HeadcountError(f"{given} is not an ordinary file; name one" + f" such as {example}" * bool(example))
        if suffixes and path.suffix.lower() not in suffixes:
            raise HeadcountError(f"{given}: the file's name must end in {' or '.join(suffixes)}")
        folder = path.resolve().parent
        if not folder.is_dir():
            raise HeadcountError(f"{given}: there is no folder {folder}; create it or name another")
        if path.exists() and not os.access(path, os.W_OK):
            raise HeadcountError(f"{given} is write-protected; name another file")
        _new_file(path.resolve()).unlink()
    except (OSError, RuntimeError) as error:  # RuntimeError: a link to itself
        raise HeadcountError(f"{given} cannot be written: {_reason(error)}; name another file") from None
    if path.is_symlink():
        warnings.warn(f"{given} is a link; {path.resolve()} is written", stacklevel=2)


def cache_folder() -> Path:
    """Where lies what can be made again: compiled kernels, releases of vLLM. Raises HeadcountError without a home."""
    if given := os.environ.get("HEADCOUNT_CACHE_DIR"):
        return Path(given)
    from platformdirs import user_cache_path  # noqa: PLC0415  late: many answers need no cache

    with suppress(RuntimeError):  # HOME is unset, and nobody knows the user; older releases leave the ~ as it is
        if (found := user_cache_path("headcount")).is_absolute():
            return found
    raise HeadcountError("this user has no home directory for the cache; name a folder in HEADCOUNT_CACHE_DIR")


def check_out_files(outputs: Mapping[str, Path], inputs: Iterable[tuple[str, Path]]) -> None:
    """Refuse an output that is a file of the question, or that another output names too, however it is spelled.

    Both have the options in front; every file in a folder that is an input is one. Raises HeadcountError.
    """
    found = [(what, given) for what, given in inputs if os.path.exists(given)]
    named = list(outputs.items())
    for place, (option, path) in enumerate(named):
        said = shortened(str(path), 200)
        for other in (name for name, earlier in named[:place] if _is_same(path, earlier)):
            raise HeadcountError(f"{other} and {option} both name {said}; give each its own file")
        for what in (what for what, given in found if _is_same(path, given) or _is_inside(path, given)):
            raise HeadcountError(
                f"{option} {said}: is an input as well ({what}), which it would replace; name another file"
            )


def _is_same(one: Path, other: Path) -> bool:
    """Whether both are one file: also by a link, or under another name."""
    if one.exists() and other.exists():
        return one.samefile(other)
    return os.path.realpath(one) == os.path.realpath(other)


def _is_inside(path: Path, folder: Path) -> bool:
    return path.exists() and folder.is_dir() and path.resolve().is_relative_to(folder.resolve())


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` to write to; it takes the name at the end, unless something went wrong.

    A link stays a link. Raises HeadcountError where the system refuses.
    """
    target, temporary = path.resolve(), None
    try:
        temporary = _new_file(target)
        yield temporary
        temporary.replace(target)
    except OSError as error:
        raise HeadcountError(f"{path} cannot be written: {_reason(error)}") from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file that appears whole or not at all, also where the machine stops. Raises HeadcountError if refused."""
    with whole_file(Path(path)) as temporary, temporary.open("wb") as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())


def _new_file(target: Path) -> Path:
    """An empty file beside `target` whose name nobody knows before: no link that lies there is followed."""
    path = target.with_name(f".{target.name[:40]}.{os.urandom(8).hex()}.part")
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))  # less what the umask takes away
    return path


def _reason(error: Exception) -> str:
    told = error.strerror if isinstance(error, OSError) else "a link that leads to itself"
    return (told or str(error)).lower()
