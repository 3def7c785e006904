"""An empty torchvision: SGLang imports it for images, which its scheduler never sees."""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence

__version__ = "0.0"


class _AnyAttribute(type):
    def __getattr__(cls, name: str) -> type:
        return _of_module(name)


class _Nothing(metaclass=_AnyAttribute):
    """Stands for every name that is imported, and for its attributes."""


def _of_module(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Nothing


__getattr__ = _of_module


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        is_wanted = name.startswith(f"{__name__}.")
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_wanted else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__getattr__ = _of_module  # type: ignore[method-assign]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing."""


sys.meta_path.append(_Submodules())
