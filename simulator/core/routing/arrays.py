"""The router's arrays before a run; what it does not see is empty."""

import math

import numpy as np
from numpy.typing import NDArray

from simulator.core.layout import NONE
from simulator.core.routing import layout
from simulator.core.types import AnyArray
from simulator.fleet.fleet import Fleet
from simulator.fleet.router import FoundRouter
from simulator.fleet.view import ACTIVE, MATCHES, METRICS, TOKENS
from workloads.requests import RequestTable


def has_index(router: FoundRouter) -> bool:
    """Whether it looks up prefixes that it sent before."""
    return _sees(router, MATCHES + ACTIVE)


def routing_arrays(router: FoundRouter, table: RequestTable, fleet: Fleet, contents: int) -> dict[str, AnyArray]:
    """By their names in `layout.Arrays`; `contents` is one more than the largest content id, or 0 without an index."""
    engines = fleet.num_engines
    lists = 1 if router.upkeep.of_all_engines else engines
    attempts = table.num_requests * table.num_attempts * fleet.num_legs
    decider = fleet.handover.decider
    counts_tokens = _sees(router, TOKENS) or (decider is not None and decider.rule.sees_load)
    return {
        "routing": _routing(router, fleet, counts_tokens=counts_tokens),
        "engine_views": _engine_views(fleet),
        "request_view": np.zeros(1, layout.REQUEST_VIEW),
        "known_prefixes": np.zeros((contents, engines), layout.KNOWN_PREFIX),
        "matching": np.zeros(engines if _sees(router, MATCHES) else 0, np.int32),
        "num_holding": np.zeros(contents if _sees(router, ACTIVE) else 0, np.int32),
        "runs": np.zeros((contents, lists), layout.RUN),
        "run_lists": _run_lists(lists),
        "sessions": table.first_turns().astype(np.int32) if "session" in router.sees else np.zeros(0, np.int32),
        "prefill_charges": np.zeros(attempts if counts_tokens else 0, np.int32),
        "router_memory": np.zeros(router.memory_words(engines), np.int64),
        "router_parameters": np.array(list(router.parameters.values()) or [0.0]),
    }


def _routing(router: FoundRouter, fleet: Fleet, *, counts_tokens: bool) -> NDArray[np.void]:
    """The gateway reads the metrics that the router reads; where it reads none, at times of its own."""
    values, scrape_every_s = np.zeros(1, layout.ROUTING), router.upkeep.scrape_every_s
    control, sees_metrics = fleet.flow_control, _sees(router, METRICS)
    if control is not None and control.reads_metrics and not sees_metrics:
        scrape_every_s = control.refresh_metrics_s
    values["sees_metrics"], values["sees_tokens"] = _sees(router, METRICS), counts_tokens
    values["sees_active"], values["held_chunk_tokens"] = _sees(router, ACTIVE), router.upkeep.chunk_tokens
    values["sees_cache"] = _sees(router, ("cached_tokens",))
    if _sees(router, MATCHES):
        values["chunk_tokens"], values["lifetime_s"] = router.upkeep.chunk_tokens, router.upkeep.lifetime_s
        values["most_chunks"] = min(router.upkeep.most_chunks, 2**62)
    values["scrape_every_s"] = values["next_scrape_s"] = scrape_every_s
    values["only_changes"] = router.upkeep.only_changes
    if scrape_every_s == 0.0:
        values["next_scrape_s"] = math.inf
    return values


def _sees(router: FoundRouter, names: tuple[str, ...]) -> bool:
    return not set(names).isdisjoint(router.sees)


def _engine_views(fleet: Fleet) -> NDArray[np.void]:
    values = np.zeros(fleet.num_engines, layout.ENGINE_VIEW)
    values["routable"] = 1
    values["weight"] = np.repeat([pool.weight for pool in fleet.pools], [pool.num_engines for pool in fleet.pools])
    return values


def _run_lists(count: int) -> NDArray[np.void]:
    values = np.zeros(count, layout.RUN_LIST)
    values["newest"] = values["oldest"] = NONE
    return values
