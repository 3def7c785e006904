"""The power that GPUs draw by what their steps wait for, and the energy of a month and of a token."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headcount as hc
from headcount.queries.capacity import CapacityResult
from headcount.queries.energy import IDLE_SHARE_OF_TDP, SHARES_OF_TDP, Energy, energy, share_of_tdp
from headcount.views.of.plan import summary
from simulator.latency.model import COMPUTE, HOST, KV_READ
from simulator.study.capacity_row import CapacityRow
from tests.headcount.queries.test_tenants import Run

TDP = 700.0


@cache
def answer(**asked: float) -> CapacityResult:
    return hc.capacity("llama-3.1-8b", "h100-sxm", gpus=(1,), replications=2, workload="chat", **asked)


def row() -> CapacityRow:
    (found,) = answer().capacity
    return found


@given(st.dictionaries(st.sampled_from(sorted(SHARES_OF_TDP)), st.floats(1e-6, 1.0), min_size=1))
def test_a_step_draws_what_its_causes_draw_and_no_more_than_the_tdp(seconds: dict[str, float]) -> None:
    found = share_of_tdp(seconds)
    assert min(SHARES_OF_TDP.values()) - 1e-9 <= found <= 1
    assert share_of_tdp({cause: 3 * value for cause, value in seconds.items()}) == pytest.approx(found)


def test_compute_draws_more_than_reads_and_reads_more_than_waiting() -> None:
    assert share_of_tdp({COMPUTE: 1.0}) > share_of_tdp({KV_READ: 1.0}) > share_of_tdp({HOST: 1.0}) > IDLE_SHARE_OF_TDP


def test_a_decode_of_eight_sequences_draws_what_was_measured() -> None:
    """ML.ENERGY Leaderboard v3.0: Llama-3.1-8B on H100, 8 sequences 486 W, 512 sequences 688 W."""
    found = answer().energy(row())
    assert found is not None
    assert 486 * 0.8 <= found.watts <= TDP


def test_idle_gpus_draw_idle_power_and_a_month_is_730_hours() -> None:
    found, plan, point = row(), row().plan, row().safe_point
    assert plan is not None and point is not None
    one, ten = energy(plan, point, found.gpus), energy(plan, point, found.gpus + 9)
    assert one is not None and ten is not None
    assert ten.watts - one.watts == pytest.approx(9 * IDLE_SHARE_OF_TDP * TDP)
    assert one.kwh_per_month == pytest.approx(one.watts * 0.73)
    assert one.joules_per_output_token == pytest.approx(one.watts / point.mean("output_tokens_per_s"))
    twice = energy(plan, point.in_copies(2), 2 * found.gpus)
    assert twice is not None and twice.watts == pytest.approx(2 * one.watts)


def test_a_published_idle_power_is_taken_and_a_gpu_without_tdp_has_no_estimate() -> None:
    plan, point = row().plan, row().safe_point
    assert plan is not None and point is not None
    gpu = replace(plan.gpu, idle_watts=70.0, source={**plan.gpu.source, "idle_watts": "a log"})
    told = replace(plan, served=replace(plan.served, gpu=gpu))
    one, ten = energy(told, point, 1), energy(told, point, 10)
    assert one is not None and ten is not None and not one.idle_is_assumed
    assert ten.watts - one.watts == pytest.approx(9 * 70)
    assert energy(replace(plan, served=replace(plan.served, gpu=replace(plan.gpu, tdp_watts=None))), point, 1) is None


def test_carbon_is_energy_times_the_grid_s_intensity() -> None:
    found = answer(carbon_intensity=400.0)
    taken = found.energy(found.capacity[0])
    assert taken is not None and taken.co2_kg_per_month is not None
    assert taken.co2_kg_per_month == pytest.approx(0.4 * taken.kwh_per_month)
    assert "kg of CO2 at 400 g/kWh" in taken.text
    assert "energy at" in str(found)
    assert "energy at" not in str(answer())
    told = found.figures()["capacity"][0]["energy"]
    assert (told["co2_kg_per_month"], told["carbon_intensity"]) == (taken.co2_kg_per_month, 400.0)


def test_a_plan_tells_the_energy_of_the_fleet_it_buys_spare_servers_idle() -> None:
    def planned(**people: int) -> Energy:
        found = hc.plan("llama-3.1-8b", gpu="h100-sxm", carbon_intensity=400, users=900, replications=4, **people)
        assert found.energy is not None and found.figures()["energy"] == found.energy.to_json()
        assert "energy at the peak" in str(found)
        assert ("energy", found.energy.text) in summary(found.complete()).figures
        return found.energy

    found, spare = planned(), planned(spare=1)
    assert spare.watts - found.watts == pytest.approx(IDLE_SHARE_OF_TDP * TDP)
    assert found.joules_per_output_token is not None
    assert found.co2_kg_per_month == pytest.approx(0.4 * found.kwh_per_month)


@pytest.mark.parametrize("grams", ["-1", "2001", "nan"])
def test_an_intensity_that_no_grid_has_is_refused(headcount: Run, grams: str) -> None:
    ran = headcount("capacity", "--model", "qwen3-8b", "--gpu", "l4", "--carbon-intensity", grams)
    assert ran.code == 2
    assert "arbon" in ran.err
