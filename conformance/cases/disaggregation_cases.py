"""Random cases for laying disaggregated prefill/decode beside two kinds of vLLM's engines."""

import contextlib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from conformance.cases.request_tables import TICK_S, cancellations, random_table
from conformance.cases.scheduler_case import MAX_STEPS, STEP_S, SchedulerCase
from conformance.cases.scheduler_cases import narrow_engine
from kvcache.layout.kv_layout import KVGroup
from simulator.engines.vllm.connectors.pulling import KV_BOTH, KV_CONSUMER, KV_PRODUCER, Nic
from simulator.engines.vllm.engine import EngineConfig, with_release_rules
from simulator.fleet.fleet import Fleet, Handover, Pool
from simulator.fleet.pool_sizes import DECODE, PREFILL
from simulator.latency.step_time import constant_step_times
from simulator.simulation import Simulation, StalledError
from workloads.requests import RequestTable, with_waits


@dataclass(frozen=True, kw_only=True)
class ApartCase:
    """A pool that prefills and a pool that decodes, with a load; all engines of a pool take so long for each step."""

    pools: tuple[Pool, Pool]
    steps_s: tuple[float, float]
    handover: Handover
    table: RequestTable

    def of_engine(self, number: int) -> tuple[Pool, float]:
        """The pool of an engine, with the time of its steps."""
        place = int(number >= self.pools[0].num_engines)
        return self.pools[place], self.steps_s[place]

    def to_json(self) -> dict[str, Any]:
        """What the probe reads."""
        numbers = range(sum(pool.num_engines for pool in self.pools))
        return {
            "requests": _as_scheduler_case(self.pools[0], self.table)["requests"],
            "num_prefill": self.pools[0].num_engines,
            "engines": [self._engine(number) for number in numbers],
            "dispatch_s": self.handover.dispatch_s,
            "pushes": self.handover.pushes,
            "lease_s": self.handover.lease_s,
            "max_steps": MAX_STEPS,
            "has_latent_attention": False,
            "context_ranks": 1,
        }

    def _engine(self, number: int) -> dict[str, Any]:
        pool, step_s = self.of_engine(number)
        assert pool.nic is not None
        found: dict[str, Any] = _as_scheduler_case(pool, self.table)["engine"]
        return found | {"step_s": step_s} | asdict(pool.nic)

    def under(self, vllm_version: str) -> "ApartCase":
        """The same under a release's rules."""
        pools = [_with_engine(pool, with_release_rules(_engine_of(pool), vllm_version)) for pool in self.pools]
        return ApartCase(pools=(pools[0], pools[1]), steps_s=self.steps_s, handover=self.handover, table=self.table)


def _engine_of(pool: Pool) -> EngineConfig:
    assert isinstance(pool.engine, EngineConfig)
    return pool.engine


def _with_engine(pool: Pool, engine: EngineConfig) -> Pool:
    return Pool(engine=engine, step_times=pool.step_times, num_servers=pool.num_servers, role=pool.role, nic=pool.nic)


def _as_scheduler_case(pool: Pool, table: RequestTable) -> dict[str, Any]:
    return SchedulerCase(engine=_engine_of(pool), table=table).to_json()


def disaggregated_case(seed: int, number: int, *, pushes: bool = False) -> ApartCase:
    """Case `number` of a seed, with one or two engines of each kind in pools of any size; clients cancel in a third.

    `pushes`: prefill engines write into decode engines.
    """
    rng = np.random.default_rng(np.random.SeedSequence([seed, number, 3]))
    block_size = int(rng.choice([8, 16, 32]))
    table = random_table(rng, num_requests=int(rng.integers(8, 60)), block_size=block_size)
    if number % 3 == 0:
        table = with_waits(table, cancellations(rng, table))
    shared: dict[str, Any] = {
        "async_scheduling": bool(rng.random() < 0.6),
        "enable_prefix_caching": bool(rng.random() < 0.85),
        "kv_groups": _groups(rng, block_size),
    }
    if any(group.window is not None for group in shared["kv_groups"]):
        shared["prefix_cache_retention_interval"] = [None, 0, 0, 4 * block_size][int(rng.integers(4))]
    steps_s = (float(rng.choice([1, 2])) * STEP_S, STEP_S)
    roles = (KV_BOTH, KV_BOTH) if rng.random() < 0.2 else (KV_PRODUCER, KV_CONSUMER)
    pools = [
        Pool(
            engine=_engine(rng, table, block_size, kv_role=kv_role, **shared),
            step_times=constant_step_times(step_s, max_num_batched_tokens=2048, max_num_seqs=64),
            num_servers=int(rng.choice([1, 1, 2])),
            role=role,
            nic=Nic(
                block_s=float(rng.choice([0.0, STEP_S / 64, STEP_S / 8, STEP_S / 2])),
                transfer_s=float(rng.choice([STEP_S / 64, STEP_S / 8, 2 * STEP_S])),
                post_s=float(rng.choice([0.0, 0.0, STEP_S / 16])),
            ),
        )
        for role, kv_role, step_s in zip((PREFILL, DECODE), roles, steps_s, strict=True)
    ]
    dispatch_s, lease_s = int(rng.choice([0, 1, 5, 11])) * TICK_S, int(rng.choice([12, 200])) * TICK_S
    handover = Handover(dispatch_s=dispatch_s, lease_s=lease_s, pushes=pushes)
    return ApartCase(pools=(pools[0], pools[1]), steps_s=steps_s, handover=handover, table=table)


def _groups(rng: np.random.Generator, block_size: int) -> tuple[KVGroup, ...]:
    """Full attention in all layers, or windows of up to six blocks in some or in all."""
    if rng.random() < 0.5:
        return (KVGroup(None),)
    windows = [int(rng.integers(2, 6 * block_size)) for _ in range(2)]
    full, one, other = KVGroup(None), KVGroup(windows[0]), KVGroup(windows[1])
    return [(full, one), (full, one, one), (one,), (full, one, other), (full, full, one)][int(rng.integers(5))]


def _engine(rng: np.random.Generator, table: RequestTable, block_size: int, **settings: Any) -> EngineConfig:
    return narrow_engine(
        rng,
        table,
        block_size=block_size,
        spare_blocks=int(rng.choice([0, 2, 6, 20, 100])),
        max_num_seqs=int(rng.choice([2, 5, 32])),
        max_num_batched_tokens=int(rng.choice([32, 64, 256, 2048])),
        long_prefill_token_threshold=int(rng.choice([0, 0, 7])),
        watermark=float(rng.choice([0.0, 0.0, 0.1])),
        scheduler_reserve_full_isl=bool(rng.random() < 0.7),
        **settings,
    )


def simulate_disaggregated(case: ApartCase) -> Simulation:
    """Run a case in the compiled core, up to MAX_STEPS steps at least, or to where a request can never be scheduled."""
    fleet = Fleet(pools=case.pools, router="round-robin", handover=case.handover)
    simulation = Simulation(fleet, case.table, log_steps=True)
    with contextlib.suppress(StalledError):  # vLLM would wait for ever
        simulation.run(MAX_STEPS * STEP_S + float(np.nanmax(case.table.arrival_s)))
    return simulation
