"""How a question's simulations run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from headcount.inputs.fields import Inputs, given
from simulator.engines.values import LARGEST_TEXT, Switch, Text, WholeNumber
from simulator.study.running.executor import DEFAULT_EXECUTOR, find_executor
from simulator.study.running.simulations import Simulations
from simulator.study.store.store import kept_simulations

_RUNNING = "Running"


def unwatched(_: object) -> None:
    """Nobody watches."""


def _seed() -> Any:
    return given(WholeNumber(0, LARGEST_TEXT), "Same seed, same result.", heading="Other options", default=0)


def _strict() -> Any:
    return given(
        Switch(has_opposite=False),
        "Refuse answers that rest on assumptions: unknown architectures, unmeasured GPUs.",
        heading="Deployment",
        default=False,
    )


@dataclass(frozen=True, kw_only=True)
class SeedInput(Inputs):
    """Of a question with one run: its random numbers, whether assumptions are refused, who hears of progress."""

    seed: int = _seed()
    strict: bool = _strict()
    progress: Callable[..., None] = unwatched


@dataclass(frozen=True, kw_only=True)
class RunInput(Inputs):
    """The same of a question that simulates many loads, and where they run."""

    seed: int = _seed()
    strict: bool = _strict()
    store: bool = given(
        Switch(has_opposite=False),
        "Neither look for finished simulations in the cache folder nor save them there.",
        heading=_RUNNING,
        default=True,
        flag="no-store",
    )
    executor: str = given(
        Text(names_code=True),
        "Where simulations run: threads, processes, ray (on RAY_ADDRESS, if set), or module:Name of your own.",
        heading=_RUNNING,
        default=DEFAULT_EXECUTOR,
    )
    workers: int | None = given(
        WholeNumber(1, 10_000),
        "Simulations that run side by side.",
        heading=_RUNNING,
        default_text="one per processor",
    )
    progress: Callable[..., None] = unwatched

    def check(self) -> None:
        """Raise HeadcountError for an executor that is none, before anything is read."""
        find_executor(self.executor, self.workers)

    @contextmanager
    def simulations(self) -> Iterator[Simulations]:
        """Where simulations run, and whether they are saved, meanwhile."""
        runs_on = find_executor(self.executor, self.workers)
        with Simulations(executor=runs_on, store=kept_simulations() if self.store else None) as found:
            yield found
