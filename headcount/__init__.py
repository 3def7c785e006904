"""How many people can these GPUs serve at once, and how many GPUs do these people need?"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headcount.version import __version__

if TYPE_CHECKING:
    from headcount.api import *

__all__ = ["__version__"]


def __getattr__(name: str) -> Any:
    """Public names are imported when first used, so that `headcount --help` answers at once."""
    api = None if name.startswith("_") else import_module("headcount.api")
    if api is None or name not in api.__all__:
        raise AttributeError(f"module 'headcount' has no attribute '{name}'")
    return api.public(name)


def __dir__() -> list[str]:
    """The public names alone, for tab completion."""
    return sorted(import_module("headcount.api").__all__)
