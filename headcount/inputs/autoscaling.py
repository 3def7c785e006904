"""How a fleet changes while it serves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headcount.inputs.fields import Inputs, given
from simulator.engines.values import ROUTER, Duration, Listed, Switch, Text, WholeNumber
from simulator.fleet.events import Event
from simulator.fleet.scaler import ScalerFactory
from simulator.fleet.startup import Startup
from workloads.daily_profile import Profile

Autoscaler = str | ScalerFactory
_HEADING: Final = "Over time"


@dataclass(frozen=True, kw_only=True)
class AutoscalingInput(Inputs):
    """Who scales the fleet, what befalls it, and how the load changes over the day."""

    autoscaler: Autoscaler | Sequence[Autoscaler] | None = given(
        Listed(ROUTER),
        "Who scales the fleet: aibrix-apa, dynamo-planner, hpa, keda, knative-kpa, llm-d-wva, ray-serve, schedule, "
        "or one of your own; with parameters as in hpa:target_average_value=30. Several are compared.",
        heading=_HEADING,
    )
    min_replicas: int | None = given(WholeNumber(0), "The fewest.", heading=_HEADING, default_text="--replicas")
    max_replicas: int | None = given(WholeNumber(1), "The most.", heading=_HEADING, default_text="--replicas")
    initial_replicas: int | None = given(
        WholeNumber(0), "Ready at the start.", heading=_HEADING,
        default_text="the fewest; with a daily profile the most",
    )  # fmt: skip
    daily_profile: str | Profile | None = given(
        Text(),
        "Users come and go: 'day', as in RAGPulse, or requests by hour, 24 of a day or 168 of a week. --users are "
        "those of the busiest hour.",
        heading=_HEADING,
    )
    duration_s: float | None = given(
        Duration(), "For how long users come.", heading=_HEADING, default_text="1h, or the profile's days",
        flag="duration",
    )  # fmt: skip
    events: Sequence[str | Event] = given(
        Listed(Text()),
        "What befalls the fleet, and when: crash@10min, node@10min, zone@10min:replicas=2, update@2h; separated by "
        "commas.",
        heading=_HEADING,
        default=(),
        flag="event",
    )
    startup: str | Startup | None = given(
        Text(),
        "How a replica starts: weights-from=object-store, local-disk, nvme, nfs, fastsafetensors or peer-gpu; and "
        "stages that you know, such as node=0s,image=2s,weights=20s.",
        heading=_HEADING,
    )
    grace_period_s: float = given(
        Duration(), "For how long a replica that goes may finish its requests.", heading=_HEADING, default=30.0,
        default_text="30s", flag="grace-period",
    )  # fmt: skip
    loses_requests: bool = given(
        Switch(has_opposite=False), "Requests of a replica that fails are lost, not sent again.", heading=_HEADING,
        default=False, flag="lose-requests",
    )  # fmt: skip
