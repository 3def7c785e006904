"""How a question's simulations run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headcount.inputs.fields import Inputs, given
from simulator.engines.values import LARGEST_TEXT, Switch, Text, WholeNumber
from simulator.study.running import DEFAULT_EXECUTOR

if TYPE_CHECKING:
    from simulator.study.running.simulations import Simulations


def unwatched(_: object) -> None:
    """Nobody watches."""


@dataclass(frozen=True, kw_only=True)
class SeedInput(Inputs):
    """Of a question with one run: its random numbers, whether assumptions are refused, who hears of progress."""

    seed: int = given(
        WholeNumber(0, LARGEST_TEXT),
        "Random seed. The same seed gives the same result.",
        heading="Other options",
        default=0,
    )
    strict: bool = given(
        Switch(has_opposite=False),
        "Refuse answers that depend on assumptions, such as an unknown architecture or an unmeasured GPU.",
        heading="Deployment",
        default=False,
    )
    progress: Callable[..., None] = unwatched


@dataclass(frozen=True, kw_only=True)
class RunInput(SeedInput, heading="Running"):
    """How a question that simulates many loads runs, and where."""

    store: bool = given(
        Switch(has_opposite=False),
        "Do not read or write saved simulations in the cache folder.",
        default=True,
        flag="no-store",
    )
    executor: str = given(
        Text(names_code=True),
        "Where simulations run: threads, processes, ray (at RAY_ADDRESS, if set), or your own as module:Name.",
        default=DEFAULT_EXECUTOR,
    )
    workers: int | None = given(
        WholeNumber(1, 10_000), "Simulations that run in parallel.", default_text="one per processor"
    )
    explain: bool = given(
        Switch(has_opposite=False),
        "Also show every column and layout, what they mean, and where the figures come from.",
        heading="Output",
        default=False,
    )

    def check(self) -> None:
        """Raise HeadcountError for an executor that is none, before anything is read."""
        from simulator.study.running.executor import find_executor  # noqa: PLC0415  as below

        find_executor(self.executor, self.workers)

    @contextmanager
    def simulations(self) -> "Iterator[Simulations]":
        """Where simulations run, and whether they are saved, meanwhile."""
        from simulator.study.running.executor import find_executor  # noqa: PLC0415  only studies simulate
        from simulator.study.running.simulations import Simulations  # noqa: PLC0415
        from simulator.study.store.store import kept_simulations  # noqa: PLC0415

        runs_on = find_executor(self.executor, self.workers)
        with Simulations(executor=runs_on, store=kept_simulations() if self.store else None) as found:
            yield found
