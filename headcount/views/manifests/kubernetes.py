"""A fleet as Kubernetes objects: engines, the router, services, a disruption budget."""

from collections.abc import Iterable, Iterator
from typing import Final

from files.documents import Json, yaml_text
from headcount.text.units import counted
from headcount.views.manifests.fleet import MODEL_CACHE, PORT, PROBE_EVERY_S, DeployedFleet
from headcount.views.manifests.folder import HAPROXY as CONFIG
from headcount.views.manifests.folder import KUBERNETES as FILE
from headcount.views.manifests.haproxy import FOLDER, HEALTH_PORT, IMAGE, check_haproxy, config

SHM_SIZE: Final = "16Gi"  # a limit, not a reservation: NCCL and the workers' queues use what they need

Objects = Iterator[tuple[str, Json]]
"""Each with the comment above it."""


def files(fleet: DeployedFleet) -> dict[str, str]:
    """Raises HeadcountError for a router that is not HAProxy's."""
    check_haproxy(fleet.router, "kubernetes")
    return {FILE: text(fleet, FILE, [*servers(fleet), *_clients(fleet)])}


def text(fleet: DeployedFleet, name: str, objects: Iterable[tuple[str, Json]]) -> str:
    """The objects as a file of this name."""
    parts = [f"{_comment(comment)}{yaml_text(found)}" for comment, found in objects]
    return f"{fleet.title}\n# Apply it with kubectl apply -f {name}\n" + "---\n".join(parts)


def servers(fleet: DeployedFleet) -> Objects:
    """The Deployment of the servers, and how many of them may be drained."""
    needed, spare = counted(fleet.needed, "server"), counted(fleet.spare, "spare server")
    yield (
        f"replicas: {needed} and {spare}.\n"
        f"{fleet.start_comment}\n"
        "model-cache: each server loads the weights into storage of its pod. To load them once, put the name of a\n"
        "ReadWriteMany claim: persistentVolumeClaim: {claimName: NAME} instead of emptyDir.\n"
        "HF_TOKEN: gated models need it: kubectl create secret generic hf-token --from-literal=token=…",
        _engines(fleet),
    )
    labels = {"app.kubernetes.io/name": fleet.name}
    yield disruption_text(fleet), disruption_budget(fleet, labels)


def service_of_servers(fleet: DeployedFleet) -> tuple[str, Json]:
    """Where clients connect to one server."""
    return "", _service(fleet.name, fleet.name, PORT)


def _clients(fleet: DeployedFleet) -> Objects:
    """The router if there is one, and where clients connect."""
    if fleet.router is None:
        yield service_of_servers(fleet)
        return
    yield (
        "No address of its own: its name has the addresses of all servers that are ready.",
        _service(_engines_name(fleet), fleet.name, PORT, clusterIP="None"),
    )
    yield "", _router_config(fleet)
    yield (
        "One router: it counts requests and remembers sessions by itself, so that two would each see half of them.",
        _router(fleet),
    )
    yield "Where clients connect.", _service(fleet.name, _router_name(fleet), PORT)


def _engines(fleet: DeployedFleet) -> Json:
    labels = {"app.kubernetes.io/name": fleet.name}
    pod: Json = {"enableServiceLinks": False}  # else Kubernetes sets VLLM_… variables of its services
    if fleet.node_selector:
        pod["nodeSelector"] = fleet.node_selector
    volumes: list[Json] = [{"name": "model-cache", "emptyDir": {}}]
    if fleet.shm:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": SHM_SIZE}})
    template: Json = {
        "metadata": {"labels": labels, "annotations": _scraped()},
        "spec": {**pod, "containers": [_container(fleet)], "volumes": volumes},
    }
    spec: Json = {
        "replicas": fleet.servers,
        "selector": {"matchLabels": labels},
        "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": max(fleet.spare, 1)}},
        "template": template,
    }
    return _object("apps/v1", "Deployment", fleet.name, labels) | {"spec": spec}


def _container(fleet: DeployedFleet) -> Json:
    mounts = [{"name": "model-cache", "mountPath": MODEL_CACHE}]
    mounts += [{"name": "shm", "mountPath": "/dev/shm"}] if fleet.shm else []
    given = [{"name": name, "value": value} for name, value in fleet.environment.items()]
    return {
        "name": "engine",
        "image": fleet.image,
        "command": fleet.command,
        "args": fleet.args,
        "env": [*given, {"name": "HF_HOME", "value": MODEL_CACHE}, fleet.token_variable()],
        "ports": [{"name": "http", "containerPort": PORT}],
        "resources": {"limits": {fleet.gpu_resource: fleet.gpus}},
        "startupProbe": _probe(fleet.start_checks),
        "readinessProbe": _probe(3),
        "livenessProbe": _probe(6),
        "volumeMounts": mounts,
    }


def _probe(failures: int, port: int | str = "http") -> Json:
    get = {"path": "/health", "port": port}
    return {"httpGet": get, "periodSeconds": PROBE_EVERY_S, "timeoutSeconds": 5, "failureThreshold": failures}


def _scraped() -> dict[str, str]:
    return {"prometheus.io/scrape": "true", "prometheus.io/path": "/metrics", "prometheus.io/port": str(PORT)}


def disruption_text(fleet: DeployedFleet) -> str:
    """What the budget's comment says."""
    if fleet.spare:
        are = "is" if fleet.spare == 1 else "are"
        return f"The users are served within the SLO while {counted(fleet.spare, 'server')} {are} down."
    return (
        "No server is spare: while one is drained, the others do not serve all users within the SLO.\n"
        "0 here would keep nodes from being drained at all."
    )


def disruption_budget(fleet: DeployedFleet, labels: Json) -> Json:
    """For the pods of these labels."""
    spec = {"maxUnavailable": max(fleet.spare, 1), "selector": {"matchLabels": labels}}
    return _object("policy/v1", "PodDisruptionBudget", fleet.name, labels) | {"spec": spec}


def _service(name: str, selects: str, port: int, **more: str) -> Json:
    labels = {"app.kubernetes.io/name": selects}
    ports = [{"name": "http", "port": port, "targetPort": "http"}]
    return _object("v1", "Service", name, labels) | {"spec": {**more, "selector": labels, "ports": ports}}


def _router_config(fleet: DeployedFleet) -> Json:
    address = f'"{_engines_name(fleet)}.${{NAMESPACE}}.svc.cluster.local:{PORT}"'
    text = config(fleet, [f"server-template engine- {fleet.most_servers} {address}"], first_address="none")
    name = _router_name(fleet)
    return _object("v1", "ConfigMap", name, {"app.kubernetes.io/name": name}) | {"data": {CONFIG: text}}


def _router(fleet: DeployedFleet) -> Json:
    name = _router_name(fleet)
    labels = {"app.kubernetes.io/name": name}
    container = {
        "name": "haproxy",
        "image": IMAGE,
        "env": [{"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
        "ports": [{"name": "http", "containerPort": PORT}, {"name": "health", "containerPort": HEALTH_PORT}],
        "readinessProbe": _probe(3, "health"),
        "livenessProbe": _probe(6, "health"),
        "volumeMounts": [{"name": "config", "mountPath": FOLDER}],
    }
    pod = {"containers": [container], "volumes": [{"name": "config", "configMap": {"name": name}}]}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return _object("apps/v1", "Deployment", name, labels) | {"spec": spec}


def _object(version: str, kind: str, name: str, labels: Json) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labels}}


def _engines_name(fleet: DeployedFleet) -> str:
    return f"{fleet.name}-engines"


def _router_name(fleet: DeployedFleet) -> str:
    return f"{fleet.name}-router"


def _comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in text.splitlines())
