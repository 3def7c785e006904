"""Processes of this machine: for routers in Python, which hold the interpreter's lock."""

import os
import signal
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from threading import Thread

from files.errors import HeadcountError
from simulator.study.running.executor import processors
from simulator.study.running.task import Outcome, Task
from simulator.study.running.task_pickling import opened, pickled_task
from simulator.study.store.origin import Origin, origin


class Executor:
    def __init__(self, workers: int | None) -> None:
        self._workers = workers or processors()
        self._pool: ProcessPoolExecutor | None = None

    @property
    def origin(self) -> Origin:
        return origin()

    def run(self, tasks: Sequence[Task]) -> Generator[tuple[int, Outcome]]:
        parcels = [pickled_task(task, "processes") for task in tasks]
        if self._pool is None:  # begun anew, as on every system: a copy of a process with threads may hang
            self._pool = ProcessPoolExecutor(self._workers, get_context("spawn"), initializer=begin_worker)
        places: dict[Future[Outcome | ValueError], int] = {}
        try:
            places |= {self._pool.submit(opened, each): place for place, each in enumerate(parcels)}
            for future in as_completed(places):
                found = future.result()
                if isinstance(found, ValueError):
                    raise found
                yield places[future], found
        except BrokenProcessPool:
            self._pool = None
            raise HeadcountError(
                "a worker process ended by itself: it was killed, for lack of memory perhaps, or could not begin; "
                "a script that asks for processes must do so below \"if __name__ == '__main__':\""
            ) from None
        finally:
            for future in places:
                future.cancel()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = None


def begin_worker() -> None:
    """In a worker: leave Ctrl-C to the parent, and end with it, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
