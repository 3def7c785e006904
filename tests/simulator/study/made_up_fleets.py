"""Fleets whose capacity is a formula, so that a search over them takes no simulation."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kvcache.models.catalog import find_gpu, load_model
from simulator.engines.vllm.arguments import EngineArgs
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_row import CapacityRow
from simulator.study.fleets import sizing
from simulator.study.fleets.layouts import FleetQuestion, Offer
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
    monkeypatch: pytest.MonkeyPatch, users: Users, *, precision: float = 0.02, told_by: int = 0
) -> list[tuple[str, int, int]]:
    """Lets a formula stand in for simulations; the list fills with the GPU, TP and servers that were asked for.

    With fewer replications than `told_by` nothing is safe to promise.
    """
    asked: list[tuple[str, int, int]] = []

    def rows(question: CapacityQuestion, *_: Any) -> Iterator[CapacityRow]:
        tp = question.args.tensor_parallel_size or 1
        servers = question.gpus[0] // tp
        asked.append((question.gpu.name, tp, servers))
        many = users(question, servers)
        low = many if question.replications is None or question.replications >= told_by else 0
        served: Any = Served()
        yield CapacityRow(
            gpus=question.gpus[0], tp=tp, replicas=servers, users=many, users_low=low, users_high=many,
            precision=precision, is_precise=precision <= 0.05, replications=8, binding="TPOT: KV reads", point=served,
            reason=None if many else "not even 1 user meets the SLO",
        )  # fmt: skip

    monkeypatch.setattr(sizing, "capacity_rows", rows)
    monkeypatch.setattr(sizing.Sizing, "_served", lambda *_: Served())
    return asked
