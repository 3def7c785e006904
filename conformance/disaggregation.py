"""Prefill and decode apart: what our two schedulers decide in a case, step by step, beside two kinds of vLLM's engines.

The readable schedulers are stepped as vLLM's engine cores are.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from conformance.cases.disaggregation_cases import ApartCase, disaggregated_case, simulate_disaggregated
from conformance.cases.scheduler_case import MAX_STEPS
from conformance.connector_core import ReadableCore
from conformance.probes.disaggregation_loop import BusyLoop, DisaggregatedDeployment
from conformance.probes.engine_loop import POLL_S, Load
from conformance.probing import Record, probe_records
from conformance.reference.vllm.connectors.pulling_scheduler import PullingPlan, PullingScheduler
from conformance.reference.vllm.connectors.pushing import PushNetwork
from conformance.scheduler import READABLE, Comparison
from conformance.step_records import Difference, first_difference, num_prefix_hits, read_record
from simulator.engines.vllm.connectors.pulling import Network
from simulator.engines.vllm.engine import EngineConfig

DISAGGREGATED, PUSH = "disaggregated", "push"  # what its cases are about


def readable_disaggregated_steps(case: ApartCase) -> list[list[Record]]:
    """The readable schedulers' decisions: of each engine one record per `schedule()` call."""
    found = case.to_json()
    load = Load(found["requests"])
    pools = [pool for pool in case.pools for _ in range(pool.num_engines)]
    nics = [pool.nic for pool in pools if pool.nic]
    network = PushNetwork(nics) if case.handover.pushes else Network(nics)
    loops = [
        BusyLoop(number, lambda loop: EngineCore(case, loop, load, network), load, POLL_S)
        for number in range(len(pools))
    ]
    return DisaggregatedDeployment(load, loops, network, found).run(MAX_STEPS)


class EngineCore(ReadableCore[PullingPlan]):
    """With KV from other engines."""

    def __init__(self, case: ApartCase, loop: BusyLoop, load: Load, network: Network | PushNetwork) -> None:
        pool, step_s = case.of_engine(loop.number)
        assert isinstance(pool.engine, EngineConfig)
        self.pulling = PullingScheduler(pool.engine)
        super().__init__(self.pulling, load, step_s=step_s, plans_in_flight=pool.engine.plans_in_flight)
        self._number, self._network, self._loop = loop.number, network, loop

    def enter(self, row: int, arrival_s: float) -> None:
        """A request arrives, to be prefilled: its first token ends it."""
        self.add(row, self.load.requests[row] | {"output_tokens": 1}, arrival_s)
        self.requests[row].do_remote_decode = True

    def enter_prefilled(self, row: int, arrival_s: float, _: "EngineCore") -> None:
        """A request arrives whose KV another engine has, or computes."""
        self.add(row, self.load.requests[row], arrival_s)
        self.requests[row].do_remote_prefill = True

    def begin_s(self, _: PullingPlan) -> float:
        return self.load.now_s

    def launch(self, plan: PullingPlan, _: float) -> None:
        self._network.launch(self._number, plan.pulls, self.load.now_s)

    def await_step(self, plan: PullingPlan, end_s: float) -> None:
        if plan.num_scheduled_tokens or end_s > self.load.now_s:
            self._loop.sleep_in_step(end_s)

    @property
    def num_begun(self) -> int:
        """Reads so far."""
        return self.pulling.num_begun

    @property
    def has_transfers(self) -> bool:
        return self.pulling.num_transfers > self._network.num_lost(self._number)

    @property
    def has_news(self) -> bool:
        """Whether a step would clear up, or take in reads that are over."""
        is_over = self._network.next_end_s(self._number) <= self.load.now_s
        is_told = any(plan.pulls.sent or plan.pulls.received for _, plan in self.queue)
        return bool(is_over or is_told or self.is_computing or self.pulling.ended)

    @property
    def next_transfer_s(self) -> float:
        return self._network.next_end_s(self._number)


def core_disaggregated_steps(case: ApartCase) -> list[list[Record]]:
    """The compiled core's decisions: of each engine one record per `schedule()` call."""
    simulation = simulate_disaggregated(case)
    cached, count = simulation.requests["cached_tokens"], len(simulation.requests)
    handovers = simulation.arrays.handovers[:count]
    prefilled = simulation.arrays.requests["cached_tokens"][count:]
    if not case.handover.pushes:
        prefilled = np.where(handovers["stage"] == 1, handovers["cached_tokens"], cached)
    hits = [prefilled.tolist(), cached.tolist()]
    records: list[list[Record]] = [[] for _ in range(simulation.fleet.num_engines)]
    seen: list[set[int]] = [set() for _ in records]
    for step in simulation.steps:
        decodes = step.replica >= case.pools[0].num_engines
        new = {row: hits[decodes][row] for row in step.scheduled if row not in seen[step.replica]}
        seen[step.replica].update(new)
        records[step.replica].append({**step.to_json(), "scheduled": step.scheduled, "new": new})
    return [found[:MAX_STEPS] for found in records]


def check_disaggregated(
    python: Path,
    *,
    num_cases: int,
    seed: int,
    watch: Callable[[Comparison], None] = lambda _: None,
    pushes: bool = False,
) -> Comparison:
    """Run `num_cases` random cases through vLLM's engine cores under `python`, the readable schedulers and the core.

    `pushes`: with its NixlPushConnector, else with its NixlConnector.
    Raises HeadcountError where vLLM cannot be driven there.
    """
    cases = [disaggregated_case(seed, number, pushes=pushes) for number in range(num_cases)]
    found = Comparison(seed=seed, about=PUSH if pushes else DISAGGREGATED)
    for case, theirs in zip(cases, _probe(python, cases, found), strict=True):
        _compare(found, case.under(found.vllm_version), theirs)
        watch(found)
    return found


def _compare(found: Comparison, case: ApartCase, theirs: Sequence[list[Record]]) -> None:
    number = found.cases
    found.cases += 1
    found.cut_short += any(len(records) == MAX_STEPS for records in theirs)
    for records in theirs:
        found.steps += len(records)
        found.preemptions += sum(len(record["preempted"]) for record in records)
        found.prefix_hits += num_prefix_hits(records)
        found.resumed_hits += num_prefix_hits(records, "resumed")
    difference = difference_of(case, readable_disaggregated_steps(case), theirs, of=READABLE, number=number)
    difference = difference or difference_of(
        case, core_disaggregated_steps(case), theirs, of="compiled core", number=number
    )
    if difference is not None:
        found.differences.append(difference)


def difference_of(
    case: ApartCase, ours: Sequence[list[Record]], theirs: Sequence[list[Record]], *, of: str, number: int
) -> Difference | None:
    """The first `schedule()` call of an engine that was decided otherwise.

    Where an engine reached MAX_STEPS, or none goes on for ever, the others' last steps are not compared.
    """
    is_cut = any(len(records) == MAX_STEPS for records in (*ours, *theirs)) or any(map(_is_stalled, ours))
    for engine, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        until = min(len(one), len(other)) - 1 if is_cut else None  # who finishes is entered with the latest
        settings = case.of_engine(engine)[0].engine
        assert isinstance(settings, EngineConfig)
        difference = first_difference(settings, one[:until], other[:until], of=of, case=number)
        if difference is not None:
            return difference
    return None


def _is_stalled(records: Sequence[Record]) -> bool:
    """Whether they end with nothing running and a request waiting."""
    return bool(records) and records[-1]["waiting"] > 0 and records[-1]["running"] == 0


def _probe(python: Path, cases: Sequence[ApartCase], found: Comparison) -> Iterator[list[list[Record]]]:
    """Every case's steps as vLLM's engines took them, as they come."""
    engines: list[list[Record]] = []
    steps: list[Record] = []
    lines = (case.to_json() for case in cases)
    failure = "vLLM's schedulers could not be driven"
    with closing(probe_records(python, "nixl_probe", lines, failure=failure)) as records:
        for record in records:
            if "vllm_version" in record:
                found.vllm_version = record["vllm_version"]
            elif "engine" in record:
                engines.append(steps)
                steps = []
            elif "case" in record:
                yield engines
                engines = []
            else:
                steps.append(read_record(record))
