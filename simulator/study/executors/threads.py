"""Threads of this process: the compiled core releases the interpreter's lock."""

from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from simulator.study.running.executor import processors
from simulator.study.running.task import Outcome, Task
from simulator.study.store.origin import Origin, origin


class Executor:
    def __init__(self, workers: int | None) -> None:
        self._workers = workers or processors()

    @property
    def origin(self) -> Origin:
        return origin()

    def run(self, tasks: Sequence[Task]) -> Generator[tuple[int, Outcome]]:
        pool = ThreadPoolExecutor(max_workers=max(min(len(tasks), self._workers), 1))
        try:
            places = {pool.submit(task.run): place for place, task in enumerate(tasks)}
            for future in as_completed(places):
                yield places[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        pass
