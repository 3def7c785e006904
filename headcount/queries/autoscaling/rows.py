"""One fleet's figures, as JSON has them."""

from typing import TYPE_CHECKING, Final

from files.documents import Json
from simulator.fleet.scaler import Goal

if TYPE_CHECKING:
    from headcount.queries.autoscaling.over_time import FleetOverTime

DAY_S: Final = 86_400.0
HOUR_S: Final = 3600.0


def figures_of(
    fleet: "FleetOverTime", *, gpus: int, usd_per_gpu_hour: float | None, goal: Goal | None, target: float
) -> Json:
    """`gpus` are those of a replica, `target` is the asked attainment."""
    shown, found = fleet.shown, fleet.shown.result.to_json()
    gpu_hours = shown.held_s * gpus / HOUR_S
    usd = None if usd_per_gpu_hour is None else gpu_hours * usd_per_gpu_hour
    return {
        "fleet": fleet.name,
        "autoscaler": fleet.autoscaler,
        "aims_at": None if goal is None else goal.text,
        "attainment": shown.attainment,
        "meets_slo": shown.attainment >= target,
        "meets_slo_at_95_percent_confidence": fleet.is_sure,
        "tuned_from": fleet.tuned_from,
        "replicas_mean": shown.mean_replicas,
        "replicas_max": shown.most_replicas,
        "replicas_ready_min": shown.least_ready,
        "gpu_hours": gpu_hours,
        "usd": usd,
        "usd_per_day": None if usd is None else usd * DAY_S / shown.until_s,
        "usd_per_day_if_slow": None
        if usd is None or fleet.held_if_slow_s is None
        else usd * fleet.held_if_slow_s / shown.held_s * DAY_S / shown.until_s,
        **{name: found[name] for name in ("num_requests", "ttft_s", "tpot_s")},
        "requests_interrupted": shown.num_taken,
        "requests_lost": shown.num_lost,
        "requests_unanswered": shown.num_unanswered,
        "starts": vars(shown.starts),
        **({} if shown.result.cancelled is None else {"requests_rejected": shown.num_rejected}),
        **({} if shown.held_mean is None else {"held_mean": shown.held_mean}),
        **({"tenants": [tenant.to_json() for tenant in shown.tenants]} if shown.tenants else {}),
        "events": [
            {
                "event": each.event.kind,
                "time_s": each.event.time_s,
                "attainment_lowest_minute": each.lowest,
                "recovered_after_s": each.recovered_s,
            }
            for each in shown.recoveries
        ],
        "replicas_over_time": [
            {"time_s": count.time_s, "ready": count.ready, "starting": count.starting, "draining": count.draining}
            for count in shown.history
        ],
    }
