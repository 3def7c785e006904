"""How a process of arrivals is read: `on-off:on=30s,off=2min`."""

from dataclasses import dataclass
from typing import Any

from msgspec import structs

from boundary.names import check_names, shortened
from boundary.schema import typed
from simulator.engines.values import Duration, Number, Share
from workloads.arrivals import PROCESSES, Arrivals


@dataclass(frozen=True)
class ArrivalProcess:
    """A process by name, with its parameters: `poisson`, `gamma:cv=2`, `flash-crowd:at=5min,factor=4,length=1min`."""

    name: str = "PROCESS"

    def read(self, given: Any) -> Arrivals:
        return read_arrivals(given)


def read_arrivals(given: Any) -> Arrivals:
    """One of PROCESSES. Raises ValueError for a name or a parameter that is none."""
    if not isinstance(given, str):  # read already
        return given  # type: ignore[no-any-return]
    name, _, rest = given.strip().lower().replace("_", "-").partition(":")
    check_names([name], PROCESSES, "process of arrivals")
    process = PROCESSES[name]
    known = {item.name.removesuffix("_s"): item.name for item in structs.fields(process)}
    found: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or key not in known:
            takes = f"{', '.join(known)}, such as {usage(name)}" if known else "no parameters"
            raise ValueError(f"'{shortened(part)}' is no parameter of {name}; it takes {takes}")
        found[known[key]] = _value(known[key], value)
    return typed(found, process, f"{name} (written {usage(name)})")  # type: ignore[no-any-return]


def _value(key: str, text: str) -> float | int:
    if key.endswith("_s"):
        return Duration().read(text)
    if key == "share":
        return Share().read(text)
    number = Number("a number").read(text)
    return int(number) if key == "clients" and number == int(number) else number


def usage(name: str) -> str:
    """How a process is written, with all of its parameters."""
    parts = []
    for item in structs.fields(PROCESSES[name]):
        key = item.name.removesuffix("_s")
        parts.append(f"{key}={'10%' if key == 'share' else '60s' if item.name.endswith('_s') else '2'}")
    return f"{name}:{','.join(parts)}" if parts else name
