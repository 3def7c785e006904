"""Which model a server loads whose folder is on another machine."""

import os
import re
from collections.abc import Iterator, Mapping

from files.errors import HeadcountError
from files.names import shortened
from files.warn_once import warn_once
from kvcache.models.catalog import named_config

_HUB = re.compile(r"models--([^/]+?)--([^/]+)")  # how the Hugging Face cache names a model's folder


def with_known_model(options: Mapping[str, object], option: str) -> dict[str, object]:
    """With the catalog's name for a model whose folder is not here, but is called so; a warning says that."""
    name = options.get("model")
    is_path = isinstance(name, str) and name.startswith(("/", "./", "../", "~"))
    if not isinstance(name, str) or not is_path or os.path.lexists(os.path.expanduser(name)):
        return dict(options)
    for known in _names(name):
        try:
            named_config(known)
        except HeadcountError:
            continue
        warn_once(f"{option}: {shortened(name, 100)} is not on this machine; it is taken as {known} of the catalog")
        return {**options, "model": known}
    return dict(options)


def _names(path: str) -> Iterator[str]:
    hub = _HUB.search(path)
    if hub is not None:
        yield f"{hub[1]}/{hub[2]}"
    yield from path.strip("/").split("/")[:-3:-1]  # the folder, and the one that holds a snapshot or a `main`
