"""What a report needs, told before the long work."""

import os
from importlib.util import find_spec
from pathlib import Path

from boundary.outputs import check_out_file


def check_report(option: str, path: str | os.PathLike[str], suffixes: tuple[str, ...] = (".html",)) -> None:
    """Refuse what would make a report impossible after the work. Raises ValueError."""
    check_out_file(option, Path(path), suffixes, example=f"report{suffixes[0]}")
    if any(find_spec(name) is None for name in ("matplotlib", "jinja2")):
        raise ValueError("the report needs matplotlib and jinja2; install headcount[report]")
