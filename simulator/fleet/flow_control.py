"""The queue of the gateway before the router, under llm-d's names: when requests wait there, and which goes on first.

Source: llm-d-router ebab687, pkg/epp/flowcontrol (registry/config.go, controller/config.go, controller/internal/
processor.go) and pkg/epp/framework/plugins/flowcontrol (saturationdetector/*, fairness/*, ordering/fcfs).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from files.names import UnknownNameError, nearest_hint
from simulator.fleet.router import Parameter, parameter_values

UTILIZATION_DETECTOR: Final = "utilization-detector"
CONCURRENCY_DETECTOR: Final = "concurrency-detector"
GLOBAL_STRICT: Final = "global-strict-fairness-policy"
ROUND_ROBIN: Final = "round-robin-fairness-policy"


@dataclass(frozen=True, kw_only=True)
class FlowControl:
    """Requests wait at the gateway while the fleet is saturated, in bands of one priority, a flow for each tenant.

    One request goes on whenever one arrives, and one every `dispatch_every_s`. What has waited too long is seen every
    `sweep_every_s`.
    """

    detector: str = UTILIZATION_DETECTOR
    queue_depth_threshold: float = 5
    kv_cache_util_threshold: float = 0.8
    refresh_metrics_s: float = 0.05
    max_concurrency: float = 100
    fairness_policy: str = GLOBAL_STRICT
    max_requests: float = 0
    band_max_requests: float = 5000
    default_request_ttl_s: float = 60
    no_endpoint_request_ttl_s: float = 60
    """While no replica is ready."""
    dispatch_every_s: float = 0.001
    sweep_every_s: float = 1.0

    @property
    def reads_metrics(self) -> bool:
        return self.detector == UTILIZATION_DETECTOR


_OURS: Final = FlowControl()
_QUEUE: Final = {
    "fairnessPolicyRef": Parameter(
        default=0, choices=(GLOBAL_STRICT, ROUND_ROBIN), what="whose turn it is among tenants of one priority"
    ),
    "maxRequests": Parameter(
        default=_OURS.max_requests, is_whole=True, what="requests that may wait, 0: no limit but the next"
    ),
    "defaultPriorityBand.maxRequests": Parameter(
        default=_OURS.band_max_requests, is_whole=True, least=1, what="requests of one priority that may wait"
    ),
    "defaultRequestTTL": Parameter(
        default=_OURS.default_request_ttl_s, what="seconds that a request may wait, 0: no limit"
    ),
    "noEndpointRequestTTL": Parameter(
        default=-1, least=-1, what="the same while no replica is ready, 0: no limit, -1: as defaultRequestTTL"
    ),
}
DETECTORS: Final[Mapping[str, Mapping[str, Parameter]]] = {
    UTILIZATION_DETECTOR: {
        "queueDepthThreshold": Parameter(
            default=_OURS.queue_depth_threshold, is_whole=True, least=1, what="waiting requests that saturate an engine"
        ),
        "kvCacheUtilThreshold": Parameter(
            default=_OURS.kv_cache_util_threshold, least=0.01, most=1, what="share of KV blocks that saturates one"
        ),
        **_QUEUE,
    },
    CONCURRENCY_DETECTOR: {
        "maxConcurrency": Parameter(
            default=_OURS.max_concurrency, is_whole=True, least=1, what="requests in flight that saturate an engine"
        ),
        **_QUEUE,
    },
}
"""What tells that the fleet is saturated, with the parameters of its queue."""
_FIELDS: Final = {
    "queueDepthThreshold": "queue_depth_threshold",
    "kvCacheUtilThreshold": "kv_cache_util_threshold",
    "maxConcurrency": "max_concurrency",
    "maxRequests": "max_requests",
    "defaultPriorityBand.maxRequests": "band_max_requests",
    "defaultRequestTTL": "default_request_ttl_s",
    "noEndpointRequestTTL": "no_endpoint_request_ttl_s",
}


def read_flow_control(given: str | None) -> FlowControl | None:
    """A detector's name with parameters, as `NAME:key=value,key=value`; None is no queue. Raises HeadcountError."""
    if given is None:
        return None
    name, _, text = given.partition(":")
    if name not in DETECTORS:
        raise UnknownNameError(f"no saturation detector '{name}'; {nearest_hint(name, DETECTORS)}")
    values = parameter_values(f"flow control {name!r}", text, DETECTORS[name])
    policies = DETECTORS[name]["fairnessPolicyRef"].choices
    values["noEndpointRequestTTL"] = (
        values["defaultRequestTTL"] if values["noEndpointRequestTTL"] < 0 else values["noEndpointRequestTTL"]
    )
    named = {_FIELDS[key]: value for key, value in values.items() if key in _FIELDS}
    return FlowControl(detector=name, fairness_policy=policies[int(values["fairnessPolicyRef"])], **named)
