"""An empty torchvision where there is none: SGLang imports it for images, which no case has.

Imported by probes, before SGLang.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
import warnings

warnings.filterwarnings("ignore")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


class NoImages(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds torchvision and whatever is imported from it."""

    def find_spec(self, name, path, target=None):
        is_wanted = name.split(".")[0] == "torchvision"
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_wanted else None

    def create_module(self, spec):
        return _Empty(spec.name)

    def exec_module(self, module):
        pass


class _AnyAttribute(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


class _Nothing(metaclass=_AnyAttribute):
    """Stands for every name that is imported, and for its attributes."""


class _Empty(types.ModuleType):
    __path__ = ()
    __version__ = "0.0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing


if importlib.util.find_spec("torchvision") is None:
    sys.meta_path.append(NoImages())
