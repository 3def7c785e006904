"""What a simulated load did, in words."""

from typing import TYPE_CHECKING

from files.names import one_line, shortened
from headcount.text.blocks import Column
from headcount.text.units import milliseconds, percent, seconds
from headcount.text.words import cancelled_text
from simulator.engines.tuning import API_SERVER
from simulator.study.bottleneck import API_SERVER_SHARE

if TYPE_CHECKING:
    from simulator.results import SimulationResult
    from simulator.stages import StageFigures
    from simulator.tenants import TenantFigures


TENANTS: "tuple[Column[TenantFigures], ...]" = (
    Column("tenant", lambda tenant: shortened(one_line(tenant.name)) or "without a name", is_text=True),
    Column("requests", lambda tenant: f"{tenant.num_requests:,}"),
    Column("rejected", lambda tenant: f"{tenant.num_rejected:,}"),
    Column("attainment", lambda tenant: "" if tenant.attainment is None else percent(tenant.attainment)),
    Column("TTFT p95", lambda tenant: seconds(tenant.ttft_p95_s)),
)
"""How each tenant was served."""


STAGES: "tuple[Column[StageFigures], ...]" = (
    Column("req/s asked", lambda stage: f"{stage.rate_per_s:g}"),
    Column("requests", lambda stage: f"{stage.num_requests:,}"),
    Column("req/s served", lambda stage: f"{stage.served_per_s:,.2f}"),
    Column("tokens/s", lambda stage: f"{stage.output_tokens_per_s:,.0f}"),
    Column("TTFT p50", lambda stage: seconds(stage.ttft_p50_s)),
    Column("TTFT p95", lambda stage: seconds(stage.ttft_p95_s)),
    Column("TPOT p50", lambda stage: milliseconds(stage.tpot_p50_s)),
    Column("TPOT p95", lambda stage: milliseconds(stage.tpot_p95_s)),
    Column("attainment", lambda stage: "–" if stage.attainment is None else percent(stage.attainment)),
)
"""How each stage was served."""


def rates(result: "SimulationResult", preempted: str) -> list[tuple[str, str]]:
    """What a run did, a name and a figure for each; `preempted` is the engine's word."""
    running, waiting = f"running {result.running_mean:,.1f}", f"waiting {result.waiting_mean:,.1f}"
    before = f", {API_SERVER} {result.api_server_mean:,.1f}" if result.api_server_queue_share > API_SERVER_SHARE else ""
    offloaded = "" if (host := result.host_hit_rate) is None else f" in GPU memory, {host:.1%} offloaded"
    ended = f"{result.num_finished:,} finished in {result.end_s - result.start_s:,.1f} s"
    rows = [
        ("requests", f"{result.num_requests:,} arrived, {ended}"),
        ("throughput", f"{result.requests_per_s:,.2f} requests/s, {result.output_tokens_per_s:,.0f} output tokens/s"),
        ("in flight", f"{result.in_flight_mean:,.1f} ({running}, {waiting}{before})"),
        ("KV cache", f"{result.kv_usage_mean:.1%} used on average, {result.kv_usage_max:.1%} at the peak"),
        ("prefix hits", f"{result.prefix_hit_rate:.1%} of prompt tokens{offloaded}"),
        (preempted, f"{result.num_preemptions:,}"),
    ]
    if result.held_mean is not None:
        rows.insert(3, ("at the gateway", f"{result.held_mean:,.1f} requests wait on average"))
    if result.cancelled is not None:
        rows.append(("cancelled", cancelled_text(result.cancelled)))
    return rows if result.users_mean is None else [("users", f"{result.users_mean:,.0f}"), *rows]
