"""What stands before the engines: a router, a gateway's queue, tenants."""

from dataclasses import dataclass
from typing import Any, Final

from headcount.inputs.disaggregation import DisaggregatedPools, pools_field
from headcount.inputs.fields import Inputs, given
from simulator.engines.values import ROUTER, FilePath, Kind, Text, WholeNumber
from simulator.fleet.router import RouterFactory
from workloads.tenants import Given

ROUTERS: Final = (
    "Router: least-outstanding, session-affinity, round-robin, llm-d, cache-aware, dynamo-kv …, or your own as "
    "module:Name. Parameters follow a colon: NAME:key=value. See docs/reference/routers.md."
)
DEFAULT_ROUTER: Final = "least-outstanding; vllm-dp for one server with -dp"
BETTER_ROUTER: Final = "the better of least-outstanding and session-affinity; vllm-dp for one server with -dp"


def router_field(
    help: str = ROUTERS, *, kind: Kind = ROUTER, default_text: str = DEFAULT_ROUTER, default: str | None = None
) -> Any:
    """A router as a field; questions differ in the one that they take by default."""
    text = "" if default else default_text
    return given(kind, help, heading="Scheduler", default=default, default_text=text)


@dataclass(frozen=True, kw_only=True)
class RoutingInput(Inputs, heading="Gateway"):
    """Which engine gets a request, and when."""

    router: str | RouterFactory | None = router_field(default_text=BETTER_ROUTER)
    flow_control: str | None = given(
        Text(names_code=True, takes_parameters=True),
        "Gateway queue while the fleet is saturated: utilization-detector or concurrency-detector. Parameters follow "
        "a colon: NAME:key=value. See docs/how-to/tenants-and-quotas.md.",
        default_text="none",
    )
    tenants: Given | None = given(
        FilePath(),
        "TOML file with a table [tenants.NAME] per tenant: share of the users, priority, rpm_limit, tpm_limit.",
    )


@dataclass(frozen=True, kw_only=True)
class ReplicasInput(RoutingInput):
    """How requests are routed to replicas, which an autoscaler may add and remove."""

    router: str | RouterFactory | None = router_field()
    replicas: int = given(WholeNumber(1), "Engines behind the router.", heading="Deployment", default=1)


@dataclass(frozen=True, kw_only=True)
class DeployedInput(ReplicasInput):
    """How requests are routed to a fixed number of replicas, in one pool or in two."""

    pools: DisaggregatedPools | None = pools_field()
