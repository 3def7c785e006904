"""How a mistake is told."""

import difflib
from collections.abc import Sequence


def nearest(given: str, known: Sequence[str]) -> str:
    """`; did you mean 'x'?` for the nearest known name, else the list of them."""
    close = difflib.get_close_matches(given.lower(), known, n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else f"; there are {', '.join(known)}"
