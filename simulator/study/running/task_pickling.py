"""Tasks on their way to another process."""

import pickle

from files.errors import HeadcountError
from files.names import error_shown
from simulator.study.running.task import Outcome, Task


def pickled_task(task: Task, executor: str) -> bytes:
    """The task as bytes. Raises ValueError for what cannot leave this process, such as a function within a function."""
    try:
        return pickle.dumps(task)
    except Exception as error:
        raise HeadcountError(
            f"the executor {executor!r} cannot hand over the simulation: {error_shown(error)}; define the router or "
            "latency model at the top of a module, or use the executor 'threads'"
        ) from None


def opened(content: bytes) -> Outcome | HeadcountError:
    """In a worker: what the task shows, or why it cannot be simulated."""
    try:
        task: Task = pickle.loads(content)
    except Exception as error:
        return HeadcountError(
            f"a worker cannot read the simulation: {error_shown(error)}; define the router or latency model in a "
            "module that it can import, or use the executor 'threads'"
        )
    try:
        return task.run()
    except ValueError as error:
        return HeadcountError(str(error))
