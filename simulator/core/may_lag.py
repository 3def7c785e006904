"""Whether engines may be behind the fleet's time, see `lag`."""

import math

from simulator.core import layout
from simulator.core.state import Arrays


def may_lag(arrays: Arrays, *, log_steps: bool) -> bool:
    """Whether nobody looks into engines but when requests come and end, and when samples are taken."""
    routing, pools = arrays.routing[0], arrays.pools
    is_looked_into = (
        log_steps
        or any(map(len, (arrays.clients, arrays.gateways, arrays.handovers)))
        or any(routing[name] for name in ("sees_metrics", "sees_tokens", "sees_cache"))
        or routing["next_scrape_s"] < math.inf
    )
    brings_a_token = (pools["engine"] == layout.VLLM) & (pools["takes_quiet_steps"] == 1)  # each step, at most
    is_alone = (pools["ranks"] == 1) & (pools["connector"] == 0) & (pools["max_loras"] == 0)
    return bool((brings_a_token & is_alone).all()) and not is_looked_into
