"""What a library says on its own account, once."""

import logging
from functools import cache


@cache
def warn_once(text: str) -> None:
    """Say something once; on stderr, unless the program that imported us logs elsewhere."""
    logging.getLogger("headcount").warning("headcount: %s", text)
