"""scipy's special functions, loaded where they are first used, without the ten times as long rest of their package."""

import importlib.util
import sys
from functools import cache
from threading import Lock
from typing import Any

_LOADING = Lock()


def __getattr__(name: str) -> Any:
    with _LOADING:
        return getattr(_functions(), name)


@cache
def _functions() -> Any:
    """The compiled functions alone: `scipy.special` itself imports numpy.testing and numpy.f2py for other array types.

    Where a release of scipy keeps them elsewhere, all of `scipy.special`.
    """
    name = "scipy.special"
    if name not in sys.modules and (spec := importlib.util.find_spec(name)) is not None:
        sys.modules[name] = importlib.util.module_from_spec(spec)  # a package whose own code does not run
        try:
            return importlib.import_module(f"{name}._ufuncs")
        except ImportError:
            pass
        finally:
            del sys.modules[name]
    return importlib.import_module(name)
