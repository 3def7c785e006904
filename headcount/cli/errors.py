"""How a mistake is told."""

import difflib
from collections.abc import Sequence


def nearest(given: str, known: Sequence[str]) -> str:
    """`; did you mean 'x'?` for the nearest known name, else the list of them."""
    close = difflib.get_close_matches(given.lower(), known, n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else f"; there are {', '.join(known)}"


def shortened(text: str, length: int = 60) -> str:
    """What was given, cut where it would fill the screen."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def one_line(text: str) -> str:
    """A message on one line of a terminal: no line breaks, no control characters, of bounded length."""
    line = " ".join(text.split())
    return shortened("".join(char if char.isprintable() else "?" for char in line), 1000)
