"""The files that an answer read, so that its report can be asked for again."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

MOST_TEXT: Final = 256 * 1024  # bytes of a file that is kept whole
MOST_TOGETHER: Final = 512 * 1024


def inputs_json(inputs: Iterable[tuple[str, Path]]) -> list[dict[str, Any]]:
    """Each file with its size and SHA-256, and with its text where that is small; names of catalogs are no files."""
    found, room = [], MOST_TOGETHER
    for argument, path in dict.fromkeys(inputs):
        if not path.is_file():
            continue
        content = path.read_bytes()
        text = _text(content) if len(content) <= min(MOST_TEXT, room) else None
        room -= len(content) if text is not None else 0
        digest = hashlib.sha256(content).hexdigest()
        found.append({"argument": argument, "name": path.name, "bytes": len(content), "sha256": digest, "text": text})
    return found


def _text(content: bytes) -> str | None:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None
