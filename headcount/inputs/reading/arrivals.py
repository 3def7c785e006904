"""How a process of arrivals is read: `on-off:on=30s,off=2min`."""

from dataclasses import dataclass
from typing import Any

from msgspec import structs

from files.names import check_names
from files.schema import typed
from simulator.engines.values import read_parameters
from workloads.arrivals import PROCESSES, Arrivals


@dataclass(frozen=True)
class ArrivalProcess:
    """A process by name, with its parameters: `poisson`, `gamma:cv=2`, `flash-crowd:at=5min,factor=4,length=1min`."""

    name: str = "PROCESS"

    def read(self, given: object) -> Arrivals:
        return read_arrivals(given)


def read_arrivals(given: Any) -> Arrivals:
    """One of PROCESSES. Raises HeadcountError for a name or a parameter that is none."""
    if not isinstance(given, str):  # read already
        return given  # type: ignore[no-any-return]
    name, _, rest = given.strip().lower().replace("_", "-").partition(":")
    check_names([name], PROCESSES, "arrival process")
    process = PROCESSES[name]
    found = read_parameters(rest, process, name, usage(name))
    return typed(found, process, f"{name} (written {usage(name)})")  # type: ignore[no-any-return]


def usage(name: str) -> str:
    """How a process is written, with all of its parameters."""
    parts = []
    for item in structs.fields(PROCESSES[name]):
        key = item.name.removesuffix("_s")
        parts.append(f"{key}={'10%' if key == 'share' else '60s' if item.name.endswith('_s') else '2'}")
    return f"{name}:{','.join(parts)}" if parts else name
