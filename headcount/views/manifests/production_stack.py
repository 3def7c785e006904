"""A fleet as values of vLLM's production-stack chart.

Source: vllm-project/production-stack a6c01db, helm/values.schema.json and helm/templates: what it makes of them.
"""

from typing import Final

from files.documents import Json, yaml_text
from files.errors import HeadcountError
from headcount.views.manifests.fleet import PORT, PROBE_EVERY_S, DeployedFleet
from headcount.views.manifests.folder import VALUES as FILE
from headcount.views.manifests.kubernetes import SHM_SIZE

ROUTING: Final = {
    None: {"routingLogic": "roundrobin"},  # before one server
    "round-robin": {"routingLogic": "roundrobin"},
    "session": {"routingLogic": "session", "sessionKey": "x-session-id"},
    "prefixaware": {"routingLogic": "prefixaware"},
}
"""By the routers here that are this chart's own; others with parameters, or of other gateways, are none of its."""
_TENSOR: Final = "--tensor-parallel-size"


def files(fleet: DeployedFleet) -> dict[str, str]:
    """Raises HeadcountError for SGLang, or a router that is not the chart's."""
    if fleet.is_sglang:
        raise HeadcountError(
            "production-stack starts vLLM alone; plan with --engine vllm, or choose --format kubernetes"
        )
    if fleet.router not in ROUTING:
        known = ", ".join(filter(None, ROUTING))
        raise HeadcountError(
            f"--format production-stack does not route as {fleet.router} does; plan with --router {known}, or choose "
            "a format that has this router: docs/how-to/deploy-a-plan.md"
        )
    head = (
        f"{fleet.title}\n# Install: helm repo add vllm https://vllm-project.github.io/production-stack\n"
        f"#          helm install {fleet.name} vllm/vllm-stack -f {FILE}\n"
        f"# {fleet.start_comment}\n"
        "# HF_TOKEN: gated models need it: kubectl create secret generic hf-token --from-literal=token=…\n"
        "# Each server loads the weights into its pod. To load them once, add to the model: pvcStorage: 100Gi and\n"
        "# pvcAccessMode: [ReadWriteMany].\n"
    )
    if fleet.router == "session":
        head += "# Clients send the name of their session in the header x-session-id.\n"
    values: Json = {
        "servingEngineSpec": {
            "containerPort": PORT,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 0, "maxUnavailable": max(fleet.spare, 1)},
            },
            "startupProbe": {
                "initialDelaySeconds": 15,
                "periodSeconds": PROBE_EVERY_S,
                "failureThreshold": fleet.start_checks,
                "httpGet": {"path": "/health", "port": PORT},
            },
            "modelSpec": [_model(fleet)],
        },
        "routerSpec": {"enableRouter": True, "replicaCount": 1, **ROUTING[fleet.router]},
    }
    return {FILE: head + yaml_text(values)}


def _model(fleet: DeployedFleet) -> Json:
    model, *flags = fleet.args
    config: Json = {"enablePrefixCaching": bool(getattr(fleet.plan.args, "enable_prefix_caching", True))}
    if _TENSOR in flags:  # with it the chart mounts shared memory
        place = flags.index(_TENSOR)
        config["tensorParallelSize"] = int(flags[place + 1])
        flags = [*flags[:place], *flags[place + 2 :]]
    given = [{"name": name, "value": value} for name, value in fleet.environment.items()]
    found: Json = {
        "name": fleet.name.removeprefix("vllm-"),
        "repository": fleet.repository,
        "tag": fleet.tag,
        "modelURL": model,
        "replicaCount": fleet.servers,
        "resources": {"limits": {fleet.gpu_resource: fleet.gpus}},
        "env": [*given, fleet.token_variable()],
        "shmSize": SHM_SIZE,
        "vllmConfig": {**config, "extraArgs": [flag for flag in flags if "enable-prefix-caching" not in flag]},
        "pdb": {"enabled": True, "maxUnavailable": max(fleet.spare, 1)},
    }
    if fleet.node_selector:
        terms = [{"key": key, "operator": "In", "values": [value]} for key, value in fleet.node_selector.items()]
        found["nodeSelectorTerms"] = [{"matchExpressions": terms}]
    return found
