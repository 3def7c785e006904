"""The files that an answer read, so that its report can be asked for again."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

MOST_TEXT: Final = 256 * 1024  # bytes of a file that is kept whole
MOST_TOGETHER: Final = 512 * 1024


def inputs_json(inputs: Iterable[tuple[str, Path]]) -> list[dict[str, object]]:
    """Each file with its size and SHA-256, and with its text where that is small; names of catalogs are no files."""
    found, room = [], MOST_TOGETHER
    for argument, path in dict.fromkeys(inputs):
        if not path.is_file():
            continue
        size = path.stat().st_size
        text = _text(path.read_bytes()) if size <= min(MOST_TEXT, room) else None
        room -= size if text is not None else 0
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        found.append({"argument": argument, "name": path.name, "bytes": size, "sha256": digest, "text": text})
    return found


def _text(content: bytes) -> str | None:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None
