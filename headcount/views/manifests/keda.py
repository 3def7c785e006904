"""An autoscaler before the planned servers: KEDA's ScaledObject on requests in flight, beside the Kubernetes objects.

Source: kedacore/keda 8b4f083, apis/keda/v1alpha1/scaledobject_types.go; pkg/scalers/prometheus_scaler.go.
"""

import math
from typing import Final

from files.documents import yaml_text
from files.errors import HeadcountError
from headcount.text.units import counted
from headcount.views.manifests import kubernetes
from headcount.views.manifests.engine_metrics import engine_metrics, of_model
from headcount.views.manifests.fleet import DeployedFleet
from headcount.views.manifests.folder import KEDA as FILE
from headcount.views.manifests.folder import KUBERNETES

SHORTEST_S, LONGEST_S = 300, 3600  # Kubernetes' default and largest window before servers are removed
PROMETHEUS: Final = "http://prometheus-server.monitoring.svc:80"  # as its chart names it; yours may differ


def files(fleet: DeployedFleet) -> dict[str, str]:
    """Raises HeadcountError for one server, which has no router, and as the Kubernetes objects do."""
    if fleet.router is None:
        raise HeadcountError(
            "--format keda adds servers, and this plan has one without a router before it; plan with --spare 1 and "
            "--router least-outstanding"
        )
    more = counted(fleet.most_servers - fleet.servers, "server")
    text = (
        f"{fleet.title}\n# Apply it with kubectl apply -f {KUBERNETES} -f {FILE}\n"
        "# minReplicaCount: the planned servers, the spare ones included; they stay.\n"
        f"# maxReplicaCount: {more} more, for twice the load; the router knows as many.\n"
        "# query: what runs and what waits. What runs alone stops growing at a full server, and what waits alone\n"
        f"# grows too late: a new server takes {fleet.cold_start_s:,.0f} s, as estimated.\n"
        f"# threshold: requests in flight under the users to serve, {fleet.sized.mean('in_flight'):.4g} as simulated, "
        "over all servers.\n"
        "# stabilizationWindowSeconds: no shorter than a start, so that no server goes that is needed before its like\n"
        "# would be back.\n"
        "# serverAddress: put your Prometheus.\n"
    )
    return kubernetes.files(fleet) | {FILE: text + yaml_text(_scaled_object(fleet))}


def _scaled_object(fleet: DeployedFleet) -> dict[str, object]:
    metrics, model = engine_metrics(fleet), of_model(fleet)
    window_s = min(max(SHORTEST_S, math.ceil(fleet.cold_start_s)), LONGEST_S)
    trigger = {
        "type": "prometheus",
        "metricType": "AverageValue",
        "metadata": {
            "serverAddress": PROMETHEUS,
            "query": f"sum({metrics['running']}{model}) + sum({metrics['waiting']}{model})",
            "threshold": f"{threshold(fleet):.4g}",
        },
    }
    behavior = {
        "scaleUp": {"stabilizationWindowSeconds": 0},
        "scaleDown": {"stabilizationWindowSeconds": window_s},
    }
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": fleet.name, "labels": {"app.kubernetes.io/name": fleet.name}},
        "spec": {
            "scaleTargetRef": {"name": fleet.name},
            "minReplicaCount": fleet.servers,
            "maxReplicaCount": fleet.most_servers,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior}},
            "triggers": [trigger],
        },
    }


def threshold(fleet: DeployedFleet) -> float:
    """Requests in flight of a server at which the planned servers, the spare ones included, are the right number."""
    return max(fleet.sized.mean("in_flight") / fleet.servers, 0.1)
