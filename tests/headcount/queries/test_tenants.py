"""Tenants and the gateway's queue in answers: figures for each, files, refusals."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headcount as hc
from tests.headcount.conftest import SHORT_ANSWERS

Run = Callable[..., Any]
TENANTS = {"gold": {"share": 0.5, "priority": -1}, "rest": {"share": 0.5}}
FAST: dict[str, Any] = {"latency_model": "constant", "step_s": 0.05, "max_model_len": 4096, "max_num_seqs": 4}
COMMAND = (
    "simulate", "--model", "qwen3-0.6b", "--gpu", "h100-sxm", "--latency-model", "constant", "--step-s", "0.05",
    "--max-model-len", "4096", "--max-num-seqs", "4",
)  # fmt: skip
LOAD = ("--rate", 20, "--num-requests", 400, "--input-len", 200, "--output-len", 20)
CONTROL = "concurrency-detector:maxConcurrency=4,defaultRequestTTL=5"


def toml(folder: Path, text: str = "") -> Path:
    path = folder / "tenants.toml"
    path.write_text(text or "[tenants.gold]\nshare = 0.5\npriority = -1\n[tenants.rest]\nshare = 0.5\n")
    return path


def test_an_answer_shows_each_tenant_and_the_file_names_them(headcount: Run, tmp_path: Path) -> None:
    out = tmp_path / "r.csv"
    given = (*COMMAND, *LOAD, "--tenants", toml(tmp_path), "--flow-control", CONTROL, "--ttft", "2s")
    found = json.loads(headcount(*given, "--requests-out", out, "--json").out)
    with out.open() as file:
        rows = list(csv.DictReader(file))
    gold, rest = found["tenants"]
    assert (gold["name"], rest["name"]) == ("gold", "rest")
    for tenant in (gold, rest):
        mine = [row for row in rows if row["tenant"] == tenant["name"]]
        assert tenant["num_requests"] == len(mine)
        assert tenant["num_rejected"] == sum(int(row["cancelled"]) for row in mine)
    assert gold["num_requests"] + rest["num_requests"] == found["num_requests"] == 400
    assert found["num_finished"] == 400 - gold["num_rejected"] - rest["num_rejected"]
    assert found["cancelled"]["rejected"] == pytest.approx((gold["num_rejected"] + rest["num_rejected"]) / 400)
    assert gold["num_rejected"] < rest["num_rejected"]
    assert gold["attainment"] > rest["attainment"]
    assert found["slo"]["ttft_s"] == 2.0
    assert found["held_mean"] > 1
    shown = headcount(*given).out
    assert "at the gateway" in shown
    assert "gold" in shown


def test_without_tenants_and_a_queue_an_answer_has_none_of_it(headcount: Run) -> None:
    found = json.loads(headcount(*COMMAND, *LOAD, "--json").out)
    assert not {"tenants", "slo", "flow_control", "held_mean", "cancelled"} & set(found)


def test_a_rejected_request_is_sent_again_where_clients_try_again(headcount: Run, tmp_path: Path) -> None:
    path = toml(tmp_path, "[tenants.all]\nshare = 1\nrpm_limit = 60\n")
    found = {
        retries: json.loads(headcount(*COMMAND, *LOAD, "--tenants", path, "--retries", retries, "--json").out)
        for retries in (0, 2)
    }
    assert found[0]["num_requests"] == 400
    assert found[0]["num_finished"] == 60 + 19  # a full bucket, and what flows into it within 20 s
    assert found[2]["cancelled"]["retries"] > 0.5
    assert found[2]["num_finished"] > found[0]["num_finished"]


def test_capacity_shows_each_tenant_at_its_users() -> None:
    given = {"workload": SHORT_ANSWERS, "gpus": [1], "replications": 2, "store": False, **FAST, "step_s": 0.02}
    answer = hc.capacity(
        "qwen3-0.6b", "h100-sxm", tenants=TENANTS, flow_control="concurrency-detector:maxConcurrency=4", **given
    )
    (row,) = answer.figures()["capacity"]
    gold, rest = row["at_users"]["tenants"]
    assert gold["name"] == "gold"
    assert gold["num_requests"] > 0
    assert gold["attainment"] >= rest["attainment"]
    assert "tenants at" in str(answer)
    assert answer.binding == "TTFT: gateway's queue"
    rejecting = hc.capacity("qwen3-0.6b", "h100-sxm", tenants={"all": {"share": 1, "rpm_limit": 300}}, **given)
    assert rejecting.binding == "TTFT: rejected by the gateway"
    assert rejecting.users < answer.users


def test_a_fleet_that_changes_has_tenants_and_a_queue_too(headcount: Run, tmp_path: Path) -> None:
    given = (*COMMAND, *LOAD, "--tenants", toml(tmp_path), "--replicas", 2, "--event", "node@5s", "--ttft", "2s")
    held = json.loads(headcount(*given, "--flow-control", CONTROL, "--json").out)
    (fleet,) = held["fleets"]
    gold, rest = fleet["tenants"]
    assert held["flow_control"] == CONTROL
    assert fleet["held_mean"] > 0.1
    assert gold["num_requests"] + rest["num_requests"] == 400 - 1  # the last one comes as the run ends
    assert fleet["requests_rejected"] == gold["num_rejected"] + rest["num_rejected"]
    assert gold["num_rejected"] < rest["num_rejected"]
    assert gold["attainment"] > rest["attainment"]
    shown = headcount(*given, "--flow-control", CONTROL).out
    assert "flow control: concurrency-detector" in shown
    assert "gold" in shown
    (without,) = json.loads(headcount(*given, "--json").out)["fleets"]
    assert "requests_rejected" not in without
    assert "held_mean" not in without
    assert len(without["tenants"]) == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--flow-control", "utilisation"), "no saturation detector 'utilisation'"),
        (("--flow-control", "concurrency-detector:maxConcurrency=x"), "maxConcurrency is 'x'; give a whole number"),
        (("--tenants", "none.toml"), "none.toml"),
    ],
)
def test_what_does_not_go_together_is_refused(headcount: Run, given: tuple[str, ...], said: str) -> None:
    ran = headcount(*COMMAND, *LOAD, *given)
    assert ran.code == 2
    assert said in ran.err
