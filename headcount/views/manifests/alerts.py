"""Prometheus alerts whose thresholds are the plan's own figures and its SLO."""

from typing import Final

from files.documents import Json, yaml_text
from headcount.text.units import percent
from headcount.views.manifests.engine_metrics import engine_metrics, of_model
from headcount.views.manifests.fleet import DeployedFleet

BURN_RATE: Final = 6.0  # Site Reliability Workbook, ch. 5: 5 % of a 30-day budget in 6 hours
LONG, SHORT = "6h", "30m"  # its windows
_TTFT_BUCKETS_S: Final = {
    False: (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
            80.0, 160.0, 640.0, 2560.0),
    True: (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0),
}  # fmt: skip
"""Upper ends, by whether it is SGLang's: the same files."""


def alerts(fleet: DeployedFleet) -> str:
    """A rules file as Prometheus loads it."""
    rules = [_kv_usage(fleet), _queue(fleet), *_ttft(fleet)]
    head = f"{fleet.title}\n# Thresholds are the plan's figures under the users to serve, with the spare servers down."
    return f"{head}\n{yaml_text({'groups': [{'name': f'headcount-{fleet.name}', 'rules': rules}]})}"


def _kv_usage(fleet: DeployedFleet) -> Json:
    simulated = fleet.best.kv_usage or 0.0
    threshold = (1 + simulated) / 2
    return _rule(
        fleet,
        "KVUsageHigh",
        f"avg_over_time({engine_metrics(fleet)['kv']}{of_model(fleet)}[10m]) > {threshold:.3g}",
        "10m",
        summary="A server's KV cache is fuller than planned",
        description=f"Simulated mean: {percent(round(simulated, 3))}. The threshold is half-way from there to full.",
    )


def _queue(fleet: DeployedFleet) -> Json:
    simulated = fleet.mean_of_server("waiting")
    waiting = f"{engine_metrics(fleet)['waiting']}{of_model(fleet)}[10m]"
    return _rule(
        fleet,
        "QueueGrowing",
        f"avg_over_time({waiting}) > {max(2 * simulated, 1.0):.3g} and deriv({waiting}) > 0",
        "10m",
        summary="More requests wait at a server than planned, and their number grows",
        description=f"Simulated mean: {simulated:.2g} waiting and {fleet.mean_of_server('in_flight'):.3g} in flight at "
        "a server. The threshold is twice that, and 1 at least.",
    )


def _ttft(fleet: DeployedFleet) -> list[Json]:
    """Nothing without one limit on TTFT, or beyond the last bucket: Prometheus knows no prompt's own limit."""
    slo, name = fleet.answer.race.question.slo, engine_metrics(fleet)["ttft"]
    if slo.ttft_s is None or slo.ttft_token_s:
        return []
    limit_s = next((each for each in _TTFT_BUCKETS_S[fleet.is_sglang] if each >= slo.ttft_s * (1 - 1e-9)), None)
    if limit_s is None:
        return []
    budget = 1 - slo.attainment
    most = min(BURN_RATE * budget, (1 + budget) / 2)
    bounds = "|".join(dict.fromkeys((f"{limit_s:g}", str(limit_s))))
    counted_as = of_model(fleet, f'le=~"{bounds}"')
    missed = [
        f"(1 - sum(rate({name}_bucket{counted_as}[{window}])) / sum(rate({name}_count{of_model(fleet)}[{window}])) "
        f"> {most:.3g})"
        for window in (LONG, SHORT)
    ]
    nearest = "" if limit_s == slo.ttft_s else f"; the histogram's next bound, {limit_s:g} s, is counted"
    return [
        _rule(
            fleet,
            "TTFTBudgetBurn",
            " and ".join(missed),
            None,
            summary="Answers begin too late, too often",
            description=f"SLO: {slo}{nearest}. Error budget: {percent(round(budget, 4))} of requests; the alert is for "
            f"{percent(round(most, 3))} of them over {LONG} and over {SHORT}. Simulated: {_attained(fleet)} within "
            "all limits.",
        )
    ]


def _rule(fleet: DeployedFleet, name: str, expression: str, lasts: str | None, **annotations: str) -> Json:
    more = {"for": lasts} if lasts else {}
    found: Json = {"alert": name, "expr": expression, **more, "labels": {"severity": "warning"}}
    return found | {"annotations": {**annotations, "users_per_replica": fleet.users_text}}


def _attained(fleet: DeployedFleet) -> str:
    return percent(round(fleet.best.attainment or 0.0, 4))
