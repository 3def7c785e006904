"""One load is judged by an SLO where one is asked for."""

import csv
import json
from pathlib import Path

from tests.headcount.queries.test_tenants import COMMAND, LOAD, Run


def test_attainment_is_the_share_of_requests_that_meet_all_limits(headcount: Run, tmp_path: Path) -> None:
    out = tmp_path / "requests.csv"
    ran = headcount(*COMMAND, *LOAD, "--ttft", "4s", "--tpot", "60ms", "--requests-out", out, "--json")
    found = json.loads(ran.out)
    with out.open() as file:
        rows = list(csv.DictReader(file))
    met = [float(row["ttft_s"]) <= 4 and float(row["tpot_s"]) <= 0.06 for row in rows]
    assert 0 < sum(met) < len(met)
    assert found["attainment"] == sum(met) / len(met)
    assert found["slo"] == {"ttft_s": 4.0, "tpot_s": 0.06, "attainment": 0.95, "ttft_token_s": 0.0}


def test_a_file_of_requests_holds_those_that_arrived_and_marks_the_warm_up(headcount: Run, tmp_path: Path) -> None:
    out = tmp_path / "requests.csv"
    asked = ("simulate", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--workload", "chat", "--users", "20")
    found = json.loads(headcount(*asked, "--requests-out", out, "--json").out)
    with out.open() as file:
        rows = list(csv.DictReader(file))
    arrived = [float(row["arrival_s"]) for row in rows]
    warmup_s = max(arrived) - found["duration_s"]  # at the least
    assert all(row["scheduled_s"] or at > max(arrived) - 1 for row, at in zip(rows, arrived, strict=True))
    assert all(at >= warmup_s for row, at in zip(rows, arrived, strict=True) if row["warmup"] == "0")
    assert sum(row["warmup"] == "0" for row in rows) == found["num_requests"] < len(rows)


def test_the_text_says_what_was_met_and_what_was_asked(headcount: Run) -> None:
    shown = headcount(*COMMAND, *LOAD, "--ttft", "1000s", "--tpot", "1s").out
    assert "attainment        100 %; asked: 95 % of requests with TTFT ≤ 1000 s and TPOT ≤ 1000 ms" in shown


def test_a_looser_limit_is_met_by_no_fewer_requests(headcount: Run) -> None:
    shares = [
        json.loads(headcount(*COMMAND, *LOAD, "--ttft", limit, "--tpot", "1s", "--json").out)["attainment"]
        for limit in ("1ms", "1s", "4s", "1000s")
    ]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)


def test_without_an_slo_nobody_is_judged(headcount: Run) -> None:
    found = json.loads(headcount(*COMMAND, *LOAD, "--json").out)
    assert not {"slo", "attainment"} & found.keys()
