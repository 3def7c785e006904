"""The queue of the gateway before the router, under llm-d's names: when requests wait there, and which goes on first.

Source: llm-d-router ebab687, pkg/epp/flowcontrol (registry/config.go, controller/config.go, controller/internal/
processor.go) and pkg/epp/framework/plugins/flowcontrol (saturationdetector/*, fairness/*, ordering/fcfs).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from boundary.names import UnknownNameError, nearest_hint
from simulator.fleet.router import Parameter, parameter_values

UTILIZATION_DETECTOR: Final = "utilization-detector"
CONCURRENCY_DETECTOR: Final = "concurrency-detector"
GLOBAL_STRICT: Final = "global-strict-fairness-policy"
ROUND_ROBIN: Final = "round-robin-fairness-policy"
FAIRNESS_POLICIES: Final = (GLOBAL_STRICT, ROUND_ROBIN)


@dataclass(frozen=True, kw_only=True)
class FlowControl:
    """Requests wait at the gateway while the fleet is saturated, in bands of one priority, a flow for each tenant.

    One request goes on whenever one arrives, and one every `dispatch_every_s`. What has waited too long is seen every
    `sweep_every_s`.
    """

    detector: str = UTILIZATION_DETECTOR
    queue_depth_threshold: float = 5.0
    kv_cache_util_threshold: float = 0.8
    refresh_metrics_s: float = 0.05
    max_concurrency: float = 100.0
    fairness_policy: str = GLOBAL_STRICT
    max_requests: int = 0
    band_max_requests: int = 5000
    default_request_ttl_s: float = 60.0
    dispatch_every_s: float = 0.001
    sweep_every_s: float = 1.0

    @property
    def reads_metrics(self) -> bool:
        return self.detector == UTILIZATION_DETECTOR


_QUEUE: Final = {
    "fairnessPolicyRef": Parameter(
        default=0, choices=FAIRNESS_POLICIES, what="whose turn it is among tenants of one priority"
    ),
    "maxRequests": Parameter(default=0, what="requests that may wait, 0: no limit but the next"),
    "defaultPriorityBand.maxRequests": Parameter(default=5000, least=1, what="requests of one priority that may wait"),
    "defaultRequestTTL": Parameter(default=60, what="seconds that a request may wait, 0: for ever"),
}
DETECTORS: Final[Mapping[str, Mapping[str, Parameter]]] = {
    UTILIZATION_DETECTOR: {
        "queueDepthThreshold": Parameter(default=5, least=1, what="waiting requests that saturate an engine"),
        "kvCacheUtilThreshold": Parameter(default=0.8, least=0.01, most=1, what="share of KV blocks that does"),
        "refresh_metrics_interval_ms": Parameter(
            default=50, least=1, most=60_000, what="milliseconds between two reads, where the router reads no metrics"
        ),
        **_QUEUE,
    },
    CONCURRENCY_DETECTOR: {
        "maxConcurrency": Parameter(default=100, least=1, what="requests in flight that saturate an engine"),
        **_QUEUE,
    },
}
"""What tells that the fleet is saturated, with the parameters of its queue."""


def read_flow_control(given: str | None) -> FlowControl | None:
    """A detector's name with parameters, as `NAME:key=value,key=value`; None is no queue. Raises ValueError."""
    if given is None:
        return None
    name, _, text = given.partition(":")
    if name not in DETECTORS:
        raise UnknownNameError(f"no saturation detector '{name}'; {nearest_hint(name, DETECTORS)}")
    values = parameter_values(f"flow control {name!r}", text, DETECTORS[name])
    return FlowControl(
        detector=name,
        queue_depth_threshold=values.get("queueDepthThreshold", 5.0),
        kv_cache_util_threshold=values.get("kvCacheUtilThreshold", 0.8),
        refresh_metrics_s=values.get("refresh_metrics_interval_ms", 50.0) / 1000,
        max_concurrency=values.get("maxConcurrency", 100.0),
        fairness_policy=FAIRNESS_POLICIES[int(values["fairnessPolicyRef"])],
        max_requests=int(values["maxRequests"]),
        band_max_requests=int(values["defaultPriorityBand.maxRequests"]),
        default_request_ttl_s=values["defaultRequestTTL"],
    )
