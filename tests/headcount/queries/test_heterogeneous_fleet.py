"""Pools of different GPUs behind one router."""

from dataclasses import replace
from typing import Any

import pytest

import headcount as hc
from simulator.study.candidate import RunContext
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_table import capacity_rows
from simulator.study.fleets.heterogeneous_fleet import PoolAlone, serve_together
from tests.headcount.conftest import SHORT_ANSWERS
from tests.headcount.told import summary_of
from workloads.load import load_workload
from workloads.populations.population import Population

SETTINGS = {"latency_model": "constant", "step_s": 0.02, "max_model_len": 4096, "max_num_seqs": 4}


def asked(gpus: int, **more: Any) -> CapacityQuestion:
    """A small engine, so that few users fill it."""
    workload = load_workload(SHORT_ANSWERS)
    assert isinstance(workload, Population)
    args = hc.EngineArgs(tensor_parallel_size=1, **SETTINGS)  # type: ignore[arg-type]
    return CapacityQuestion(
        architecture=hc.load_model("llama-3.1-8b"), gpu=hc.find_gpu("h100-sxm"), gpus=(gpus,), workload=workload,
        think_time_s=workload.think_time_s.mean(), args=args, replications=8, **more,
    )  # fmt: skip


@pytest.mark.slow
def test_two_pools_that_are_alike_serve_what_one_pool_of_both_serves() -> None:
    question = asked(1, router="shortest-expected-delay")
    (row,) = capacity_rows(question)
    pool = PoolAlone(question=question, row=row)
    together = serve_together([pool, pool], RunContext())
    (both,) = capacity_rows(replace(question, gpus=(2,), router="least-outstanding"))
    assert together.figures["users"] == pytest.approx(both.users, rel=0.03)
    assert [inside.share for inside in together.in_fleet] == pytest.approx([0.5, 0.5], abs=0.05)


@pytest.mark.slow
def test_the_larger_pool_takes_the_larger_share_and_the_fleet_serves_more_than_either() -> None:
    answer = hc.fleet("llama-3.1-8b", {"h100-sxm": 3, "l40s": 1}, workload=SHORT_ANSWERS, replications=4, store=False,
                      tensor_parallel_size=1, **SETTINGS)  # fmt: skip
    large, small = answer.rows()
    assert large["share"] + small["share"] == pytest.approx(1)
    assert large["share"] == pytest.approx(0.75, abs=0.05)  # every step takes the same time, so that engines are alike
    assert answer.users_low <= answer.users <= answer.users_high
    assert answer.users > max(large["users_alone"], small["users_alone"])
    assert answer.to_json()["usd_per_hour"] == pytest.approx(large["usd_per_hour"] + small["usd_per_hour"])
    assert "3 × h100-sxm and 1 × l40s" in str(answer)
    page = summary_of(answer)
    assert page.answer == f"{answer.users_low:,} users at once on 3 × NVIDIA H100 SXM and 1 × NVIDIA L40S together"
    assert {"capacity at 95 % confidence", "model", "servers", "rent", "price of a GPU's hour", "service level"} == {
        name for name, _ in page.figures
    }
    assert len(page.confirm) == 3 and page.confirm_together
    assert (
        "while a server with NVIDIA H100 SXM is down" in page.risk
        and "while the only server with NVIDIA L40S is down" in page.risk
    )
    words = dict(page.to_json()["words"])
    assert "NVIDIA H100 SXM $" in words["rent"] and "NVIDIA L40S $" in words["rent"]


@pytest.mark.parametrize(
    ("pools", "said"),
    [
        ({}, "give 2 to 16"),
        ({"h100-sxm": 1}, "'headcount capacity'"),
        ({"h100-sxm": 1, "l40": 0}, "has 0 GPUs"),
        ({"h100-sxm": 1, "h100": 2}, "twice"),
        ({"h100-sxm": 1, "l4000": 2}, "l40"),
    ],
)
def test_pools_that_make_no_fleet_are_refused(pools: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        hc.fleet("llama-3.1-8b", pools)


def test_a_pool_that_serves_nobody_is_named() -> None:
    with pytest.raises(ValueError, match=r"the pool t4=1 serves nobody alone.*leave it out"):
        hc.fleet("llama-3.1-70b", {"t4": 1, "h100-sxm": 8}, workload=SHORT_ANSWERS, replications=2)
