"""A Grafana dashboard: the engine's own metrics beside what the plan simulated for its users, and the SLO's limits."""

import json
from collections.abc import Mapping
from typing import Final

from files.documents import Json
from headcount.views.manifests.engine_metrics import engine_metrics, of_model
from headcount.views.manifests.fleet import DeployedFleet

SCHEMA_VERSION: Final = 39  # of the classic model, which newer Grafanas import (grafana.com/docs, "JSON model")
WIDTH, HEIGHT = 12, 8  # of a panel: two in a row of Grafana's 24 columns


def dashboard(fleet: DeployedFleet) -> str:
    """JSON as Grafana imports it; the Prometheus is chosen there."""
    names, best, slo = engine_metrics(fleet), fleet.best, fleet.answer.race.question.slo
    of = of_model(fleet)

    def p95(name: str) -> str:
        return f"histogram_quantile(0.95, sum by (le) (rate({names[name]}_bucket{of}[5m])))"

    ttft, tpot = ((found or {}).get("p95") for found in (best.ttft_s, best.tpot_s))
    waiting = fleet.mean_of_server("waiting")
    panels = [
        _panel("TTFT, p95", "s", {"measured": p95("ttft"), "simulated": ttft, "limit": slo.ttft_s}),
        _panel("TPOT, p95", "s", {"measured": p95("tpot"), "simulated": tpot, "limit": slo.tpot_s}),
        _panel(
            "Requests per second",
            "reqps",
            {"measured": f"sum(rate({names['ttft']}_count{of}[5m]))", "planned for": best.requests_per_s},
        ),
        _panel(
            "Requests at a server",
            "short",
            {
                "running": f"avg({names['running']}{of})",
                "waiting": f"avg({names['waiting']}{of})",
                "running, simulated": fleet.mean_of_server("in_flight") - waiting,
                "waiting, simulated": waiting,
            },
        ),
        _panel("KV cache in use", "percentunit", {"measured": f"avg({names['kv']}{of})", "simulated": best.kv_usage}),
    ]
    for number, panel in enumerate(panels):
        place = {"x": number % 2 * WIDTH, "y": number // 2 * HEIGHT, "w": WIDTH, "h": HEIGHT}
        panel |= {"id": number + 1, "gridPos": place}
    found: Json = {
        "description": fleet.title.removeprefix("# "),
        "title": f"{fleet.name}: measured and planned",
        "uid": f"headcount-{fleet.name}"[:40],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [{"name": "prometheus", "type": "datasource", "query": "prometheus"}]},
        "panels": panels,
    }
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _panel(title: str, unit: str, lines: Mapping[str, str | float | None]) -> Json:
    """A line for each query; a figure is a level line. Without the figures that the plan does not have."""
    source = {"type": "prometheus", "uid": "${prometheus}"}
    known = {name: line for name, line in lines.items() if line is not None}
    targets = [
        {
            "refId": chr(ord("A") + number),
            "legendFormat": name,
            "expr": line if isinstance(line, str) else f"vector({line:.6g})",
        }
        for number, (name, line) in enumerate(known.items())
    ]
    level = [name for name, line in known.items() if not isinstance(line, str)]
    dashed = [
        {
            "matcher": {"id": "byName", "options": name},
            "properties": [{"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 8]}}],
        }
        for name in level
    ]
    return {
        "type": "timeseries",
        "title": title,
        "datasource": source,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": dashed},
    }
