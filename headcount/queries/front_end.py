"""What API servers do in an answer, for its diagnostics."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from simulator.deployment import Deployment
from simulator.disaggregation import DisaggregatedDeployment
from simulator.engines.engines import VLLM, engine_of
from simulator.engines.tuning import API_SERVER
from simulator.study.bottleneck import API_SERVER_SHARE

if TYPE_CHECKING:
    from simulator.study.capacity_row import CapacityRow


def api_server_facts(rows: "Iterable[tuple[str, CapacityRow]]") -> dict[str, Any]:
    """Of rows by whose they are: where API servers are the bottleneck, and how many tokens/s each of them streams."""
    found = [(whose, row, row.plan) for whose, row in rows if row.plan is not None]
    return {
        "api_servers_bind": [(whose, plan) for whose, row, plan in found if API_SERVER in (row.binding or "")],
        "streamed": [
            (whose, row.point.mean("output_tokens_per_s") / num_api_servers(plan, row.replicas, row.disaggregated))
            for whose, row, plan in found
            if row.point is not None and engine_of(plan.args) == VLLM
        ],
    }


def api_server_facts_of_load(
    plan: Deployment,
    replicas: int,
    disaggregated: DisaggregatedDeployment | None,
    *,
    queue_share: float,
    tokens_per_s: float,
) -> dict[str, Any]:
    """The same of one load, which waits for API servers in a share of its TTFT and gets so many tokens/s."""
    count = num_api_servers(plan, replicas, disaggregated)
    return {
        "api_servers_bind": [("", plan)] if queue_share > API_SERVER_SHARE else [],
        "streamed": [("", tokens_per_s / count)] if engine_of(plan.args) == VLLM else [],
    }


def num_api_servers(plan: Deployment, replicas: int, disaggregated: DisaggregatedDeployment | None) -> int:
    """Those that stream answers."""
    return plan.num_api_servers(replicas if disaggregated is None else disaggregated.num_decode)
