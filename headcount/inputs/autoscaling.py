"""How a fleet changes while it serves."""

from collections.abc import Sequence
from dataclasses import dataclass

from headcount.inputs.fields import Inputs, given
from simulator.engines.values import ROUTER, Duration, Listed, Switch, Text, WholeNumber
from simulator.fleet.events import Event
from simulator.fleet.scaler import ScalerFactory
from simulator.fleet.startup import Startup
from workloads.daily_profile import Profile, read_profile

Autoscaler = str | ScalerFactory


@dataclass(frozen=True, kw_only=True)
class AutoscalingInput(Inputs, heading="Autoscaling and failures"):
    """Who scales the fleet, what befalls it, and how the load changes over the day."""

    autoscaler: Autoscaler | Sequence[Autoscaler] | None = given(
        Listed(ROUTER),
        "Autoscaler: aibrix-apa, dynamo-planner, hpa, keda, knative-kpa, llm-d-wva, ray-serve, schedule or your own. "
        "Parameters follow a colon: hpa:target_average_value=30. A list compares several.",
    )
    min_replicas: int | None = given(WholeNumber(0), "Fewest replicas.", default_text="--replicas")
    max_replicas: int | None = given(WholeNumber(1), "Most replicas.", default_text="--replicas")
    initial_replicas: int | None = given(
        WholeNumber(0),
        "Replicas that are ready at the start.",
        default_text="--min-replicas; with a daily profile --max-replicas",
    )
    daily_profile: str | Profile | None = given(
        Text(),
        "Load over time: day (RAGPulse's mean day), week (RAGPulse's week by hour), or requests by hour, 24 for a day "
        "or 168 for a week. --users is the busiest hour's.",
    )
    duration_s: float | None = given(
        Duration(), "Length of the run.", default_text="1h, or the profile's days", flag="duration"
    )
    events: Sequence[str | Event] = given(
        Listed(Text()),
        "Failures and updates: crash@10min, node@10min, zone@10min:replicas=2, update@2h. Separate several by commas.",
        default=(),
        flag="event",
    )
    startup: str | Startup | None = given(
        Text(),
        "Start-up of a replica: weights-from=object-store, local-disk, nvme, nfs, fastsafetensors or peer-gpu. "
        "Stages that you have measured: node=0s,image=2s,weights=20s.",
    )
    grace_period_s: float = given(
        Duration(),
        "Time that a stopping replica has to finish its requests.",
        default=30.0,
        default_text="30s",
        flag="grace-period",
    )
    loses_requests: bool = given(
        Switch(has_opposite=False),
        "Drop the requests of a failed replica instead of retrying them.",
        default=False,
        flag="lose-requests",
    )

    @property
    def profile(self) -> Profile | None:
        """The day or week, read. Raises HeadcountError for what is none."""
        given = self.daily_profile
        return read_profile(given) if isinstance(given, str) else given
