"""Workers of Ray: on this machine, or on the cluster that the environment variable RAY_ADDRESS names."""

import os
from collections.abc import Generator, Sequence
from functools import cached_property
from typing import Any

from files.errors import HeadcountError
from simulator.study.running.task import Outcome, Task
from simulator.study.running.task_pickling import opened, pickled_task
from simulator.study.store.origin import Origin, origin

_QUIET = {"logging_level": "ERROR", "log_to_driver": False, "configure_logging": True, "include_dashboard": False}


class Executor:
    def __init__(self, workers: int | None) -> None:
        try:
            import ray  # noqa: PLC0415  an optional extra
        except ImportError:
            raise HeadcountError(
                "the executor 'ray' needs Ray; install headcount[ray], or use 'threads' or 'processes'"
            ) from None
        self._ray: Any = ray
        self._workers = workers
        self._began = False

    @cached_property
    def origin(self) -> Origin:
        """That of one worker. Raises HeadcountError where it has other code than this process."""
        found: Origin = self._ray.get(self._remote(_origin).remote())
        _check(found)
        return found

    def run(self, tasks: Sequence[Task]) -> Generator[tuple[int, Outcome]]:
        ray, remote = self._ray, self._remote(opened)
        most = self._workers or max(int(ray.cluster_resources().get("CPU", 1)), 1)
        left, places = list(enumerate(tasks))[::-1], dict[Any, int]()
        try:
            while left or places:
                while left and len(places) < most:
                    place, task = left.pop()
                    places[remote.remote(pickled_task(task, "ray"))] = place
                for done in ray.wait(list(places))[0]:
                    place, found = places.pop(done), ray.get(done)
                    if isinstance(found, ValueError):
                        raise found
                    _check(found.origin)
                    yield place, found
        finally:
            for pending in places:
                ray.cancel(pending)

    def close(self) -> None:
        if self._began:
            self._ray.shutdown()
        self._began = False

    def _remote(self, function: Any) -> Any:
        """The function on a worker; begins Ray where the program has not."""
        if not self._ray.is_initialized():
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
            workers = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": self._workers}
            self._ray.init(**_QUIET, **workers)
            self._began = True
        return self._ray.remote(max_retries=0)(function)


def _origin() -> Origin:
    return origin()


def _check(found: Origin) -> None:
    if found.code != origin().code:
        raise HeadcountError(
            "Ray's workers have another Headcount, Python, numpy, scipy or numba than this process, and may answer "
            "otherwise; install the same on both"
        )
