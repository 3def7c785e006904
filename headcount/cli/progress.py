"""Progress of long work, on stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

import click

from headcount.queries.result import Progress, Result, Watch

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

LINE_EVERY_S = 10.0  # where stderr is no terminal
CHECKING: Final = "reading the question"  # shown until there is progress


class Listener(Protocol):
    """Who hears a command instead of the terminal: the `obj` of its click context."""

    def watch(self, now: Progress) -> None: ...

    def answered(self, answer: Result) -> None: ...


def listener() -> Listener | None:
    """Who hears the command that runs; None where the terminal does."""
    context = click.get_current_context(silent=True)
    found: Listener | None = context.obj if context is not None else None
    return found


@dataclass
class Bar:
    """How much is done, what is being simulated: in one line of a terminal, else in a line every ten seconds."""

    title: str
    total: int
    done: int = 0
    said: str = ""
    what: str = ""  # is counted; "": the title
    drawn: "RichProgress | None" = None  # None: no terminal
    _began_s: float = field(default_factory=monotonic)
    _counts_since_s: float | None = None  # None: since the beginning
    _ended: Event = field(default_factory=Event)

    def show(self, *, done: int, total: int, note: str, what: str = "") -> None:
        """`what` is counted; "" where it is what the bar's title says."""
        if what != self.what:
            self._counts_since_s = monotonic()
        self.done, self.total, self.said, self.what = done, total, note, what
        if self.drawn is not None:
            self.drawn.update(
                self.drawn.task_ids[0], description=what or self.title, completed=done, total=total, note=note
            )

    def advance(self) -> None:
        self.show(done=self.done + 1, total=self.total, note=self.said, what=self.what)

    def note(self, text: str) -> None:
        self.show(done=self.done, total=self.total, note=text, what=self.what)

    def say(self, text: str) -> None:
        """A line that stays."""
        if self.drawn is None:
            click.echo(text, err=True)
        else:
            self.drawn.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def line(self, now_s: float) -> str:
        """What is done after so many seconds, and what is left at this pace."""
        passed_s, since_s = now_s - self._began_s, self._counts_since_s
        counted_s = passed_s if since_s is None else now_s - since_s
        left_s = counted_s / self.done * (self.total - self.done) if self.done else None
        left = "" if left_s is None else f", about {_duration(left_s)} left" if left_s else ", nearly done"
        note = f"; {self.said}" if self.said else ""
        return f"{self.what or self.title}: {self.done} of {self.total} after {_duration(passed_s)}{left}{note}"

    def run(self) -> None:
        while not self._ended.wait(LINE_EVERY_S):
            click.echo(self.line(monotonic()), err=True)

    def end(self) -> None:
        self._ended.set()


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


@contextmanager
def progress_bar(title: str, *, total: int) -> Iterator[Bar]:
    """A bar that vanishes when done; where stderr is no terminal, a line every ten seconds."""
    if not sys.stderr.isatty():
        bar = Bar(title, total)
        teller = Thread(target=bar.run, daemon=True)
        teller.start()
        try:
            yield bar
        finally:
            bar.end()
            teller.join()
        return
    from rich import progress as rich  # noqa: PLC0415  late: it takes 40 ms to import
    from rich.console import Console  # noqa: PLC0415

    columns = (
        rich.TextColumn("{task.description}"), rich.BarColumn(bar_width=24), rich.MofNCompleteColumn(),
        rich.TimeElapsedColumn(), rich.TextColumn("{task.fields[note]}"),
    )  # fmt: skip
    with rich.Progress(*columns, console=Console(file=sys.stderr), transient=True) as progress:
        progress.add_task(title, total=total, note="")
        yield Bar(title, total, drawn=progress)


@contextmanager
def watched(
    title: str, *, interrupted: Callable[[Result], object] = lambda _: None, told: list[str] | None = None
) -> Iterator[Watch]:
    """What a question calls while it is answered; the bar shows it, and a line what is found on the way.

    `told` gets these lines, too. After Ctrl-C `interrupted` gets the answer so far, if any.
    """
    if (heard := listener()) is not None:
        yield heard.watch
        return
    answers: list[Result] = []
    told = [] if told is None else told
    try:
        with progress_bar(title, total=1) as bar:
            bar.show(done=0, total=1, note="", what=CHECKING)

            def watch(now: Progress) -> None:
                bar.show(done=now.done, total=now.total, note=now.note, what=now.what)
                if now.found:
                    bar.say(now.found)
                    told.append(now.found)
                if now.so_far is not None:
                    answers[:] = [now.so_far]

            yield watch
    except KeyboardInterrupt:
        for answer in answers:
            interrupted(answer)
        raise
