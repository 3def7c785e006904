"""A plan's manifests: laws of every format. Formulas stand in for simulations."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from files.errors import HeadcountError
from headcount.cli.commands.capacity import command
from headcount.cli.engine_command_parser.sglang_args import read_sglang_args
from headcount.cli.engine_command_parser.vllm_args import read_vllm_args
from headcount.queries.plan import PlanResult
from headcount.views.manifests.fleet import deployed_fleet
from headcount.views.manifests.folder import COMPOSE, KEDA, KUBERNETES, VALUES
from headcount.views.manifests.folder import HAPROXY as CONFIG
from headcount.views.manifests.written import FORMATS
from simulator.deployment import resolve
from simulator.engines.engines import engine_args
from simulator.engines.vllm.dynamo_images import VLLM_OF
from simulator.fleet.routers import llm_d as llm_d_router
from tests.headcount.views.planned import PLANS, planned, served_metrics

Objects = dict[str, dict[str, Any]]
Run = Callable[..., Any]


pytestmark = pytest.mark.usefixtures("formulas")


def fleet_of(answer: PlanResult) -> tuple[int, int, int]:
    """Servers, spare ones included; spare ones; GPUs of a server."""
    best = answer.best
    assert best is not None and best.servers and best.gpus
    return best.servers, best.spare_servers or 0, best.gpus // best.servers


def objects(text: str) -> Objects:
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in yaml.safe_load_all(text)}


def container(found: Objects, name: str) -> dict[str, Any]:
    made: dict[str, Any] = found[f"Deployment/{name}"]["spec"]["template"]["spec"]["containers"][0]
    return made


def works(answer: PlanResult) -> list[str]:
    """The formats that can say it."""
    return [name for name in FORMATS if not isinstance(_made(answer, name), HeadcountError)]


def _made(answer: PlanResult, name: str) -> dict[str, str] | HeadcountError:
    try:
        return answer.manifests(name)
    except HeadcountError as error:
        return error


def read_again(answer: PlanResult, text: str) -> tuple[object, ...]:
    """The deployment that the text is read as, without variables that decide nothing."""
    best = answer.race.best
    assert best is not None
    plan = best.layout.plan
    with click.Context(command) as context:
        found = (read_sglang_args if "sglang" in plan.title.lower() else read_vllm_args)(text, context)
    variables = tuple(each for each in found.pop("environment", ()) if not each.startswith(("HF_TOKEN=", "HF_HOME=")))  # type: ignore[attr-defined]
    model = str(found.pop("model"))
    return resolve(model, plan.gpu, engine_args({**found, "environment": variables})).resolved


BEHIND_OTHERS: list[dict[str, Any]] = [
    {"model": "llama-3.1-8b", "spare": 1, "router": "session", "tensor_parallel_size": 2, "max_num_seqs": 64},
    {"model": "qwen3-8b", "spare": 1, "router": "llm-d", "max_model_len": 8192, "quantization": "fp8"},
    {"model": "qwen3-8b", "engine": "sglang", "spare": 1, "router": "llm-d"},
    {"model": "llama-3.1-8b", "spare": 1, "router": "dynamo-kv", "vllm_version": "0.31.0", "tensor_parallel_size": 2},
    {"model": "llama-3.1-8b", "spare": 1, "router": "round-robin", "vllm_version": "0.28.0", "max_num_seqs": 64},
]


@pytest.mark.parametrize("asked", PLANS + BEHIND_OTHERS, ids=str)
def test_a_manifest_starts_what_was_planned(asked: dict[str, Any]) -> None:
    """Pasted back, it gives the same deployment; secrets of the environment are in none."""
    answer = planned(asked)
    best = answer.race.best
    assert best is not None
    plan = best.layout.plan
    given = tuple(each for each in plan.args.environment if each.startswith("NCCL"))
    args, *rest = plan.resolved
    expected = (replace(args, environment=given), *rest)  # type: ignore[type-var]
    formats = works(answer)
    assert formats
    for name in formats:
        texts = answer.manifests(name)
        first = next(iter(texts))
        assert read_again(answer, texts[first]) == expected, name
        assert not any(word in text for text in texts.values() for word in ("hf_secret", "VLLM_API_KEY"))


@pytest.mark.parametrize("asked", PLANS, ids=str)
def test_kubernetes_has_the_gpus_that_were_planned(asked: dict[str, Any]) -> None:
    answer = planned(asked)
    servers, spare, gpus = fleet_of(answer)
    found = objects(answer.manifests("kubernetes")[KUBERNETES])
    fleet = deployed_fleet(answer)
    spec = found[f"Deployment/{fleet.name}"]["spec"]
    engine = container(found, fleet.name)
    (resource,) = engine["resources"]["limits"].items()
    assert resource == ("amd.com/gpu" if asked.get("gpu") == "mi300x" else "nvidia.com/gpu", gpus)
    assert spec["replicas"] * gpus == answer.gpus
    assert spec["replicas"] == servers
    budget = found[f"PodDisruptionBudget/{fleet.name}"]["spec"]
    assert budget["maxUnavailable"] == max(spare, 1) == spec["strategy"]["rollingUpdate"]["maxUnavailable"]
    assert ("shm" in [each["name"] for each in spec["template"]["spec"]["volumes"]]) == (gpus > 1)
    assert engine["startupProbe"]["failureThreshold"] * 10 > fleet.start_s


@pytest.mark.parametrize("asked", PLANS, ids=str)
def test_names_are_labels_and_selectors_find_pods(asked: dict[str, Any]) -> None:
    found = objects(planned(asked).manifests("kubernetes")[KUBERNETES])
    pods = [each["spec"]["template"]["metadata"]["labels"] for each in found.values() if each["kind"] == "Deployment"]
    for key, each in found.items():
        assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", key.split("/")[1]), key
        selector = each.get("spec", {}).get("selector")
        if selector is not None:
            assert selector.get("matchLabels", selector) in pods, key


def test_the_router_is_the_one_that_the_text_recommends() -> None:
    for router, lines in (
        ("least-outstanding", {"balance leastconn"}),
        ("session-affinity", {"balance leastconn", "stick on req.hdr(x-session-id)"}),
    ):
        answer = planned({"model": "llama-3.1-8b", "spare": 1, "router": router})
        servers, _, _ = fleet_of(answer)
        for name in ("kubernetes", "docker-compose"):
            texts = answer.manifests(name)
            config = texts.get(CONFIG) or next(
                each["data"][CONFIG] for each in objects(texts[KUBERNETES]).values() if each["kind"] == "ConfigMap"
            )
            stripped = [line.strip() for line in config.splitlines()]
            assert {line for line in stripped if line.startswith(("balance", "stick on"))} == lines
            assert all(line.split(", ")[0] in str(answer).replace("\n", " ") for line in lines)
            template = [line.split()[2] for line in stripped if line.startswith("server-template")]
            assert template == [str(servers)] or sum(line.startswith("server ") for line in stripped) == servers


def test_one_server_has_no_router() -> None:
    answer = planned({"model": "llama-3.1-8b", "users": 50})
    assert works(answer) == [name for name in FORMATS if name not in ("keda", "dynamo")]
    assert "haproxy" not in answer.manifests("kubernetes")[KUBERNETES]
    assert set(answer.manifests("docker-compose")) == {COMPOSE, "alerts.yaml", "dashboard.json"}


def test_each_server_of_a_compose_file_has_gpus_of_its_own() -> None:
    answer = planned({"model": "llama-3.1-8b", "tensor_parallel_size": 2, "spare": 1})
    services = yaml.safe_load(answer.manifests("docker-compose")[COMPOSE])["services"]
    engines = [each for each in services.values() if "deploy" in each]
    devices = [each["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] for each in engines]
    assert devices == [["0", "1"], ["2", "3"], ["4", "5"], ["6", "7"]]


def test_a_fleet_of_several_nodes_has_a_compose_file_for_each() -> None:
    answer = planned({"model": "llama-3.1-8b", "users": 2000})
    servers, _, _ = fleet_of(answer)
    texts = answer.manifests("docker-compose")
    nodes = [yaml.safe_load(text) for name, text in texts.items() if ".node-" in name]
    assert [len(each["services"]) for each in nodes] == [8, servers - 8]
    router = yaml.safe_load(texts["docker-compose.router.yaml"])["services"]["router"]
    assert list(router["environment"]) == ["NODE_1", "NODE_2"]
    assert texts[CONFIG].count("\n  server engine-") == servers


@pytest.mark.parametrize(
    ("asked", "formats", "part"),
    [
        ({"router": "llm-d"}, ["kubernetes"], "plan with --router least-outstanding or session-affinity"),
        ({"router": "cache-aware"}, ["docker-compose"], "docs/how-to/deploy-a-plan.md"),
        ({"router": "least-outstanding"}, ["production-stack"], "--router round-robin, session, prefixaware"),
        ({"router": "session"}, ["kserve"], "plan with --router llm-d"),
        ({"router": "least-outstanding"}, ["llm-d"], "plan with --router llm-d"),
        ({"router": "least-outstanding"}, ["dynamo"], "plan with --router round-robin or dynamo-kv"),
        (
            {"router": "dynamo-kv"},
            ["dynamo"],
            "no image of Dynamo's holds vLLM 0.33.0; plan with --vllm-version of 0.31.0",
        ),
        ({"engine": "sglang"}, ["dynamo"], "plan with --engine vllm"),
        ({"router": "llm-d"}, ["keda"], "plan with --router least-outstanding or session-affinity"),
        ({"users": 50}, ["keda"], "plan with --spare 1"),
        ({"gpu": "mi300x", "price": 3.0}, ["docker-compose"], "choose --format kubernetes"),
        ({"engine": "sglang"}, ["production-stack"], "--engine vllm"),
        ({"engine": "sglang"}, ["kserve"], "--engine vllm"),
        ({"engine": "sglang", "gpu": "mi300x", "price": 3.0}, [], "ROCm"),
        ({"users": 50, "pipeline_parallel_size": 2, "tensor_parallel_size": 8}, [], "one server takes 16 GPUs"),
        ({}, ["kubernets"], "did you mean 'kubernetes'?"),
    ],
)
def test_what_a_format_cannot_say_is_refused(asked: dict[str, Any], formats: list[str], part: str) -> None:
    answer = planned({"model": "llama-3.1-8b", **asked})
    with pytest.raises(HeadcountError, match=re.escape(part)):
        answer.manifests(*formats)


@pytest.mark.parametrize("spare", [0, 2])
def test_an_autoscaler_keeps_the_planned_servers_and_adds_some_under_more_load(spare: int) -> None:
    answer = planned({"model": "llama-3.1-8b", "router": "least-outstanding", "spare": spare})
    servers, _, _ = fleet_of(answer)
    texts = answer.manifests("keda")
    assert texts == answer.manifests("keda", "kubernetes") and list(texts)[:2] == [KUBERNETES, KEDA]
    scaled = yaml.safe_load(texts[KEDA])["spec"]
    fleet = deployed_fleet(answer)
    assert f"Deployment/{scaled['scaleTargetRef']['name']}" in objects(texts[KUBERNETES])
    assert scaled["minReplicaCount"] == servers < scaled["maxReplicaCount"] == servers + fleet.needed
    assert f"server-template engine- {servers + fleet.needed} " in texts[KUBERNETES], "the router knows them all"
    behavior = scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    window_s = behavior["scaleDown"]["stabilizationWindowSeconds"]
    assert max(300, fleet.cold_start_s) <= window_s <= 3600
    (trigger,) = scaled["triggers"]
    in_flight, threshold = fleet.mean_of_server("in_flight") * fleet.needed, float(trigger["metadata"]["threshold"])
    assert math.ceil(round(in_flight / threshold, 2)) == servers, "at the planned load nothing is added"
    assert math.ceil(1.5 * in_flight / threshold) > servers
    promql: Any = import_module("promql_parser")
    promql.parse(trigger["metadata"]["query"])
    assert set(re.findall(r"\bvllm:\w+", trigger["metadata"]["query"])) <= served_metrics("vllm")


def test_llm_d_routes_with_the_weights_that_were_simulated() -> None:
    answer = planned({"model": "llama-3.1-8b", "spare": 1, "router": "llm-d"})
    texts = answer.manifests("llm-d")
    router = yaml.safe_load(texts["llm-d-router.values.yaml"])["router"]
    (deployment,) = (each for each in objects(texts["llm-d.yaml"]).values() if each["kind"] == "Deployment")
    assert router["modelServers"]["matchLabels"] == deployment["spec"]["template"]["metadata"]["labels"]
    config = yaml.safe_load(router["epp"]["pluginsCustomConfig"][router["epp"]["pluginsConfigFile"]])
    (profile,) = config["schedulingProfiles"]
    given = {each["pluginRef"]: each["weight"] for each in profile["plugins"] if "weight" in each}
    simulated = {name.replace("_", "-"): each.default for name, each in llm_d_router.PARAMETERS.items()}
    assert given == {name: simulated[name] for name in given} and len(given) == 3


def test_dynamo_has_the_planned_servers_and_an_image_of_the_planned_release() -> None:
    answer = planned(
        {
            "model": "llama-3.1-8b",
            "spare": 1,
            "router": "dynamo-kv",
            "vllm_version": "0.31.0",
            "tensor_parallel_size": 2,
        }
    )
    servers, spare, gpus = fleet_of(answer)
    found = objects(answer.manifests("dynamo")["dynamo.yaml"])
    graph, budget = found.values()
    assert graph["kind"] == "DynamoGraphDeployment" and budget["spec"]["maxUnavailable"] == spare
    frontend, worker = graph["spec"]["components"]
    (routes,), (runs,) = (each["podTemplate"]["spec"]["containers"] for each in (frontend, worker))
    assert (frontend["replicas"], worker["replicas"]) == (1, servers)
    assert routes["env"] == [{"name": "DYN_ROUTER_MODE", "value": "kv"}]
    assert runs["resources"]["limits"] == {"nvidia.com/gpu": str(gpus)}
    assert VLLM_OF[runs["image"].rpartition(":")[2]] == "0.31.0" and routes["image"] == runs["image"]
    assert "--kv-events-config" in runs["args"], "the router learns which blocks a server holds"


def test_the_command_writes_the_files_and_refuses_others(headcount: Run, tmp_path: Path) -> None:
    plan = ("plan", "--model", "llama-3.1-8b", "--users", "500", "--gpu", "h100-sxm", "-tp", "1")
    folder = tmp_path / "out"
    ran = headcount(*plan, "--emit", folder, "--format", "kubernetes,docker-compose", "--router", "least-outstanding")
    assert ran.code == 0, ran.err
    assert {path.name for path in folder.iterdir()} == {KUBERNETES, COMPOSE, CONFIG, "alerts.yaml", "dashboard.json"}
    assert f"wrote {folder / KUBERNETES}" in ran.out
    assert json.loads(headcount(*plan, "--emit", folder, "--json").out)["meets_target"]
    (folder / "notes.txt").write_text("mine")
    assert headcount(*plan, "--emit", folder).code == 0, "files of headcount's are replaced, others stay"
    before = {path.name: path.read_text() for path in folder.iterdir()}
    assert before["notes.txt"] == "mine"
    (folder / VALUES).write_text("mine")
    ran = headcount(*plan, "--emit", folder)
    assert (ran.code, "that headcount did not write" in ran.err) == (2, True)
    (folder / VALUES).unlink()
    ran = headcount(*plan, "--emit", folder, "--format", "kubernetes,kserve", "--router", "session-affinity")
    assert (ran.code, "--format kserve" in ran.err) == (2, True)
    assert {path.name: path.read_text() for path in folder.iterdir()} == before, "nothing is half-written"
    assert headcount(*plan, "--format", "kserve").code == 2
    assert headcount(*plan, "--emit", folder / "notes.txt").code == 2


def test_a_plan_without_a_fleet_writes_nothing(headcount: Run, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    plan = ("plan", "--model", "llama-3.1-8b", "--users", "5", "--gpu", "l40s", "-tp", "1", "--tpot", "0.1ms")
    ran = headcount(*plan, "--emit", folder)
    assert (ran.code, folder.exists()) == (1, False)
    assert "nothing is written" in ran.err


@pytest.mark.parametrize("asked", PLANS, ids=str)
def test_kubernetes_objects_have_published_schemas(asked: dict[str, Any]) -> None:
    validator: Any = import_module("kubernetes_validate")
    for each in objects(planned(asked).manifests("kubernetes")[KUBERNETES]).values():
        validator.validate(each, "1.31", strict=True)
