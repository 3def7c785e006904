"""Progress of long work, on stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

from headcount.answers.answer import Answer, Progress, Watch


@dataclass(frozen=True)
class Bar:
    """One line: how much is done, what is being simulated."""

    progress: RichProgress
    task: TaskID

    def advance(self) -> None:
        self.progress.advance(self.task)

    def show(self, *, done: int, total: int, note: str) -> None:
        self.progress.update(self.task, completed=done, total=total, note=note)

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
    with RichProgress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Bar(progress, progress.add_task(title, total=total, note=""))


@contextmanager
def watched(title: str, *, interrupted: Callable[[Answer], object] = lambda _: None) -> Iterator[Watch]:
    """What a question calls while it is answered; the bar shows it, and a line what is found on the way.

    After Ctrl-C `interrupted` gets the answer so far, if any.
    """
    answers: list[Answer] = []
    try:
        with progress_bar(title, total=1) as bar:

            def watch(now: Progress) -> None:
                bar.show(done=now.done, total=now.total, note=now.note)
                if now.found:
                    bar.progress.console.print(now.found, highlight=False, markup=False, soft_wrap=True)
                if now.so_far is not None:
                    answers[:] = [now.so_far]

            yield watch
    except KeyboardInterrupt:
        for answer in answers:
            interrupted(answer)
        raise
