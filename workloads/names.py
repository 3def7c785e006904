"""Which known name somebody meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest_hint(given: str, known: Iterable[str]) -> str:
    """`did you mean 'chat'?`, or all known names where none is near."""
    names = list(known)
    near = get_close_matches(given.lower(), names, n=1)
    return f"did you mean '{near[0]}'?" if near else f"known: {', '.join(names)}"


def shortened(text: str, length: int = 60) -> str:
    """What was found in a file, cut where it would fill the screen."""
    return text if len(text) <= length else f"{text[: length - 1]}…"
