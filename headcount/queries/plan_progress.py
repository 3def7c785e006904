"""What a plan finds on its way, in a line."""

from headcount.queries.plan_rows import DROPPED, FleetRow, rows_of, sized_row
from headcount.text.units import counted
from headcount.text.words import AT_CONFIDENCE
from simulator.study.fleets.layouts import Layout
from simulator.study.fleets.nearest import Nearest
from simulator.study.fleets.search import FleetSearch


def gpus_text(row: FleetRow) -> str:
    """Such as `8 × h100-sxm`."""
    return f"{row.gpus:,} × {row.gpu}"


def server_text(layout: Layout, users: float) -> str:
    """About how many users one server of a layout serves."""
    return f"a server with {layout.plan.gpus} × {layout.offer.gpu.name}: about {users:,.0f} users (estimated)"


def nearest_text(each: Nearest) -> str:
    """A change under which a fleet serves the users."""
    row = sized_row(each.sized)
    return f"with {each.change}: {gpus_text(row)}, {row.layout}, serves them for ${row.usd_per_month:,.0f} a month"


def found_line(race: FleetSearch, before: FleetSearch | None = None) -> str:
    """What was found just now; of a fleet that was found `before` with fewer replications, that it is confirmed."""
    if race.is_over:
        return ""
    if not race.sized:
        return _screening(race)
    row = next(row for row in rows_of(race.only(race.sized[-1])))
    if not row.runs:
        return f"{row.gpu}, {row.layout}: {row.reason}"
    again = ", confirmed with more replications" if before and before.is_sized(race.sized[-1].screened) else ""
    found = f"{gpus_text(row)}, {row.layout}: {counted(row.users_low or 0, 'user')} {AT_CONFIDENCE}"
    return f"{found}, ${row.usd_per_month:,.0f} a month{again}"


def _screening(race: FleetSearch) -> str:
    count = len(race.screened) + len(race.dropped)
    if not race.screened:
        return f"screened {counted(count, 'layout')}: none is estimated to serve the users"
    rows = [row for row in rows_of(race) if row.runs][:3]
    named = ", ".join(f"{gpus_text(row)} (≈ ${row.usd_per_month:,.0f} a month)" for row in rows)
    return f"screened {counted(count, 'layout')}; cheapest by estimate: {named}"


def why_missed(race: FleetSearch) -> str:
    """Why no fleet serves the users."""
    last = [row for row in rows_of(race) if row.state == DROPPED and row.reason]
    return (
        f"no fleet serves these users within the SLO; {last[0].gpu}: {last[0].reason}" if last else "no fleet was tried"
    )
