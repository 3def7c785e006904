"""How many people can these GPUs serve at once, and how many GPUs do these people need?"""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headcount.api import *

__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    """Public names are imported when first used, so that `headcount --help` answers at once."""
    if name.startswith("_"):
        raise AttributeError(f"module 'headcount' has no attribute '{name}'")
    return _public(name)


@cache
def _public(name: str) -> Any:
    """One of `headcount.api`; a function looks at the types of its arguments first."""
    api = import_module("headcount.api")
    if name not in api.__all__:
        raise AttributeError(f"module 'headcount' has no attribute '{name}'")
    found = getattr(api, name)
    if isinstance(found, type):
        return found
    from files.arguments import checked  # noqa: PLC0415  `headcount --help` needs none of it

    return checked(found, api.ANNOTATIONS)


def __dir__() -> list[str]:
    """The public names alone, for tab completion."""
    return sorted(import_module("headcount.api").__all__)
