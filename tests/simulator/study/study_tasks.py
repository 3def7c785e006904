"""Simulations of milliseconds, and what each of them showed."""

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from simulator.fleet.fleet import Fleet
from simulator.study.loads import TraceLoad
from simulator.study.replication import Replication
from simulator.study.running.task import Task
from simulator.study.slo import SLO
from tests.simulator.fleet.test_pools import pool_of
from workloads.requests import independent_requests
from workloads.traces.trace import Trace


def small_task(**changes: Any) -> Task:
    """A trace of short requests on a small server; replication 0."""
    places = np.arange(40)
    table = independent_requests(arrival_s=places * 0.5, prompt_tokens=10 + places, output_tokens=2 + places % 3)
    trace = Trace(name="mine", format="csv", table=table, source="a test")
    known: dict[str, Any] = {
        "fleet": Fleet(pools=(pool_of(0.01, 100),)),
        "load": TraceLoad(trace=trace, think_time_s=1.0, seed=0),
        "size": 2.0,
        "slo": SLO(),
        "replication": 0,
    }
    return Task(**known | changes)


def small_tasks(count: int = 4) -> list[Task]:
    first = small_task()
    return [Task(**vars(first) | {"replication": number}) for number in range(count)]


def shown(value: Any) -> Any:
    """A value with all its types and bytes, to be compared."""
    if is_dataclass(value):
        return type(value), [(item.name, shown(getattr(value, item.name))) for item in fields(value)]
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    if isinstance(value, tuple | list):
        return type(value), [shown(each) for each in value]
    return type(value), repr(value)


def all_shown(replications: list[Replication]) -> list[Any]:
    return [shown(each) for each in replications]
