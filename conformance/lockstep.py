"""Our data-parallel ranks compared with vLLM's own engine cores, which take their steps together."""

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from conformance.cases.scheduler_case import MAX_STEPS, SEED, STEP_S, SchedulerCase
from conformance.cases.scheduler_cases import random_case
from conformance.our_steps import ReadableEngine
from conformance.probes.engine_loop import Load
from conformance.probing import Record, probe_records
from conformance.reference.vllm.requests import Plan
from conformance.reference.vllm.scheduler import Scheduler
from conformance.step_records import Difference, counts_json, first_difference, read_record
from simulator.engines.vllm.engine import with_release_rules
from simulator.fleet.fleet import Fleet, Pool
from simulator.latency.step_time import constant_step_times
from simulator.simulation import Simulation, StalledError

LOCKSTEP: Final = "lockstep"  # what its cases are about


@dataclass(frozen=True, kw_only=True)
class LockstepCase:
    """A server of so many ranks, to which requests go in turn."""

    case: SchedulerCase
    ranks: int

    def to_json(self) -> dict[str, Any]:
        """What the probe reads."""
        return self.case.to_json() | {"ranks": self.ranks}


@dataclass(kw_only=True)
class LockstepComparison:
    """What was compared, with the first difference of each case that has one."""

    seed: int
    vllm_version: str = ""
    cases: int = 0
    steps: int = 0
    deferred: int = 0  # cases in which prompts waited for their step
    cut_short: int = 0  # cases that had not ended after MAX_STEPS steps of each rank on average
    differences: list[Difference] = field(default_factory=list)

    def says(self) -> str:
        """How much, as text."""
        return (
            f"vLLM {self.vllm_version}, seed {self.seed}: {self.cases:,} servers of data-parallel ranks, "
            f"{self.steps:,} steps, prompts deferred in {self.deferred:,} of them compared"
        )

    def first(self) -> list[str]:
        """The first difference, as lines."""
        return self.differences[0].lines() if self.differences else []

    def to_json(self) -> dict[str, Any]:
        return counts_json(vars(self), self.differences)


def lockstep_case(seed: int, number: int) -> LockstepCase:
    """Case `number` of a seed: two to four ranks, that compute prompts in each step or every few."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, number, 8]))
    case = random_case(seed, number)
    interval = int(rng.choice([1, 2, 2, 3, 4, 8]))
    engine = replace(case.engine, pipeline_parallel_size=1, prefill_schedule_interval=interval)
    return LockstepCase(case=replace(case, engine=engine), ranks=int(rng.choice([2, 2, 3, 4])))


def check_lockstep(
    python: Path, *, num_cases: int, seed: int, watch: Callable[[LockstepComparison], None] = lambda _: None
) -> LockstepComparison:
    """Run `num_cases` random cases through vLLM's engine cores under `python`, the readable scheduler and the core.

    Raises HeadcountError where vLLM cannot be driven there.
    """
    found = LockstepComparison(seed=seed)
    cases = [lockstep_case(seed, number) for number in range(num_cases)]
    lines = (case.to_json() for case in cases)
    steps: list[Record] = []
    failure = "vLLM's engine cores could not be driven"
    with closing(probe_records(python, "lockstep_probe", lines, failure=failure)) as records:
        for record in records:
            if "vllm_version" in record:
                found.vllm_version = record["vllm_version"]
            elif "case" in record:
                _compare(found, cases[found.cases], steps)
                watch(found)
                steps = []
            else:
                steps.append(read_record(record))
    return found


def _compare(found: LockstepComparison, asked: LockstepCase, theirs: Sequence[Record]) -> None:
    case = asked.case
    asked = replace(asked, case=replace(case, engine=with_release_rules(case.engine, found.vllm_version)))
    number = found.cases
    found.cases += 1
    found.steps += len(theirs)
    plain = replace(asked.case.engine, prefill_schedule_interval=1)
    ours, core = readable_ranks(asked), core_ranks(asked)
    is_cut = len(theirs) >= MAX_STEPS * asked.ranks
    found.cut_short += is_cut
    end = MAX_STEPS if is_cut else None  # each side stops elsewhere beyond
    found.deferred += readable_ranks(replace(asked, case=replace(asked.case, engine=plain))) != ours
    for rank in range(asked.ranks):
        of_vllm = [record for record in theirs if record["rank"] == rank]
        for of, steps in (("readable scheduler", ours[rank]), ("compiled core", core[rank])):
            of_rank = f"{of}, rank {rank}"
            difference = first_difference(case.engine, steps[:end], of_vllm[:end], of=of_rank, case=number)
            if difference is not None:
                found.differences.append(difference)
                return


def core_ranks(asked: LockstepCase) -> list[list[Record]]:
    """The compiled core's decisions, by rank."""
    engine, table = asked.case.engine, asked.case.table
    times = constant_step_times(
        STEP_S, max_num_batched_tokens=engine.max_num_batched_tokens, max_num_seqs=engine.max_num_seqs
    )
    pool = Pool(engine=engine, step_times=times, data_parallel_size=asked.ranks)
    simulation = Simulation(Fleet(pools=(pool,), router="round-robin"), table, log_steps=True, seed=SEED)
    with suppress(StalledError):  # vLLM would wait for ever
        simulation.run(MAX_STEPS * STEP_S + float(np.nanmax(table.arrival_s)))
    hits = simulation.requests["cached_tokens"].tolist()
    ranks: list[list[Record]] = [[] for _ in range(asked.ranks)]
    seen = set[int]()
    for step in simulation.steps:
        new = {row: hits[row] for row in step.scheduled if row not in seen}
        seen.update(new)
        ranks[step.replica].append({**step.to_json(), "scheduled": step.scheduled, "new": new})
    return ranks


def readable_ranks(asked: LockstepCase) -> list[list[Record]]:
    """The readable schedulers', by rank; the loop stands for vLLM's busy loops and the collectives between them."""
    return ReadableServer(asked).run()


class ReadableServer:
    """Readable schedulers that take their steps together."""

    def __init__(self, asked: LockstepCase) -> None:
        self.load = Load(asked.case.to_json()["requests"])
        self.ranks = [ReadableRank(asked.case) for _ in range(asked.ranks)]
        self.interval = asked.case.engine.prefill_schedule_interval
        self.step_counter, self.last_end_s, self.num_given = 0, 0.0, 0

    def run(self) -> list[list[Record]]:
        while sum(len(rank.records) for rank in self.ranks) < MAX_STEPS * len(self.ranks):
            given = self._give()
            is_idle = not any(rank.has_work for rank in self.ranks)
            is_stuck = not any(rank.queue or rank.has_decided for rank in self.ranks)
            if (is_idle or is_stuck) and not given:
                if not self.load.wait():
                    break
                continue
            self._turn()
        return [rank.records for rank in self.ranks]

    def _give(self) -> bool:
        given = False
        for arrival_s, row in self.load.due():
            rank = self.ranks[self.num_given % len(self.ranks)]
            rank.engine.add(row, self.load.requests[row], arrival_s)
            self.num_given, given = self.num_given + 1, True
        return given

    def _turn(self) -> None:
        """Every rank decides a step, or waits for its oldest; they begin the next turn together."""
        begun_s = self.load.now_s
        end_s = max(self.last_end_s, begun_s) + STEP_S
        throttles = self.interval > 1 and self.step_counter % self.interval != 0
        finished: list[tuple[float, int]] = []
        latest_s = begun_s
        for rank in self.ranks:
            ended_s = rank.turn(begun_s, end_s, throttles=throttles)
            if rank.executed:
                self.last_end_s = end_s
            latest_s = max(latest_s, ended_s)
            finished += [(ended_s, row) for row in rank.finished]
        for ended_s, row in finished:
            self.load.now_s = ended_s
            self.load.follow_up([row])
        self.load.now_s = latest_s
        self.step_counter += 1
        if not any(rank.engine.scheduler.has_unfinished_requests for rank in self.ranks):
            self.step_counter = 0


class ReadableRank:
    """One of them, with its steps in flight."""

    def __init__(self, case: SchedulerCase) -> None:
        self.engine = ReadableEngine(Scheduler(case.engine))
        self.scheduler = self.engine.scheduler
        assert isinstance(self.scheduler, Scheduler)
        self.scheduler.cadence.share()
        self.depth = case.engine.plans_in_flight
        self.queue: list[tuple[float, Plan]] = []  # with when it ends
        self.records: list[Record] = []
        self.has_decided = self.executed = self.has_news = False
        self.finished: list[int] = []

    @property
    def has_work(self) -> bool:
        return self.scheduler.has_unfinished_requests or bool(self.queue) or self.has_news

    def turn(self, now_s: float, end_s: float, *, throttles: bool) -> float:
        """One turn of vLLM's loop (`step`, `step_with_batch_queue`); returns when it is over."""
        self.has_decided, self.finished = False, []
        self.executed = False
        if self.scheduler.has_unfinished_requests:
            plan, record = self.engine.schedule(throttle_prefills=throttles)
            self.records.append(record)
            self.executed = bool(record["scheduled"])
            self.has_decided = self.executed or bool(record["preempted"])
            last_s = self.queue[-1][0] if self.queue else now_s
            self.queue.append((end_s if self.executed else last_s, plan))
            self.has_news = False
            if self.depth > 1 and len(self.queue) < self.depth:
                return now_s
        elif not self.queue or self.has_news:
            self.has_news = False
            if not self.queue:
                return now_s
        ended_s, oldest = self.queue.pop(0)
        self.has_decided |= bool(oldest.num_scheduled_tokens)
        self.finished = [request.id for request in self.scheduler.complete(oldest)]
        if self.finished:
            self.records[-1]["finished"] += self.finished
            self.has_news = True
        return max(now_s, ended_s)
