"""Fleets whose capacity is a formula, so that a search over them takes no simulation."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kvcache.models.catalog import find_gpu, load_model
from simulator.engines.vllm.arguments import EngineArgs
from simulator.study.candidate import Level
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_row import CapacityRow
from simulator.study.capacity_table import CapacityTable
from simulator.study.fleets import search, sizing
from simulator.study.fleets.layouts import FleetQuestion, Layout, Offer
from simulator.study.statistics import Interval
from workloads.load import load_preset

GIVEN: dict[str, Any] = {"latency_model": "constant", "step_s": 0.02, "max_num_seqs": 32}
Users = Callable[[CapacityQuestion, int], int]  # to sign for, on so many servers


class Served:
    """A load that was served well enough."""

    attainment = Interval(0.96, 0.95, 0.97)

    def mean(self, name: str) -> float:
        return {"requests_per_s": 2.0, "in_flight": 12.0}.get(name, 0.5)

    mean_step = None
    busy_engines = 0.5
    cancelled = None

    def times(self, name: str) -> Any:
        return np.array([0.1, 0.2])

    @property
    def replications(self) -> tuple[Any, ...]:
        return (SimpleNamespace(number=0, times=SimpleNamespace(ttft_s=self.times(""), tpot_s=self.times(""))),)


def fleet_question(*gpus: str, users: float, tensor_parallel_size: int | None = 1, **more: Any) -> FleetQuestion:
    offers = tuple(Offer(gpu=(gpu := find_gpu(name)), usd_per_hour=gpu.usd_per_hour or 1.0) for name in gpus)
    args = EngineArgs(tensor_parallel_size=tensor_parallel_size, **GIVEN)
    return FleetQuestion(
        architecture=load_model("llama-3.1-8b"), offers=offers, variants=(args,), workload=load_preset("chat"),
        think_time_s=84.0, users=users, **more,
    )  # fmt: skip


def simulate_as(
    monkeypatch: pytest.MonkeyPatch, users: Users, *, precision: float = 0.02, coarse: float = 1.0
) -> list[tuple[str, int, int]]:
    """Lets a formula stand in for simulations; the list fills with the GPU, TP and servers that were asked for.

    From few replications the users seem to be `coarse` times as many.
    """
    asked: list[tuple[str, int, int]] = []

    def row(table: CapacityTable, layout: Layout, servers: int, level: Level) -> CapacityRow:
        plan = layout.plan
        question = replace(table.question, gpus=(servers * plan.gpus,), args=plan.given, router=layout.router)
        asked.append((layout.offer.gpu.name, plan.tensor_parallel_size, servers))
        many = int(users(question, servers) * (coarse if level is Level.COARSE else 1.0))
        served: Any = Served()
        return CapacityRow(
            gpus=servers * plan.gpus, tp=plan.tensor_parallel_size, replicas=servers, users=many, users_low=many,
            users_high=many, precision=precision, is_precise=precision <= 0.05, replications=8,
            binding="TPOT: KV reads", point=served, reason=None if many else "not even 1 user meets the SLO",
            router=layout.router, evidence=level.word,
        )  # fmt: skip

    monkeypatch.setattr(sizing, "simulated_row", row)
    monkeypatch.setattr(sizing, "shares_nothing", lambda *_: False)
    monkeypatch.setattr(search, "as_capacity_has_it", lambda race, _: race)
    monkeypatch.setattr(sizing.Sizing, "_served", lambda *_: Served())
    return asked
