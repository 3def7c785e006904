"""The alerts and the dashboard of a plan: they ask for what the engine measures. Formulas stand in for simulations."""

import json
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from headcount.endpoint.metrics import sglang_reports, vllm_steps
from headcount.views.manifests import alerts
from tests.headcount.views.planned import PLANS, planned, served_metrics

Run = Callable[..., Any]


pytestmark = pytest.mark.usefixtures("formulas")


@pytest.mark.parametrize("asked", PLANS, ids=str)
def test_alerts_ask_for_metrics_that_the_engine_has(asked: dict[str, Any]) -> None:
    """The names are those that `headcount emulate` serves, which tests compare with the engines' own."""
    answer = planned(asked)
    (group,) = yaml.safe_load(answer.manifests("kubernetes")["alerts.yaml"])["groups"]
    assert [each["alert"] for each in group["rules"]] == ["KVUsageHigh", "QueueGrowing", "TTFTBudgetBurn"]
    known = {
        "vllm:kv_cache_usage_perc", "vllm:num_requests_waiting", "vllm:time_to_first_token_seconds_bucket",
        "vllm:time_to_first_token_seconds_count", "sglang:token_usage", "sglang:num_queue_reqs",
        "sglang:time_to_first_token_seconds_bucket", "sglang:time_to_first_token_seconds_count",
    }  # fmt: skip
    promql: Any = import_module("promql_parser")
    for each in group["rules"]:
        assert isinstance(promql.parse(each["expr"]), promql.BinaryExpr)
        named = set(re.findall(r"\b(?:vllm|sglang):\w+", each["expr"]))
        assert named and named <= known
        assert {name.split(":")[0] for name in named} == {asked.get("engine", "vllm")}
        assert "users at 95 % confidence on each of" in each["annotations"]["users_per_replica"]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_dashboard_draws_what_the_engine_measures_beside_what_was_simulated(engine: str) -> None:
    own = {"engine": engine} if engine == "sglang" else {}
    answer = planned({"model": "llama-3.1-8b", "router": "least-outstanding", **own})
    found = json.loads(answer.manifests("kubernetes")["dashboard.json"])
    promql: Any = import_module("promql_parser")
    known = served_metrics(engine)
    drawn = {
        panel["title"]: {each["legendFormat"]: each["expr"] for each in panel["targets"]} for panel in found["panels"]
    }
    assert set(drawn) == {"TTFT, p95", "TPOT, p95", "Requests per second", "Requests at a server", "KV cache in use"}
    for title, lines in drawn.items():
        for expression in lines.values():
            promql.parse(expression)
            assert set(re.findall(r"\b(?:vllm|sglang):\w+", expression)) <= known
        assert any("vector(" in line for line in lines.values()), f"{title} has nothing simulated"
    best, slo = answer.best, answer.race.question.slo
    assert best is not None and best.ttft_s is not None
    assert drawn["TTFT, p95"]["simulated"] == f"vector({best.ttft_s['p95']:.6g})"
    assert drawn["TTFT, p95"]["limit"] == f"vector({slo.ttft_s:.6g})"
    places = [panel["gridPos"] for panel in found["panels"]]
    assert len({(place["x"], place["y"]) for place in places}) == len(places)


def test_a_dashboard_is_replaced_and_another_s_is_not(headcount: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    plan = ("plan", "--model", "llama-3.1-8b", "--users", "50", "--gpu", "h100-sxm", "-tp", "1", "--emit", out)
    assert headcount(*plan).code == 0
    assert headcount(*plan).code == 0
    (out / "dashboard.json").write_text('{"title": "mine"}')
    refused = headcount(*plan)
    assert refused.code == 2
    assert "holds a dashboard.json that headcount did not write" in refused.err


def test_the_bounds_of_ttft_are_the_engines() -> None:
    assert alerts._TTFT_BUCKETS_S[False] == tuple(map(float, vllm_steps._TTFT))
    assert alerts._TTFT_BUCKETS_S[True] == tuple(map(float, sglang_reports._TTFT))


def test_a_limit_on_ttft_that_prometheus_cannot_see_has_no_alert() -> None:
    answer = planned({"model": "llama-3.1-8b", "ttft_s": "1s + 0.1s/1K"})
    (group,) = yaml.safe_load(answer.manifests()["alerts.yaml"])["groups"]
    assert "TTFTBudgetBurn" not in [each["alert"] for each in group["rules"]]
