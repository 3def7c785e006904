"""What stands before the engines: a router, a gateway's queue, tenants."""

from dataclasses import dataclass
from typing import Any, Final

from headcount.inputs.disaggregation import DisaggregatedPools, pools_field
from headcount.inputs.fields import Inputs, given
from simulator.engines.values import ROUTER, FilePath, Text, WholeNumber
from simulator.fleet.router import RouterFactory
from workloads.tenants import Given

ROUTERS: Final = (
    "Router: least-outstanding, session-affinity, round-robin, llm-d, cache-aware, dynamo-kv …, or your own as "
    "module:Name. Parameters follow a colon: NAME:key=value. See docs/reference/routers.md."
)
DEFAULT_ROUTER: Final = "least-outstanding; vllm-dp for one server with -dp"


def router_field(help: str = ROUTERS, *, default_text: str = DEFAULT_ROUTER, default: str | None = None) -> Any:
    """A router as a field; questions differ in the one that they take by default."""
    text = "" if default else default_text
    return given(ROUTER, help, heading="Scheduler", default=default, default_text=text)


def _flow_control() -> Any:
    return given(
        Text(names_code=True, takes_parameters=True),
        "Gateway queue while the fleet is saturated: utilization-detector or concurrency-detector. Parameters follow "
        "a colon: NAME:key=value. See docs/how-to/tenants-and-quotas.md.",
        heading="Gateway",
        default_text="none",
    )


def _tenants() -> Any:
    return given(
        FilePath(),
        "TOML file with a table [tenants.NAME] per tenant: share of the users, priority, rpm_limit, tpm_limit.",
        heading="Gateway",
    )


def _replicas() -> Any:
    return given(WholeNumber(1), "Engines behind the router.", heading="Deployment", default=1)


@dataclass(frozen=True, kw_only=True)
class RoutingInput(Inputs):
    """Which engine gets a request, and when."""

    router: str | RouterFactory | None = router_field()
    flow_control: str | None = _flow_control()
    tenants: Given | None = _tenants()


@dataclass(frozen=True, kw_only=True)
class DeployedInput(Inputs):
    """How requests are routed to a fixed number of replicas, in one pool or in two."""

    replicas: int = _replicas()
    router: str | RouterFactory | None = router_field()
    flow_control: str | None = _flow_control()
    tenants: Given | None = _tenants()
    pools: DisaggregatedPools | None = pools_field()


@dataclass(frozen=True, kw_only=True)
class ReplicasInput(Inputs):
    """How requests are routed to replicas that an autoscaler adds and removes."""

    replicas: int = _replicas()
    router: str | RouterFactory | None = router_field()
    flow_control: str | None = _flow_control()
    tenants: Given | None = _tenants()
