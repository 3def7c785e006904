"""Our SGLang scheduler beside SGLang's own, batch by batch."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from conformance.cases.sglang_cases import MAX_STEPS, SGLANG_CASES, STEP_S, SGLangCase
from conformance.probes.engine_loop import Load, Pipeline
from conformance.probing import Record, probe_records
from conformance.reference.engine import Engine
from conformance.reference.sglang.kv_pool import ServerEndsError
from conformance.reference.sglang.scheduler import Plan, Scheduler
from simulator.engines.sglang.request import Request


def first_of(differences: Sequence[Record]) -> list[str]:
    """The first of them, as lines."""
    return [f"  {name}: {value}" for name, value in differences[0].items()] if differences else []


@dataclass(kw_only=True)
class SGLangComparison:
    """What was compared, with the first batch of each case that was decided otherwise."""

    seed: int
    sglang_version: str = ""
    cases: int = 0
    batches: int = 0
    retractions: int = 0
    radix_hits: int = 0  # admissions with a prefix that the tree had
    finished: int = 0
    aborted: int = 0
    crashed: int = 0  # cases that SGLang's server would not have survived
    cut_short: int = 0  # after MAX_STEPS batches
    options: Counter[str] = field(default_factory=Counter)  # in how many cases each was set
    differences: list[Record] = field(default_factory=list)

    def says(self) -> str:
        """How much, as text."""
        return (
            f"SGLang {self.sglang_version}, seed {self.seed}: {self.cases:,} cases, {self.batches:,} batches, "
            f"{self.retractions:,} retractions, {self.radix_hits:,} radix hits compared"
        )

    def first(self) -> list[str]:
        """The first difference, as lines."""
        return first_of(self.differences)

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return vars(self) | {"options": dict(self.options), "differing_cases": len(self.differences)}


def check_sglang_scheduler(
    python: Path,
    *,
    num_cases: int,
    seed: int,
    about: str = "all",
    watch: Callable[[SGLangComparison], None] = lambda _: None,
) -> SGLangComparison:
    """Run random cases through SGLang's scheduler under `python` and through ours.

    Raises HeadcountError where SGLang cannot be driven there.
    """
    cases = [SGLANG_CASES[about](seed, number) for number in range(num_cases)]
    failure = "SGLang's scheduler could not be driven"
    records = probe_records(python, "sglang_scheduler_probe", (case.to_json() for case in cases), failure=failure)
    found = SGLangComparison(seed=seed, sglang_version=next(records)["sglang_version"])
    for case, theirs in zip(cases, records, strict=True):
        _compare(found, case, theirs)
        watch(found)
    return found


def _compare(found: SGLangComparison, case: SGLangCase, theirs: Record) -> None:
    _count(found, case, theirs)
    ours, our_crash = our_batches(case)
    batches = theirs["records"]
    for number, (one, other) in enumerate(zip_longest(ours, batches)):
        if one != other:
            found.differences.append({"case": case.name, "batch": number, "ours": one, "sglang": other})
            return
    if our_crash != theirs["crashed"]:
        found.differences.append({"case": case.name, "batch": "end", "ours": our_crash, "sglang": theirs["crashed"]})


def _count(found: SGLangComparison, case: SGLangCase, theirs: Record) -> None:
    batches = theirs["records"]
    found.cases += 1
    found.batches += len(batches)
    found.crashed += theirs["crashed"]
    found.cut_short += len(batches) >= MAX_STEPS
    found.retractions += sum(len(batch["retracted"]) for batch in batches)
    found.aborted += sum(len(batch["aborted"]) for batch in batches)
    found.finished += sum(len(batch["finished"]) for batch in batches)
    found.radix_hits += _num_hits(batches)
    found.options.update(case_options(case))


def _num_hits(batches: list[Record]) -> int:
    """A request's first chunk begins after a known prefix; its later ones after the chunk before."""
    hits, chunk_ends = 0, dict[int, int]()
    for batch in batches:
        tokens = dict(batch["scheduled"])
        hits += sum(bool(prefix) and chunk_ends.get(row) != prefix for row, prefix in batch["prefixes"])
        chunk_ends = {row: prefix + tokens[row] for row, prefix in batch["prefixes"]}
    return hits


def case_options(case: SGLangCase) -> list[str]:
    """What a case sets, by option."""
    engine = case.engine
    flags = ("disable_overlap_schedule", "disable_radix_cache", "enable_mixed_chunk")
    named = [f"{name}: {getattr(engine, name)}" for name in ("schedule_policy", "page_size", "radix_eviction_policy")]
    chunks = [] if engine.chunked_prefill_size else ["no chunks"]
    return [*named, *(name for name in flags if getattr(engine, name)), *chunks]


def our_batches(case: SGLangCase) -> tuple[list[Record], bool]:
    """What ours decides, and whether it ends for want of memory. The loop stands for SGLang's event loops."""
    loop = OurLoop(case)
    try:
        while len(loop.records) < MAX_STEPS and loop.turn():
            pass
    except ServerEndsError:
        return loop.records, True
    return loop.records, False


class OurLoop:
    """Our scheduler on a case's load, with every decision recorded."""

    def __init__(self, case: SGLangCase) -> None:
        self.case, self.records = case, list[Record]()
        self.load, self.pipeline = Load(case.to_json()["requests"]), Pipeline(STEP_S, 1)
        self.requests = requests_of(case)
        self.scheduler = Scheduler(case.engine)
        self.engine: Engine[Request, Plan] = self.scheduler
        self.in_flight: list[tuple[float, Plan]] = []  # with when it ends

    def turn(self) -> bool:
        """Take in who has come, decide a batch, take in the output of one; False where all is done."""
        for arrival_s, row in self.load.due():
            if arrival_s == math.inf:
                self.engine.abort(self.requests[row])
            else:
                self.engine.add_request(self.requests[row])
        was_computing = bool(self.in_flight)
        plan = self.engine.schedule()
        if plan.num_tokens or plan.retracted or plan.aborted:
            self.records.append(record_of(plan))
        if plan.num_tokens:
            self.in_flight.append((self.pipeline.end_s(self.load.now_s), plan))
        if was_computing or len(self.in_flight) == self.case.engine.plans_in_flight:
            self._complete()
            return True
        return bool(self.in_flight) or self._go_on()

    def _complete(self) -> None:
        self.load.now_s, plan = self.in_flight.pop(0)
        finished = [request.id for request in self.engine.complete(plan)]
        self.records[-1]["finished"] += finished
        self.load.follow_up([row for row in finished if not self.load.has_ended(row)])

    def _go_on(self) -> bool:
        """The engine is idle: wait for whoever comes next; False where nobody does."""
        if not self.engine.has_unfinished_requests:
            self.scheduler.on_idle()
        return self.load.wait()


def requests_of(case: SGLangCase) -> list[Request]:
    return [
        Request(
            id=row,
            spans=given.spans,
            num_prompt_tokens=given.prompt_tokens,
            max_new_tokens=given.max_new_tokens,
            num_tokens_to_stop=given.num_tokens_to_stop,
            ignore_eos=given.ignore_eos,
            routing_key=given.routing_key,
        )
        for row, given in enumerate(case.requests)
    ]


def record_of(plan: Plan) -> Record:
    return {
        "mode": plan.forward_mode.value,
        "scheduled": [[request.id, tokens] for request, tokens in plan.num_tokens.items()],
        "prefixes": [[request.id, length] for request, length in plan.prefix_lens.items()],
        "retracted": [request.id for request in plan.retracted],
        "aborted": [request.id for request in plan.aborted],
        "running": plan.num_running,
        "waiting": plan.num_waiting,
        "free": plan.num_free_tokens,
        "evictable": plan.num_evictable_tokens,
        "free_in_windows": plan.num_free_window_tokens,
        "evictable_in_windows": plan.num_evictable_window_tokens,
        "free_states": plan.num_free_states,
        "evictable_states": plan.num_evictable_states,
        "ratio": plan.new_token_ratio,
        "finished": [],
    }
