"""Where simulations run changes nothing of what they show."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from files.names import UnknownNameError
from simulator.study.executors.processes import Executor as Processes
from simulator.study.running.executor import EXECUTORS, Executor, find_executor
from simulator.study.running.simulations import Simulations
from simulator.study.running.task import Task
from tests.simulator.study.study_tasks import all_shown, small_task, small_tasks
from tests.simulator.study.test_digest import Mine, mixture_task

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def processes() -> Iterator[Executor]:
    executor = find_executor("processes", 2)
    yield executor
    executor.close()


def test_any_number_of_threads_gives_the_same_bytes() -> None:
    tasks = small_tasks()
    one, many = (all_shown(Simulations(executor=find_executor("threads", count)).run(tasks)) for count in (1, 8))
    assert one == many


@pytest.mark.slow
def test_processes_give_the_same_bytes_as_threads(processes: Executor) -> None:
    tasks = [*small_tasks(), replace(mixture_task(), load=small_task().load)]
    assert all_shown(Simulations(executor=processes).run(tasks)) == all_shown(Simulations().run(tasks))
    assert processes.origin == find_executor().origin


@pytest.mark.slow
def test_ray_gives_the_same_bytes_as_threads() -> None:
    if not os.environ.get("CI"):  # which installs it
        pytest.importorskip("ray", reason="the optional extra 'ray' is not installed")
    tasks, executor = small_tasks(), find_executor("ray", 2)
    with Simulations(executor=executor) as simulations:
        assert executor.origin == find_executor().origin
        assert all_shown(simulations.run(tasks)) == all_shown(Simulations().run(tasks))


def routed(router: Any) -> Task:
    return small_task(fleet=replace(small_task().fleet, router=router))


@pytest.mark.slow
def test_an_error_of_a_task_comes_from_every_executor(processes: Executor) -> None:
    short = routed(Mine)
    engine = replace(short.fleet.pools[0].engine, max_model_len=8)
    wrong = replace(short, fleet=replace(short.fleet, pools=(replace(short.fleet.pools[0], engine=engine),)))
    for executor in (find_executor(), processes):
        with pytest.raises(ValueError, match="do not fit max_model_len 8"):
            Simulations(executor=executor).run([wrong])
        assert Simulations(executor=executor).run([short])  # and it goes on


def test_what_cannot_leave_the_process_is_told() -> None:
    class Inner(Mine):
        pass

    with pytest.raises(ValueError, match=r"executor 'processes' cannot hand over .* use the executor 'threads'"):
        Simulations(executor=Processes(1)).run([routed(Inner)])


@pytest.mark.slow
def test_workers_end_with_a_process_that_is_killed() -> None:
    code = """
from simulator.study.running.executor import find_executor
from simulator.study.running.simulations import Simulations
from tests.simulator.study.study_tasks import small_tasks
if __name__ == "__main__":
    executor = find_executor("processes", 1)
    Simulations(executor=executor).run(small_tasks(1))
    print(*executor._pool._processes, flush=True)
    input()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    worker = int(process.stdout.readline())
    process.kill()
    process.wait()
    for _ in range(100):
        if not Path(f"/proc/{worker}").exists():
            return
        time.sleep(0.05)
    os.kill(worker, 9)
    pytest.fail("the worker lives on")


def test_a_wrong_executor_is_told() -> None:
    with pytest.raises(UnknownNameError, match="no executor 'thread'; did you mean 'threads'"):
        find_executor("thread")
    with pytest.raises(ValueError, match="workers is 0; give at least 1"):
        find_executor("threads", 0)
    assert EXECUTORS.names() == ("processes", "ray", "threads")


def test_an_executor_of_the_user_s_is_found_by_name() -> None:
    found = find_executor("tests.simulator.study.test_store:Counting")
    assert isinstance(found.run, object)
