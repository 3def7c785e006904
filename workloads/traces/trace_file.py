"""A trace file, and how it is to be read where its content does not say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from files.names import check_names, shortened
from files.reading import InputError

if TYPE_CHECKING:
    from workloads.traces.trace_format import Recorded, TraceFormat

_UNITS_S: Final = {"": None, "_s": 1.0, "_ms": 1e-3, "_us": 1e-6, "_ns": 1e-9}
TIMES: Final = {f"{of}{unit}": (of, factor) for of in ("time", "think") for unit, factor in _UNITS_S.items()}
FIELDS: Final = (*TIMES, "prompt", "output", "session", "priority", "tenant")
"""What a column may say; `time` alone is a date, or seconds."""


@dataclass(frozen=True)
class TraceFile:
    """A file of `--workload` with its `--trace-format`, or its `--columns`, or its `--log-pattern`; and at which times.

    `columns` names the column of each of FIELDS, as a mapping or as in `time=t,prompt=p,output=o`; a sum is `p+q`.
    The groups of `log_pattern`, a regular expression, are named so.

    `spread_ticks` spreads times that were rounded evenly over what they were rounded to. The files of `splice`, read in
    the same way, follow this one. `stretch` multiplies all times; `rate_scale` is how many times as many sessions come.
    They are applied in this order.
    """

    path: str | Path
    format: str | None = field(default=None, kw_only=True)
    columns: str | Mapping[str, str] | None = field(default=None, kw_only=True)
    log_pattern: str | None = field(default=None, kw_only=True)
    spread_ticks: bool = field(default=False, kw_only=True)
    splice: Sequence[str | Path] = field(default=(), kw_only=True)
    stretch: float | None = field(default=None, kw_only=True)
    rate_scale: float | None = field(default=None, kw_only=True)

    def __str__(self) -> str:
        return str(self.path)

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def how(self) -> tuple[str, ...]:
        """Which of the three are given."""
        named = {"a trace format": self.format, "columns": self.columns, "a log pattern": self.log_pattern}
        return tuple(name for name, value in named.items() if value is not None)

    @property
    def changes(self) -> tuple[str, ...]:
        """Which changes of times are given."""
        named = {"spread ticks": self.spread_ticks, "splice": self.splice}
        factors = {"stretch": self.stretch, "a rate scale": self.rate_scale}
        given = [name for name, value in named.items() if value]
        return (*given, *(name for name, value in factors.items() if value is not None))

    @property
    def files(self) -> tuple["TraceFile", ...]:
        """This one and those that follow it, at the times that they tell."""
        plain = replace(self, spread_ticks=False, splice=(), stretch=None, rate_scale=None)
        return (plain, *(replace(plain, path=path) for path in self.splice))

    def recorded(self, block_size: int | None, num_rows: int | None) -> "tuple[TraceFormat | None, Recorded]":
        """What the file holds, and its format, if it is read as one. Raises InputError, UnknownNameError."""
        from workloads.traces.recorded_file import recorded  # noqa: PLC0415  readers of traces, which presets need not

        return recorded(self, block_size, num_rows)


Source = str | Path | TraceFile
"""A workload: a preset's name, a population's file, a trace."""


def read_names(given: str | Mapping[str, str]) -> dict[str, str]:
    """The columns by what they say. Raises HeadcountError."""
    if isinstance(given, str):
        parts = [part.partition("=") for part in given.split(",")]
        wrong = next(("".join(part) for part in parts if not part[1] or not part[2].strip()), None)
        if wrong is not None:
            raise InputError(f"columns: '{shortened(wrong)}' is no NAME=COLUMN; give such as time=t,prompt=p,output=o")
        names = [name.strip() for name, _, _ in parts]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"columns: {twice} is given twice; leave out one of them")
        given = {name.strip(): column.strip() for name, _, column in parts}
    check_names(given, FIELDS, "column")
    missing = [name for name in ("prompt", "output") if name not in given]
    if missing:
        raise InputError(f"columns: no {' and no '.join(missing)}; give prompt=COLUMN,output=COLUMN at least")
    return dict(given)
