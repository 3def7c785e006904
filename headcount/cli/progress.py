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
