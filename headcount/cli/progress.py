"""Progress of long work, on stderr."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


@dataclass(frozen=True)
class Bar:
    """One line: how much is done, what is being simulated."""

    progress: Progress
    task: TaskID

    def advance(self) -> None:
        self.progress.advance(self.task)

    def note(self, text: str) -> None:
        self.progress.update(self.task, note=text)


def note_compiling() -> None:
    """Say on stderr why a machine's first simulation takes longer."""
    from simulator.core.jit import is_compiled  # noqa: PLC0415  the compiler takes a while to load

    if not is_compiled():
        text = "headcount: compiling the simulation core for this machine, once; about 20 s"
        print(text, file=sys.stderr, flush=True)


@contextmanager
def progress_bar(title: str, *, total: int) -> Iterator[Bar]:
    """A bar that vanishes when done; silent where stderr is no terminal."""
    console = Console(file=sys.stderr)
    columns = (
        TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Bar(progress, progress.add_task(title, total=total, note=""))
