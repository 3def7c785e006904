"""A fleet as a DynamoGraphDeployment: Dynamo's frontend, which routes, and its vLLM workers.

Source: ai-dynamo/dynamo, examples/backends/vllm/deploy/v1beta1/agg_router.yaml; deploy/operator/api/v1beta1.
"""

import json
from typing import Final

from files.documents import Json
from files.errors import HeadcountError
from headcount.views.manifests import kubernetes
from headcount.views.manifests.fleet import DeployedFleet
from headcount.views.manifests.folder import DYNAMO as FILE
from simulator.engines.vllm.dynamo_images import MODULE, RUNTIME, VLLM_OF

_MODES: Final = {None: "round-robin", "round-robin": "round-robin", "dynamo-kv": "kv"}
"""DYN_ROUTER_MODE, by the routers here that are Dynamo's own with its defaults."""
_EVENTS: Final = {"publisher": "zmq", "topic": "kv-events", "endpoint": "tcp://*:20080", "enable_kv_cache_events": True}
"""What the KV router learns from which server holds which blocks."""


def files(fleet: DeployedFleet) -> dict[str, str]:
    """Raises HeadcountError for SGLang, AMD GPUs, other routers, and releases that no image of Dynamo's holds."""
    if fleet.is_sglang or fleet.is_amd:
        raise HeadcountError(
            "--format dynamo writes vLLM on NVIDIA GPUs alone; plan with --engine vllm and such GPUs, or choose "
            "--format kubernetes"
        )
    if fleet.router not in _MODES:
        known = " or ".join(filter(None, _MODES))
        raise HeadcountError(
            f"--format dynamo does not route as {fleet.router} does; plan with --router {known}, or choose a "
            "format that has this router: docs/how-to/deploy-a-plan.md"
        )
    tag = next((tag for tag, release in VLLM_OF.items() if f"v{release}" == fleet.tag), None)
    if tag is None:
        known = ", ".join(dict.fromkeys(VLLM_OF.values()))
        raise HeadcountError(
            f"no image of Dynamo's holds vLLM {fleet.tag.removeprefix('v')}; plan with --vllm-version of {known}, or "
            "choose --format kubernetes"
        )
    labels = {"nvidia.com/dynamo-graph-deployment-name": fleet.name, "nvidia.com/dynamo-component-type": "worker"}
    objects = [
        (
            f"Dynamo {tag} holds vLLM {VLLM_OF[tag]}. Its operator must be installed, and sets the probes.\n"
            f"Clients connect to the service {fleet.name}-frontend on port 8000.\n"
            "HF_TOKEN: gated models need it: kubectl create secret generic hf-token --from-literal=token=…",
            _graph(fleet, f"{RUNTIME}:{tag}"),
        ),
        (kubernetes.disruption_text(fleet), kubernetes.disruption_budget(fleet, labels)),
    ]
    return {FILE: kubernetes.text(fleet, FILE, objects)}


def _graph(fleet: DeployedFleet, image: str) -> Json:
    model, *flags = fleet.args
    mode = _MODES[fleet.router]
    events = ["--kv-events-config", json.dumps(_EVENTS, separators=(",", ":"))] if mode == "kv" else []
    given = [{"name": name, "value": value} for name, value in fleet.environment.items()]
    worker = {
        "name": "main",
        "image": image,
        "command": ["python3", "-m", MODULE],
        "args": ["--model", model, *flags, *events],
        "env": [*given, fleet.token_variable()],
        "resources": {"limits": {fleet.gpu_resource: str(fleet.gpus)}},
    }
    frontend = {"name": "main", "image": image, "env": [{"name": "DYN_ROUTER_MODE", "value": mode}]}
    pod: Json = {"nodeSelector": fleet.node_selector} if fleet.node_selector else {}
    parts = [
        _component("Frontend", "frontend", 1, {"containers": [frontend]}),
        _component("worker", "worker", fleet.servers, {**pod, "containers": [worker]}),
    ]
    return {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": fleet.name, "labels": {"app.kubernetes.io/name": fleet.name}},
        "spec": {"components": parts},
    }


def _component(name: str, kind: str, replicas: int, pod: Json) -> Json:
    return {"name": name, "type": kind, "replicas": replicas, "podTemplate": {"spec": pod}}
