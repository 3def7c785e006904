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
_HEADING: Final = "Autoscaling and failures"


@dataclass(frozen=True, kw_only=True)
class AutoscalingInput(Inputs):
    """Who scales the fleet, what befalls it, and how the load changes over the day."""

    autoscaler: Autoscaler | Sequence[Autoscaler] | None = given(
        Listed(ROUTER),
        "Autoscaler: aibrix-apa, dynamo-planner, hpa, keda, knative-kpa, llm-d-wva, ray-serve, schedule or your own. "
        "Parameters follow a colon: hpa:target_average_value=30. A list compares several.",
        heading=_HEADING,
    )
    min_replicas: int | None = given(WholeNumber(0), "Fewest replicas.", heading=_HEADING, default_text="--replicas")
    max_replicas: int | None = given(WholeNumber(1), "Most replicas.", heading=_HEADING, default_text="--replicas")
    initial_replicas: int | None = given(
        WholeNumber(0), "Replicas that are ready at the start.", heading=_HEADING,
        default_text="--min-replicas; with a daily profile --max-replicas",
    )  # fmt: skip
    daily_profile: str | Profile | None = given(
        Text(),
        "Daily load profile: 'day' (RAGPulse's), or requests by hour, 24 for a day or 168 for a week. --users is the "
        "busiest hour's.",
        heading=_HEADING,
    )
    duration_s: float | None = given(
        Duration(), "Length of the run.", heading=_HEADING, default_text="1h, or the profile's days",
        flag="duration",
    )  # fmt: skip
    events: Sequence[str | Event] = given(
        Listed(Text()),
        "Failures and updates: crash@10min, node@10min, zone@10min:replicas=2, update@2h. Separate several by commas.",
        heading=_HEADING,
        default=(),
        flag="event",
    )
    startup: str | Startup | None = given(
        Text(),
        "Start-up of a replica: weights-from=object-store, local-disk, nvme, nfs, fastsafetensors or peer-gpu. "
        "Stages that you have measured: node=0s,image=2s,weights=20s.",
        heading=_HEADING,
    )
    grace_period_s: float = given(
        Duration(), "Time that a stopping replica has to finish its requests.", heading=_HEADING, default=30.0,
        default_text="30s", flag="grace-period",
    )  # fmt: skip
    loses_requests: bool = given(
        Switch(has_opposite=False), "Drop the requests of a failed replica instead of retrying them.", heading=_HEADING,
        default=False, flag="lose-requests",
    )  # fmt: skip
