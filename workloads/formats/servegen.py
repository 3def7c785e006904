"""ServeGen's data: how clients send and how long their requests are, from which its own generator draws."""

from pathlib import Path
from typing import Final, NoReturn

from boundary.files import InputError, shown
from workloads.traces.trace_format import TraceFormat

_CELLS: Final = 6  # start of a window in seconds, rate, CV, family of gaps, its two parameters
_FAMILIES: Final = ("Gamma", "Weibull", "")  # none where a client was idle


def recognises(head: str) -> bool:
    """Whether it begins with a client's window, or with its lengths as text of a Python dictionary."""
    first = head.partition("\n")[0].strip().split(",")
    is_window = len(first) == _CELLS and first[0].isdigit() and first[3] in _FAMILIES
    return is_window or (head.lstrip().startswith("{") and '_tokens": "{' in head)


def read(path: Path, _block_size: int | None, _num_requests: int | None) -> NoReturn:
    """Raises InputError: what to do instead."""
    raise InputError(
        f"{shown(path)}: is data of ServeGen, which says how clients send and holds no requests; draw some with its "
        "examples/basic_usage.py, and give the CSV that it writes with "
        "--columns time=…,prompt=…,output=…"
    )


FORMAT: Final = TraceFormat(
    name="servegen",
    looks_like="ServeGen's chunk-N-trace.csv, chunk-N-dataset.json (refused: they hold no requests)",
    recognises=recognises,
    read=read,
    source="alibaba/ServeGen, data/, Apache-2.0 (Xiang et al., ServeGen, NSDI 2026)",
)
