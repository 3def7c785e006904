"""`/metrics` beside vLLM's own: the names that its dashboards query, and what its logger registers."""

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from conformance.components.probes import FOLDER
from conformance.probing import answers
from headcount.endpoint.app import make_app
from headcount.endpoint.serving import Served, endpoint
from headcount.inputs.engine import EngineInput

DASHBOARDS = json.loads((Path(__file__).parent / "vllm_dashboards.json").read_text(encoding="utf-8"))["dashboards"]
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 128,
    "max_position_embeddings": 4096, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5, "hidden_act": "silu",
}  # fmt: skip


@pytest.fixture(scope="module")
def ours() -> list[Metric]:
    """Of a server that has answered nothing, which a dashboard may meet as well."""
    engine = {"latency_model": "constant", "step_s": 0.01, "max_model_len": 4096}
    made, _ = endpoint("llama-3.1-8b", "h100-sxm", Served(), EngineInput(arguments=engine))
    with TestClient(make_app(made), base_url="http://127.0.0.1") as client:
        return list(text_string_to_metric_families(client.get("/metrics").text))


@pytest.mark.parametrize("dashboard", DASHBOARDS)
def test_no_panel_of_vllm_s_dashboards_stays_empty(dashboard: str, ours: list[Metric]) -> None:
    known = {sample.name for family in ours for sample in family.samples}
    panels = DASHBOARDS[dashboard]["panels"]
    assert panels
    empty = {title: names for title, names in panels.items() if not known.issuperset(names)}
    assert empty == {}


def test_a_dashboard_finds_the_model_by_its_name(ours: list[Metric]) -> None:
    """Every dashboard's variable takes the values of that label."""
    asked = {variable for each in DASHBOARDS.values() for variable in each["variables"]}
    assert asked and all("model_name" in variable for variable in asked)
    for family in ours:
        if family.name.startswith("vllm:") and family.name != "vllm:cache_config_info":
            assert {sample.labels["model_name"] for sample in family.samples} == {"meta-llama/Llama-3.1-8B-Instruct"}


@pytest.mark.slow
def test_each_metric_has_the_type_the_labels_and_the_buckets_of_vllm_s_own(
    vllm_python: Path, ours: list[Metric]
) -> None:
    (theirs,) = answers(
        vllm_python, "metrics_probe", [{"name": "llama", "config": CONFIG}], failure="none", folder=FOLDER
    )
    for family in ours:
        if family.name.startswith("vllm:"):
            found = theirs["metrics"].get(family.name)
            assert found is not None, f"vLLM has no {family.name}"
            _equal(family, found)


def _equal(family: Metric, theirs: dict[str, Any]) -> None:
    labels = {label for sample in family.samples for label in sample.labels} - {"le"}
    bounds = [float(sample.labels["le"]) for sample in family.samples if "le" in sample.labels]
    assert family.type == theirs["type"], family.name
    assert bounds == list(map(float, theirs["bounds"])), family.name
    if family.name == "vllm:cache_config_info":  # theirs has every setting of the cache
        assert labels <= set(theirs["labels"])
    else:
        assert labels == set(theirs["labels"]), family.name
