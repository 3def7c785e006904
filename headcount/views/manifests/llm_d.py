"""A fleet as llm-d deploys it: a Deployment of the servers, and values of its router's chart.

Source: llm-d/llm-d-router, config/charts: README.md, llm-d-router-standalone and routerlib.
"""

from typing import Final

from files.documents import Json, yaml_text
from files.errors import HeadcountError
from headcount.views.manifests import kubernetes
from headcount.views.manifests.fleet import PORT, DeployedFleet
from headcount.views.manifests.folder import LLM_D as FILE
from headcount.views.manifests.folder import LLM_D_VALUES as VALUES
from headcount.views.manifests.kserve import LLM_D, picker_config

CONFIG: Final = "headcount-plugins.yaml"
PROXY_PORT: Final = 8081  # where the chart's proxy listens


def files(fleet: DeployedFleet) -> dict[str, str]:
    """Raises HeadcountError for a router other than llm-d's."""
    if fleet.router is None:
        service = kubernetes.service_of_servers(fleet)
        return {FILE: kubernetes.text(fleet, FILE, [*kubernetes.servers(fleet), service])}
    if fleet.router != LLM_D:
        raise HeadcountError(
            f"--format llm-d routes with llm-d's endpoint picker, not as {fleet.router} does; plan with "
            f"--router {LLM_D}, or choose --format kubernetes"
        )
    head = (
        f"{fleet.title}\n# Install: git clone https://github.com/llm-d/llm-d-router\n"
        f"#          helm install {fleet.name} llm-d-router/config/charts/llm-d-router-standalone -f {VALUES}\n"
        f"# Clients connect to the service {fleet.name}-epp on port {PORT}.\n"
        f"# {CONFIG}: the weights that the plan was simulated with.\n"
    )
    return {
        FILE: kubernetes.text(fleet, FILE, kubernetes.servers(fleet)),
        VALUES: head + yaml_text({"router": _router(fleet)}),
    }


def _router(fleet: DeployedFleet) -> Json:
    port: Json = {"name": "http", "port": PORT, "protocol": "TCP", "targetPort": PROXY_PORT}
    return {
        "modelServers": {
            "type": "sglang" if fleet.is_sglang else "vllm",
            "matchLabels": {"app.kubernetes.io/name": fleet.name},
            "targetPorts": [{"number": PORT}],
        },
        "inferencePool": {"create": False},  # its proxy needs none
        "extraServicePorts": [port],
        "epp": {"pluginsConfigFile": CONFIG, "pluginsCustomConfig": {CONFIG: yaml_text(picker_config())}},
    }
