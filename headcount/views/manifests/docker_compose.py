"""A fleet as docker compose files: one where a node holds all servers, else one a node and one of the router."""

from typing import Final

from files.documents import Json, yaml_text
from files.errors import HeadcountError
from headcount.text.units import counted
from headcount.views.manifests.fleet import MODEL_CACHE, PORT, PROBE_EVERY_S, TOKEN, DeployedFleet
from headcount.views.manifests.folder import COMPOSE as FILE
from headcount.views.manifests.folder import COMPOSE_NODE as NODE_FILE
from headcount.views.manifests.folder import COMPOSE_ROUTER as ROUTER_FILE
from headcount.views.manifests.folder import HAPROXY as CONFIG
from headcount.views.manifests.haproxy import FOLDER, IMAGE, check_haproxy, config
from simulator.fleet.startup import GPUS_PER_NODE

SHM_SIZE: Final = "16gb"
_HEALTHY: Final = f"import urllib.request; urllib.request.urlopen('http://localhost:{PORT}/health')"


def files(fleet: DeployedFleet) -> dict[str, str]:
    """Raises HeadcountError for AMD's GPUs, or a router that is not HAProxy's."""
    check_haproxy(fleet.router, "docker-compose")
    if fleet.is_amd:
        raise HeadcountError(
            "--format docker-compose gives each server its GPUs by NVIDIA's device_ids; for AMD GPUs choose "
            "--format kubernetes"
        )
    a_node = GPUS_PER_NODE // fleet.gpus
    servers = list(range(1, fleet.servers + 1))
    nodes = [servers[first : first + a_node] for first in range(0, len(servers), a_node)]
    return _one_node(fleet, servers) if len(nodes) == 1 else _several_nodes(fleet, nodes)


def _one_node(fleet: DeployedFleet, servers: list[int]) -> dict[str, str]:
    services = {f"engine-{number}": _engine(fleet, place) for place, number in enumerate(servers)}
    if fleet.router is None:
        services["engine-1"]["ports"] = [f"{PORT}:{PORT}"]
        return {FILE: _text(fleet, f"docker compose -f {FILE} up -d", services)}
    router = _router() | {"depends_on": {name: {"condition": "service_healthy"} for name in services}}
    lines = [f"server {name} {name}:{PORT}" for name in services]
    text = _text(fleet, f"docker compose -f {FILE} up -d", {**services, "router": router})
    return {FILE: text, CONFIG: config(fleet, lines)}


def _several_nodes(fleet: DeployedFleet, nodes: list[list[int]]) -> dict[str, str]:
    found, lines, hosts = dict[str, str](), list[str](), list[str]()
    for node, servers in enumerate(nodes, 1):
        hosts.append(f"NODE_{node}")
        services = {}
        for place, number in enumerate(servers):
            services[f"engine-{number}"] = _engine(fleet, place) | {"ports": [f"{PORT + 1 + place}:{PORT}"]}
            lines.append(f'server engine-{number} "${{{hosts[-1]}}}:{PORT + 1 + place}"')
        name = NODE_FILE.format(node)
        found[name] = _text(fleet, f"on node {node} of {len(nodes)}: docker compose -f {name} up -d", services)
    router = _router() | {"environment": {host: f"${{{host}:?the address of this node}}" for host in hosts}}
    start = f"{hosts[0]}=10.0.0.1 … docker compose -f {ROUTER_FILE} up -d"
    return {
        **found,
        ROUTER_FILE: _text(fleet, start, {"router": router}, has_cache=False),
        CONFIG: config(fleet, lines),
    }


def _engine(fleet: DeployedFleet, place: int) -> Json:
    """The server at that place of its node."""
    devices = [str(device) for device in range(place * fleet.gpus, (place + 1) * fleet.gpus)]
    reserved = {"driver": "nvidia", "device_ids": devices, "capabilities": ["gpu"]}
    environment = {name: _literal(value) for name, value in fleet.environment.items()}
    return {
        "image": fleet.image,
        "entrypoint": fleet.command,
        "command": [_literal(word) for word in fleet.args],
        "environment": {**environment, "HF_HOME": MODEL_CACHE, TOKEN: f"${{{TOKEN}:-}}"},
        "volumes": [f"model-cache:{MODEL_CACHE}"],
        **({"shm_size": SHM_SIZE} if fleet.shm else {}),
        "deploy": {"resources": {"reservations": {"devices": [reserved]}}},
        "healthcheck": {
            "test": ["CMD", "python3", "-c", _HEALTHY],
            "interval": f"{PROBE_EVERY_S}s",
            "timeout": "5s",
            "retries": 3,
            "start_period": f"{fleet.start_checks * PROBE_EVERY_S}s",
        },
        "restart": "unless-stopped",
    }


def _router() -> Json:
    mounted = f"./{CONFIG}:{FOLDER}/{CONFIG}:ro"
    return {"image": IMAGE, "ports": [f"{PORT}:{PORT}"], "volumes": [mounted], "restart": "unless-stopped"}


def _text(fleet: DeployedFleet, start: str, services: Json, *, has_cache: bool = True) -> str:
    head = (
        f"{fleet.title}\n# Start: {start}\n"
        f"# Nodes of up to {GPUS_PER_NODE} GPUs, {counted(fleet.gpus, 'GPU')} per server, by number: nvidia-smi -L\n"
        f"# {fleet.start_comment}\n# {TOKEN} is taken from your environment, for gated models.\n"
    )
    volumes: Json = {"volumes": {"model-cache": {}}} if has_cache else {}
    return head + yaml_text({"name": fleet.name, "services": services, **volumes})


def _literal(word: str) -> str:
    """With no variable of compose's."""
    return word.replace("$", "$$")
