"""Simulations of a study: found in the store, or run and kept."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from types import TracebackType

from simulator.study.replication import Replication
from simulator.study.running.executor import Executor, find_executor
from simulator.study.running.task import Task
from simulator.study.store.digest import Digests
from simulator.study.store.store import Store


@dataclass(kw_only=True)
class Simulations:
    """Runs tasks on an executor, each once as long as its store keeps it; without a store, each time.

    What is finished is kept at once, so that a run that ends early, also by Ctrl-C, begins where it ended.
    """

    executor: Executor = field(default_factory=find_executor)
    store: Store | None = None
    _digests: Digests = field(default_factory=Digests, init=False, repr=False)

    def run(self, tasks: Sequence[Task]) -> list[Replication]:
        """One replication for each task, in order."""
        found: dict[int, Replication] = {}
        if self.store is not None:
            for place, task in enumerate(tasks):
                key = self._digests.of_task(task, self.executor.origin)
                kept = None if key is None else self.store.get(key)
                if kept is not None:
                    found[place] = kept
        missing = [place for place in range(len(tasks)) if place not in found]
        if missing:
            self._simulate(tasks, missing, found)
        return [found[place] for place in range(len(tasks))]

    def _simulate(self, tasks: Sequence[Task], missing: list[int], found: dict[int, Replication]) -> None:
        with closing(self.executor.run([tasks[place] for place in missing])) as outcomes:
            for number, (replication, computed_at) in outcomes:
                place = missing[number]
                found[place] = replication
                key = self._digests.of_task(tasks[place], computed_at) if self.store is not None else None
                if self.store is not None and key is not None:
                    self.store.put(key, replication)

    def close(self) -> None:
        """Let go of the workers and the file."""
        self.executor.close()
        if self.store is not None:
            self.store.close()

    def __enter__(self) -> "Simulations":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
