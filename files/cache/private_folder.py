"""Folders of the cache that nobody but their user can write to."""

import os
import stat
from errno import EPERM
from pathlib import Path

from files.reading import check_access


def private_folder(base: Path, *names: str) -> Path:
    """The folder `names` below the cache folder `base`, made if need be; raises OSError where that is not safe.

    The cache folder itself may also be root's. Its group may write to it, as some systems have it by default, and
    everybody if it is sticky (as /tmp): what they put there is not ours, and is not read.
    """
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = base.stat()
    check_access(found, base, owners=(0,), closed=0 if found.st_mode & stat.S_ISVTX else stat.S_IWOTH)
    folder = base
    for name in names:
        folder /= name
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise OSError(EPERM, "it is a link", str(folder))
        check_access(found, folder)
    return folder


def check_private_file(found: os.stat_result, path: Path) -> None:
    """Raise OSError unless it is an ordinary file that only this user may write to."""
    if not stat.S_ISREG(found.st_mode):
        raise OSError(EPERM, "it is no file", str(path))
    check_access(found, path)


def folder_bytes(folder: Path) -> int:
    """The size of all files in it; 0 where there is none."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
