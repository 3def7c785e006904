"""Where simulations run: a file each in `executors/`, found by name, or module:Name of the user's."""

import os
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Protocol

from files.errors import HeadcountError
from files.names import value_shown
from files.registry import Registry
from simulator.study.running import DEFAULT_EXECUTOR
from simulator.study.running.task import Outcome, Task
from simulator.study.store.origin import Origin

EXECUTORS = Registry(
    what="executor",
    section="executors",
    folder=Path(__file__).parents[1] / "executors",
    package="simulator.study.executors",
    needs=("Executor",),
)


class Executor(Protocol):
    """Runs tasks side by side. Every one gives the same bytes."""

    @property
    def origin(self) -> Origin:
        """Where it is expected to compute: results of another origin are not looked for."""

    def run(self, tasks: Sequence[Task]) -> Generator[tuple[int, Outcome]]:
        """The place of each task and its outcome, as each is finished; where it is left early, no more are begun.

        Raises the first ValueError of a task.
        """

    def close(self) -> None:
        """Let go of what it holds; it may be used again."""


def find_executor(name: str = DEFAULT_EXECUTOR, workers: int | None = None) -> Executor:
    """The executor of that name, of so many workers (None: one for each processor it has).

    Raises UnknownNameError with the nearest names, ValueError where it cannot run here.
    """
    if workers is not None and workers < 1:
        raise HeadcountError(f"workers is {workers}; give at least 1")
    found = EXECUTORS.load(name)
    make: Callable[[int | None], Executor] = found if ":" in name else found.Executor
    if not callable(make):
        raise HeadcountError(
            f"executor {name!r}: {value_shown(make)} is no class made from a number of workers; give one"
        )
    with EXECUTORS.running(name):
        return make(workers)


def processors() -> int:
    """Of this machine."""
    return os.cpu_count() or 1
