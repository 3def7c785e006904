"""What befalls a fleet: `crash@10min`, `zone@10min:replicas=4`, `update@2h`."""

from dataclasses import dataclass
from typing import Final, Literal

from files.errors import HeadcountError
from files.names import check_names, shortened
from files.schema import AtLeastOne, NotNegative, Strict, typed
from simulator.engines.values import Duration, read_parameters

Kind = Literal["crash", "node", "zone", "update"]
MEANS: Final[dict[str, str]] = {
    "crash": "a replica's process dies and starts again on its node",
    "node": "a replica is lost with its node, and starts again on a new one",
    "zone": "several replicas are lost with their nodes at once",
    "update": "every replica is drained and started again, one after the other",
}


class Extent(Strict, frozen=True, kw_only=True):
    """How much of the fleet an event takes."""

    replicas: AtLeastOne = 1
    restarts_after_s: NotNegative = 0.0
    """Until whoever watches notices, and a start begins; 0: at once."""


ONE: Final = Extent()


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that befalls the fleet at a time."""

    kind: Kind
    time_s: float
    extent: Extent = ONE

    @property
    def takes_node(self) -> bool:
        """Whether what a node keeps is lost."""
        return self.kind in ("node", "zone")

    def __str__(self) -> str:
        count = "" if self.extent.replicas == 1 else f" of {self.extent.replicas} replicas"
        return f"{self.kind}{count} at {self.time_s:,.0f} s"


def read_event(given: str | Event) -> Event:
    """`KIND@TIME`, with parameters after a colon. Raises HeadcountError."""
    if isinstance(given, Event):
        return given
    head, _, rest = given.strip().partition(":")
    kind, at, time = (part.strip() for part in head.partition("@"))
    if not at:
        raise HeadcountError(f"'{shortened(given)}' is no event; write what happens and when, such as crash@10min")
    check_names([kind], MEANS, "event")
    usage = f"{kind}@{time}:replicas=2"
    extent = typed(read_parameters(rest, Extent, f"the event {kind}", usage), Extent, f"event {shortened(given)}")
    if kind == "zone" and "replicas" not in rest:
        raise HeadcountError(
            f"'{shortened(given)}' does not say how many replicas are lost; write {kind}@{time}:replicas=2"
        )
    return Event(kind=kind, time_s=Duration().read(time), extent=extent)  # type: ignore[arg-type]
