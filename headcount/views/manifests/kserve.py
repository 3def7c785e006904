"""A fleet as KServe's LLMInferenceService.

Source: kserve/kserve aaac4e2: config/crd/full/llmisvc; config/llmisvcconfig/config-llm-template.yaml, which starts
vLLM; pkg/controller/v1alpha2/llmisvc/scheduler.go, which names the plug-ins of llm-d's endpoint picker.
"""

import shlex
from typing import Final

from files.documents import Json, yaml_text
from files.errors import HeadcountError
from headcount.views.manifests.fleet import PORT, PROBE_EVERY_S, DeployedFleet
from headcount.views.manifests.folder import KSERVE as FILE

LLM_D: Final = "llm-d"  # with its built-in profile's weights
_SCORERS: Final = {"queue-scorer": 2, "kv-cache-utilization-scorer": 2, "prefix-cache-scorer": 3}


def files(fleet: DeployedFleet) -> dict[str, str]:
    """Raises HeadcountError for SGLang, a router other than llm-d's, or arguments that its shell would change."""
    if fleet.is_sglang:
        raise HeadcountError(
            "KServe's LLMInferenceService starts vLLM alone; plan with --engine vllm, or choose --format kubernetes"
        )
    if fleet.router not in (None, LLM_D):
        raise HeadcountError(
            f"--format kserve routes with llm-d's endpoint picker, not as {fleet.router} does; plan with "
            f"--router {LLM_D}, or choose --format kubernetes"
        )
    _, *flags = fleet.args
    changed = next((flag for flag in flags if shlex.quote(flag) != flag), None)
    if changed is not None:
        raise HeadcountError(
            f"KServe gives arguments to a shell, which would change {changed}; choose --format kubernetes"
        )
    head = (
        f"{fleet.title}\n# Apply it with kubectl apply -f {FILE}\n# {fleet.start_comment}\n"
        "# runAsNonRoot: vLLM's public image runs as root.\n"
        "# KServe downloads the weights; gated models need a token, as in kserve/kserve:\n"
        "# docs/samples/llmisvc/e2e-gpt-oss/hf-token-secret.yaml\n"
    )
    return {FILE: head + yaml_text(_service(fleet))}


def _service(fleet: DeployedFleet) -> Json:
    model, *flags = fleet.args
    gpus = {fleet.gpu_resource: str(fleet.gpus)}
    container = {
        "name": "main",
        "image": fleet.image,
        "args": flags,
        "env": [{"name": name, "value": value} for name, value in fleet.environment.items()],
        "resources": {"limits": gpus, "requests": gpus},
        "securityContext": {"runAsNonRoot": False},
        "startupProbe": {"periodSeconds": PROBE_EVERY_S, "failureThreshold": fleet.start_checks},
    }
    template: Json = {"containers": [{key: value for key, value in container.items() if value != []}]}
    if fleet.node_selector:
        template["nodeSelector"] = fleet.node_selector
    picker = {"scheduler": {"config": {"inline": picker_config()}}} if fleet.router == LLM_D else {}
    return {
        "apiVersion": "serving.kserve.io/v1alpha2",
        "kind": "LLMInferenceService",
        "metadata": {"name": fleet.name},
        "spec": {
            "model": {"uri": f"hf://{model}", "name": model},
            "replicas": fleet.servers,
            "rolloutStrategy": {"maxSurge": 0, "maxUnavailable": max(fleet.spare, 1)},
            "annotations": {
                "prometheus.io/scrape": "true",
                "prometheus.io/path": "/metrics",
                "prometheus.io/port": str(PORT),
            },
            "router": {"route": {}, "gateway": {}, **picker},
            "template": template,
        },
    }


def picker_config() -> Json:
    """The weights that the plan was simulated with; KServe's own default adds no-hit-lru-scorer."""
    kinds = ["single-profile-handler", *_SCORERS, "max-score-picker"]
    weights: list[Json] = [{"pluginRef": name, "weight": weight} for name, weight in _SCORERS.items()]
    return {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [{"type": kind} for kind in kinds],
        "schedulingProfiles": [{"name": "default", "plugins": [*weights, {"pluginRef": "max-score-picker"}]}],
    }
