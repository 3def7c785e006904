"""Our schedulers of a server under attention data parallelism beside SGLang's own, which run their batches together."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import numpy as np

from conformance.cases.sglang_cases import MAX_STEPS, SGLANG_CASES, STEP_S, SGLangCase
from conformance.probes.engine_loop import Load
from conformance.probing import Record, probe_records
from conformance.reference.sglang.kv_pool import ServerEndsError
from conformance.reference.sglang.scheduler import Plan, Scheduler
from conformance.sglang_scheduler import first_of, record_of, requests_of

RANKS: Final = "attention-dp"  # what its cases are about
OF_CASES: Final = ("all", "cancelled", "speculative", "windows", "states", "speculative-states")  # in turn


@dataclass(frozen=True, kw_only=True)
class RanksCase:
    """A server of so many ranks, to which requests go in turn."""

    case: SGLangCase
    ranks: int

    def to_json(self) -> dict[str, Any]:
        """What the probe reads."""
        return self.case.to_json() | {"ranks": self.ranks}


@dataclass(kw_only=True)
class RanksComparison:
    """What was compared, with the first batch of each case that was decided otherwise."""

    seed: int
    sglang_version: str = ""
    cases: int = 0
    batches: int = 0
    retractions: int = 0
    waited: int = 0  # batches of ranks that could have decoded, but for another's prefill
    crashed: int = 0  # cases that SGLang's server would not have survived
    cut_short: int = 0  # after MAX_STEPS batches of each rank on average
    differences: list[Record] = field(default_factory=list)

    def says(self) -> str:
        """How much, as text."""
        return (
            f"SGLang {self.sglang_version}, seed {self.seed}: {self.cases:,} servers of ranks, {self.batches:,} "
            f"batches, {self.retractions:,} retractions, {self.waited:,} waits for others' prefills compared"
        )

    def first(self) -> list[str]:
        """The first difference, as lines."""
        return first_of(self.differences)

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return vars(self) | {"differing_cases": len(self.differences)}


def ranks_case(seed: int, number: int) -> RanksCase:
    """Case `number` of a seed: two to four ranks, with all that single engines are compared with in turn.

    No policy draws: each rank would have a generator of its own.
    """
    rng = np.random.default_rng(np.random.SeedSequence([seed, number, 6]))
    case = SGLANG_CASES[OF_CASES[number % len(OF_CASES)]](seed, number)
    if case.engine.schedule_policy == "random":
        case = replace(case, engine=replace(case.engine, schedule_policy="fcfs"))
    return RanksCase(case=case, ranks=int(rng.choice([2, 2, 3, 4])))


def check_ranks(
    python: Path, *, num_cases: int, seed: int, watch: Callable[[RanksComparison], None] = lambda _: None
) -> RanksComparison:
    """Run random cases through SGLang's schedulers under `python` and through ours.

    Raises HeadcountError where SGLang cannot be driven there.
    """
    cases = [ranks_case(seed, number) for number in range(num_cases)]
    failure = "SGLang's schedulers could not be driven"
    records = probe_records(python, "sglang_ranks_probe", (case.to_json() for case in cases), failure=failure)
    found = RanksComparison(seed=seed, sglang_version=next(records)["sglang_version"])
    for case, theirs in zip(cases, records, strict=True):
        _compare(found, case, theirs)
        watch(found)
    return found


def _compare(found: RanksComparison, asked: RanksCase, theirs: Record) -> None:
    server = OurServer(asked)
    server.run()
    batches: Sequence[Record] = theirs["records"]
    found.cases += 1
    found.batches += len(batches)
    found.retractions += sum(len(batch["retracted"]) for batch in batches)
    found.waited += server.num_waits
    found.crashed += theirs["crashed"]
    is_cut = len(batches) >= MAX_STEPS * asked.ranks
    found.cut_short += is_cut
    for rank, ours in enumerate(server.records):
        of_sglang = [{k: v for k, v in batch.items() if k != "rank"} for batch in batches if batch["rank"] == rank]
        for number, (one, other) in enumerate(zip_longest(ours, of_sglang)):
            if one != other:
                where = {"case": asked.case.name, "rank": rank, "batch": number}
                found.differences.append(where | {"ours": one, "sglang": other})
                return
    if server.crashed != theirs["crashed"]:
        where = {"case": asked.case.name, "batch": "end"}
        found.differences.append(where | {"ours": server.crashed, "sglang": theirs["crashed"]})


class OurServer:
    """Our schedulers on a case's load, with every decision recorded. The loop stands for the ranks' event loops."""

    def __init__(self, asked: RanksCase) -> None:
        self.load, self.requests = Load(asked.case.to_json()["requests"]), requests_of(asked.case)
        engine = asked.case.engine
        self.depth, self.has_drafts = engine.plans_in_flight, engine.speculation is not None
        self.ranks = [Scheduler(engine) for _ in range(asked.ranks)]
        self.records: list[list[Record]] = [[] for _ in self.ranks]
        self.in_flight: list[tuple[float, list[Plan]]] = []  # by turns, with when they end
        self.rank_of: dict[int, int] = {}
        self.gpu_free_s, self.num_waits, self.crashed = 0.0, 0, False

    def run(self) -> None:
        with suppress(StopIteration):
            try:
                while sum(map(len, self.records)) < MAX_STEPS * len(self.ranks):
                    self._turn()
            except ServerEndsError:
                self.crashed = True

    def _turn(self) -> None:
        """Take in who has come, decide a batch of each rank, take in the outputs of a turn before."""
        self._give()
        was_computing = bool(self.in_flight)
        plans = self._decide()
        for records, plan in zip(self.records, plans, strict=True):
            if plan.num_tokens or plan.retracted or plan.aborted:
                records.append(record_of(plan))
        if any(plan.num_tokens for plan in plans):
            self.gpu_free_s = max(self.gpu_free_s, self.load.now_s) + STEP_S
            self.in_flight.append((self.gpu_free_s, plans))
        if was_computing or len(self.in_flight) == self.depth:
            self._complete()
        elif not self.in_flight:
            self._wait()

    def _give(self) -> None:
        for arrival_s, row in self.load.due():
            rank = self.ranks[self.rank_of.setdefault(row, len(self.rank_of) % len(self.ranks))]
            if arrival_s == math.inf:
                rank.abort(self.requests[row])
            else:
                rank.add_request(self.requests[row])

    def _decide(self) -> list[Plan]:
        """With drafts, no rank decodes while another prefills."""
        prefills = [rank.schedule_prefill() for rank in self.ranks]
        waits = self.has_drafts and any(prefills)
        self.num_waits += waits * sum(
            batch is None and bool(rank.running_batch.reqs) for rank, batch in zip(self.ranks, prefills, strict=True)
        )
        return [rank.schedule_rest(batch, waits=waits) for rank, batch in zip(self.ranks, prefills, strict=True)]

    def _complete(self) -> None:
        self.load.now_s, plans = self.in_flight.pop(0)
        for rank, plan, records in zip(self.ranks, plans, self.records, strict=True):
            finished = [request.id for request in rank.complete(plan)]
            if finished:
                records[-1]["finished"] += finished
            self.load.follow_up([row for row in finished if not self.load.has_ended(row)])

    def _wait(self) -> None:
        """The server is idle: wait for whoever comes next; StopIteration where nobody does."""
        for rank in self.ranks:
            if not rank.has_unfinished_requests:
                rank.on_idle()
        if not self.load.wait():
            raise StopIteration
