"""The gateway's arrays before a run; without a queue and quotas they are empty."""

import math

import numpy as np
from numpy.typing import NDArray

from simulator.core.gateway import layout
from simulator.core.layout import NONE
from simulator.core.types import AnyArray
from simulator.fleet.fleet import Fleet
from simulator.fleet.flow_control import CONCURRENCY_DETECTOR, ROUND_ROBIN, FlowControl
from workloads.requests import RequestTable, Tenancy

MINUTE_S = 60.0


def gateway_arrays(fleet: Fleet, table: RequestTable) -> dict[str, AnyArray]:
    """By their names in `layout.Arrays`."""
    control, tenancy = fleet.flow_control, table.tenancy
    has_quotas = tenancy is not None and tenancy.has_quotas
    no_rows = np.zeros(0, np.int32)
    found = {
        "gateways": np.zeros(int(control is not None or has_quotas), layout.GATEWAY),
        "bands": np.zeros(0, layout.BAND),
        "flows": np.zeros(0, layout.FLOW),
        "flow_of": no_rows,
        "queued_s": np.zeros(0),
        "quotas": np.zeros(0, layout.QUOTA),
        "tenant_of": no_rows,
    }
    if has_quotas and tenancy is not None:
        found |= {"quotas": _quotas(tenancy), "tenant_of": tenancy.of}
    if control is not None:
        _fill(found["gateways"], control)
        found |= _queue(table)
    return found


def _fill(values: AnyArray, control: FlowControl) -> None:
    is_concurrency = control.detector == CONCURRENCY_DETECTOR
    values["detector"] = layout.CONCURRENCY if is_concurrency else layout.UTILIZATION
    values["round_robin"] = control.fairness_policy == ROUND_ROBIN
    for name in ("queue_depth_threshold", "kv_cache_util_threshold", "max_concurrency", "dispatch_every_s"):
        values[name] = getattr(control, name)
    values["max_requests"], values["band_max_requests"] = control.max_requests or 2**62, control.band_max_requests
    values["ttl_s"] = control.default_request_ttl_s or math.inf
    values["no_endpoint_ttl_s"] = control.no_endpoint_request_ttl_s or math.inf
    values["sweep_every_s"] = values["next_sweep_s"] = control.sweep_every_s


def _queue(table: RequestTable) -> dict[str, AnyArray]:
    """A flow for each tenant and priority, in bands of one priority, those that are served first before the others."""
    tenant = np.zeros(table.num_requests, np.int32) if table.tenancy is None else table.tenancy.of
    keys, flow_of = np.unique(np.stack([table.priority, tenant]), axis=1, return_inverse=True)
    _, first, band_of, count = np.unique(keys[0], return_index=True, return_inverse=True, return_counts=True)
    bands, flows = np.zeros(len(first), layout.BAND), np.zeros(keys.shape[1], layout.FLOW)
    bands["first_flow"], bands["num_flows"], bands["last_flow"] = first, count, NONE
    flows["band"], flows["head"], flows["tail"] = band_of, NONE, NONE
    queued_s = np.zeros(table.num_requests * table.num_attempts)
    return {"bands": bands, "flows": flows, "flow_of": flow_of.ravel().astype(np.int32), "queued_s": queued_s}


def _quotas(tenancy: Tenancy) -> NDArray[np.void]:
    """Buckets that hold a minute's quota, full at the start."""
    values = np.zeros(len(tenancy.tenants), layout.QUOTA)
    for what, name in (("requests", "rpm_limit"), ("tokens", "tpm_limit")):
        limits = np.array([getattr(tenant, name) for tenant in tenancy.tenants])
        values[what] = values[f"most_{what}"] = limits
        values[f"{what}_per_s"] = np.where(np.isfinite(limits), limits / MINUTE_S, 0.0)
    return values
