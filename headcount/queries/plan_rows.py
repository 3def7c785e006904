"""One fleet of a plan: its size, its cost, how it serves the users; what is found on the way, in a line."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from files.documents import Json
from headcount.queries.money import usd_per_month, usd_per_user_month
from headcount.text.units import counted
from headcount.text.words import AT_CONFIDENCE, layout_text, pools_text
from simulator.fleet.router import router_name
from simulator.study.fleets.layouts import Dropped, Layout, layout_kind
from simulator.study.fleets.nearest import Nearest
from simulator.study.fleets.screening import Screened
from simulator.study.fleets.search import FleetSearch
from simulator.study.fleets.sizing import Sized
from simulator.study.served import latency_summary

_AT_USERS_TO_SERVE = ("requests_per_s", "in_flight", "attainment", "kv_usage", "ttft_s", "tpot_s")
SIMULATED, SCALED, SCREENED, DROPPED = "simulated", "scaled", "screened", "dropped"


@dataclass(frozen=True, kw_only=True)
class FleetRow:
    """A layout as people read it; figures that a layout does not have are None."""

    gpu: str
    state: str  # simulated; scaled from fewer servers; screened: estimated alone; dropped
    tp: int | None
    pp: int | None = None
    dp: int | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    gpus: int | None = None  # spare servers included
    servers: int | None = None  # the same
    router: str | None = None  # of several engines
    spare_servers: int | None = None
    simulated_servers: int | None = None  # together
    users_low: int | None = None  # at 95 % confidence with the spare servers down
    users: int | None = None
    users_high: int | None = None
    precision: float | None = None
    replications: int | None = None
    usd_per_gpu_hour: float | None = None
    usd_per_hour: float | None = None
    usd_per_month: float | None = None
    usd_per_user_month: float | None = None
    requests_per_s: float | None = None  # this, and what follows: under the users to serve, spare servers down
    in_flight: float | None = None
    attainment: float | None = None
    kv_usage: float | None = None
    ttft_s: dict[str, float | None] | None = None
    tpot_s: dict[str, float | None] | None = None
    binding: str | None = None  # what keeps it from serving more
    step_time_error: float | None = None  # the share by which steps may take longer
    evidence: str | None = None  # confirmed; coarse: from few replications; None where it was not simulated
    reason: str | None = None  # why it was dropped, or is only screened
    serve_line: str | None = None
    prefill_tp: int | None = None  # of disaggregated prefill/decode: `tp` and `serve_line` are of decode engines
    prefill_servers: int | None = None  # of `servers`, spare ones included
    prefill_serve_line: str | None = None

    @property
    def kind(self) -> str:
        """The GPU, and whether it runs disaggregated prefill/decode."""
        return layout_kind(self.gpu, is_disaggregated=self.prefill_tp is not None)

    @property
    def gpus_text(self) -> str:
        """Such as `8 × h100-sxm`; with what tells it from another row of the GPU."""
        return layout_kind(f"{self.gpus:,} × {self.gpu}", is_disaggregated=self.prefill_tp is not None)

    @property
    def runs(self) -> bool:
        return self.servers is not None

    @property
    def layout(self) -> str:
        """Such as `2 × TP2, fp8 weights`."""
        size = layout_text(self.servers, self.tp or 1, self.dp or 1, self.pp or 1) if self.servers else f"TP{self.tp}"
        if self.prefill_tp is not None:
            counts = self.prefill_servers or 0, (self.servers or 0) - (self.prefill_servers or 0)
            size = pools_text(counts, (self.prefill_tp, self.tp or 1))
        weights = f", {self.quantization}" if self.quantization else ""
        return size + weights + (f", KV {self.kv_cache_dtype}" if self.kv_cache_dtype not in (None, "auto") else "")

    def to_json(self) -> Json:
        found = asdict(self)
        return found | {"at_users_to_serve": {name: found.pop(name) for name in _AT_USERS_TO_SERVE}}


def about(row: FleetRow) -> str:
    """The sign before figures that are not confirmed."""
    return "≈ " if row.state == SCREENED or row.evidence == "coarse" else ""


def rows_of(race: FleetSearch) -> list[FleetRow]:
    """The leading layout of each kind, cheapest first."""
    found = [_leader(race, kind) for kind in race.kinds]
    found.sort(key=lambda row: (row.usd_per_hour is None, row.usd_per_hour, -(row.users_low or 0)))
    missing = dict.fromkeys(each.kind for each in race.dropped if each.kind not in race.kinds)
    reasons = {name: [each for each in race.dropped if each.kind == name] for name in missing}
    return [*found, *(_dropped_row(max(each, key=lambda drop: drop.attainment)) for each in reasons.values())]


def every_row(race: FleetSearch) -> list[FleetRow]:
    """All layouts, the dropped ones last."""
    by_screened = {id(each.screened): each for each in race.sized}
    found = [
        sized_row(sized) if (sized := by_screened.get(id(each))) else _screened_row(each) for each in race.screened
    ]
    return [*found, *map(_dropped_row, race.dropped)]


def _leader(race: FleetSearch, kind: str) -> FleetRow:
    if (best := race.best_of(kind)) is not None:
        return sized_row(best)
    if failed := race.sized_of(kind):
        return sized_row(failed[0])
    return _screened_row(race.screened_of(kind)[0])


def sized_row(sized: Sized) -> FleetRow:
    """A layout that was simulated."""
    row, named = sized.row, _named(sized.layout, sized.bought[0])
    if not sized.servers:
        return FleetRow(**named, state=DROPPED, simulated_servers=row.replicas, reason=row.reason or no_number(sized))
    served = sized.served
    assert served is not None, "a fleet that serves the users was simulated under them"
    return FleetRow(
        **named,
        **_bought(sized, sized.layout.offer.usd_per_hour, sized.usd_per_hour, sized.users("users_low")),
        state=SIMULATED if sized.is_whole else SCALED,
        evidence="confirmed" if sized.is_confirmed else "coarse",
        gpus=sized.gpus,
        simulated_servers=row.replicas,
        users=sized.users("users"),
        users_high=sized.users("users_high"),
        precision=row.precision,
        replications=row.replications,
        requests_per_s=sized.mean("requests_per_s"),
        in_flight=sized.mean("in_flight"),
        attainment=served.attainment.mean,
        kv_usage=served.mean("kv_usage"),
        ttft_s=latency_summary(served, "ttft_s"),
        tpot_s=latency_summary(served, "tpot_s"),
        binding=row.binding,
        step_time_error=row.step_time_error,
    )


def _screened_row(each: Screened) -> FleetRow:
    return FleetRow(
        **_named(each.layout, each.bought[0]),
        **_bought(each, each.layout.offer.usd_per_hour, each.usd_per_hour, int(each.users_per_server * each.servers)),
        state=SCREENED,
        gpus=each.layout.gpus(*each.bought),
        binding=each.estimate.binding,
        reason="estimated, not simulated: another layout costs no more",
    )


def _dropped_row(each: Dropped) -> FleetRow:
    return FleetRow(
        gpu=each.gpu, state=DROPPED, tp=each.tp, quantization=each.quantization, kv_cache_dtype=each.kv_cache_dtype,
        reason=each.reason, prefill_tp=each.prefill_tp,
    )  # fmt: skip


def _named(layout: Layout, servers: int) -> Json:
    plan, disaggregated = layout.plan, layout.disaggregated
    several = servers * plan.data_parallel_size > 1
    prefill_line, line = disaggregated.serve_lines if disaggregated is not None else (None, plan.serve_line)
    return {
        "gpu": plan.gpu.name,
        "tp": plan.tensor_parallel_size,
        "pp": plan.pipeline_parallel_size,
        "dp": plan.data_parallel_size,
        "quantization": plan.given.quantization,
        "kv_cache_dtype": plan.given.kv_cache_dtype,
        "router": router_name(layout.router) if several else None,
        "serve_line": line,
        "prefill_tp": disaggregated.prefill.tensor_parallel_size if disaggregated is not None else None,
        "prefill_serve_line": prefill_line,
    }


def _bought(each: Screened | Sized, usd_per_gpu_hour: float, usd_per_hour: float, users_low: int) -> Json:
    month, (servers, prefill_servers) = usd_per_month(1, usd_per_hour), each.bought
    return {
        "servers": servers,
        "spare_servers": servers - each.servers,
        "prefill_servers": prefill_servers if each.layout.disaggregated is not None else None,
        "usd_per_gpu_hour": usd_per_gpu_hour,
        "usd_per_hour": usd_per_hour,
        "usd_per_month": month,
        "users_low": users_low,
        "usd_per_user_month": usd_per_user_month(month, users_low),
    }


def no_number(sized: Sized) -> str:
    """Why a fleet is no answer whose users at 95 % confidence are fewer than its servers."""
    row = sized.row
    less = "less than one user per server" if row.users_low else "no users"
    begins = f"the 90 % interval begins at {counted(row.users_low, 'user')}"
    return f"{less} {AT_CONFIDENCE} on {row.replicas} × TP{row.tp}: {begins}"


def gpus_text(row: FleetRow) -> str:
    """Such as `8 × h100-sxm`."""
    return f"{row.gpus:,} × {row.gpu}"


def server_text(layout: Layout, users: float) -> str:
    """About how many users one server of a layout serves."""
    return f"a server with {layout.plan.gpus} × {layout.offer.gpu.name}: about {users:,.0f} users (estimated)"


def nearest_text(each: Nearest) -> str:
    """A change under which a fleet serves the users."""
    row = sized_row(each.sized)
    quality = ", if its quality is acceptable" if "--quantization" in each.change else ""
    serves = f"{gpus_text(row)}, {row.layout}, serves them for ${row.usd_per_month:,.0f} a month"
    return f"with {each.change}: {serves}{quality}"


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
    behind = f" behind {row.router}" if row.router and row.servers != 1 else ""
    found = f"{gpus_text(row)}, {row.layout}{behind}: {counted(row.users_low or 0, 'user')} {AT_CONFIDENCE}"
    return f"{found}, ${row.usd_per_month:,.0f} a month{again}"


def _screening(race: FleetSearch) -> str:
    count = len(race.screened) + len(race.dropped)
    if not race.screened:
        return f"screened {counted(count, 'layout')}: none is estimated to serve the users"
    rows = [row for row in rows_of(race) if row.runs][:3]
    return f"screened {counted(count, 'layout')}; cheapest by estimate: {estimates_text(rows)}"


def estimates_text(rows: Sequence[FleetRow]) -> str:
    """What fleets are estimated to cost; with their layouts, where two would read alike."""
    gpus = [gpus_text(row) for row in rows]
    names = [f"{each}, {row.layout}" if gpus.count(each) > 1 else each for each, row in zip(gpus, rows, strict=True)]
    return ", ".join(f"{name} (≈ ${row.usd_per_month:,.0f} a month)" for name, row in zip(names, rows, strict=True))


def why_missed(race: FleetSearch) -> str:
    """Why no fleet serves the users."""
    last = [row for row in rows_of(race) if row.state == DROPPED and row.reason]
    return (
        f"no fleet serves these users within the SLO; {last[0].gpu}: {last[0].reason}" if last else "no fleet was tried"
    )
