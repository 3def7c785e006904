"""Our schedulers' decisions compared with vLLM's own, step by step."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from conformance.cases.features import features, main_options
from conformance.cases.scheduler_case import MAX_STEPS, SchedulerCase
from conformance.cases.scheduler_cases import ABOUT, is_storm
from conformance.lmcache import readable_lmcache_steps
from conformance.offloading import readable_offloading_steps
from conformance.our_steps import core_steps, readable_steps
from conformance.probing import Record, probe_records
from conformance.step_records import Difference, counts_json, first_difference, num_prefix_hits, read_record
from conformance.store import readable_store_steps
from simulator.engines.vllm.engine import with_release_rules

READABLE = "readable scheduler"
PROBES = {
    "offloading": "offloading_probe",
    "offloading-windows": "offloading_probe",
    "lmcache": "lmcache_probe",
    "store": "mooncake_probe",
}  # what else is driven, by what cases are about


@dataclass(kw_only=True)
class Comparison:
    """What was compared, with the first difference of each case that has one."""

    seed: int
    about: str = "all"  # of ABOUT
    vllm_version: str = ""
    cases: int = 0
    steps: int = 0
    preemptions: int = 0
    prefix_hits: int = 0
    resumed_hits: int = 0  # prefix hits of requests that had been preempted
    cut_short: int = 0  # cases that had not ended after MAX_STEPS steps
    stalled: int = 0  # cases whose pool cannot take a request that waits
    storms: int = 0  # cases with a pool so small that preemptions follow each other …
    fewest_storm_preemptions: int | None = None  # … and the fewest of them in any
    differences: list[Difference] = field(default_factory=list)
    options: dict[str, int] = field(default_factory=dict)  # in how many cases each occurred, by "option: value"
    pairs: dict[str, int] = field(default_factory=dict)  # of options, by "one + other"

    def says(self) -> str:
        """How much, as text."""
        return (
            f"vLLM {self.vllm_version}, seed {self.seed}: {self.cases:,} cases, {self.steps:,} steps, "
            f"{self.preemptions:,} preemptions, {self.prefix_hits:,} prefix hits compared"
        )

    def first(self) -> list[str]:
        """The first difference, as lines."""
        return self.differences[0].lines() if self.differences else []

    def to_json(self) -> dict[str, Any]:
        return counts_json(vars(self), self.differences)


def check_scheduler(
    python: Path,
    *,
    num_cases: int,
    seed: int,
    about: str = "all",
    watch: Callable[[Comparison], None] = lambda _: None,
) -> Comparison:
    """Run `num_cases` random cases through vLLM's engine core under `python`, the readable scheduler and the core.

    `about`: a name of ABOUT. Raises HeadcountError where vLLM cannot be driven there.
    """
    cases = [ABOUT[about](seed, number) for number in range(num_cases)]
    found = Comparison(seed=seed, about=about)
    for case, theirs in zip(cases, _probe(python, cases, found), strict=True):
        _compare(found, case, theirs)
        watch(found)
    return found


def _compare(found: Comparison, case: SchedulerCase, theirs: Sequence[Record]) -> None:
    case = replace(case, engine=with_release_rules(case.engine, found.vllm_version))
    number, theirs = found.cases, theirs[:MAX_STEPS]
    found.cases += 1
    found.steps += len(theirs)
    found.cut_short += len(theirs) == MAX_STEPS
    num_preemptions = sum(len(record["preempted"]) for record in theirs)
    found.preemptions += num_preemptions
    _count_features(found, case, num_preemptions)
    found.prefix_hits += num_prefix_hits(theirs)
    found.resumed_hits += num_prefix_hits(theirs, "resumed")
    core = core_steps(case)
    until = None
    if _is_stalled(core):  # the core's run ends with an error; vLLM may yet serve a request of higher priority
        until = len(core)
        found.stalled += 1
    _enter(
        found,
        first_difference(case.engine, all_readable_steps(case), theirs, of=READABLE, case=number)
        or first_difference(case.engine, core, theirs[:until], of="compiled core", case=number),
    )


def all_readable_steps(case: SchedulerCase) -> list[Record]:
    """The readable scheduler's decisions, with a host tier or without."""
    tier = case.engine.host_tier
    if tier is None:
        return readable_steps(case)
    if tier.is_shared:
        return readable_store_steps(case)
    return readable_lmcache_steps(case) if tier.is_lmcache else readable_offloading_steps(case)


def _enter(found: Comparison, difference: Difference | None) -> None:
    if difference is not None:
        found.differences.append(difference)


def _is_stalled(steps: Sequence[Record]) -> bool:
    """Whether they end with nothing running and a request waiting that no pool of this size can take."""
    last = steps[-1]
    return last["waiting"] > 0 and last["running"] == 0 and not (last["scheduled"] or last["preempted"])


def _count_features(found: Comparison, case: SchedulerCase, num_preemptions: int) -> None:
    exercised = [f"{option}: {value}" for option, value in sorted(features(case).items())]
    for name in exercised:
        found.options[name] = found.options.get(name, 0) + 1
    for pair in combinations(main_options(case), 2):
        found.pairs[" + ".join(pair)] = found.pairs.get(" + ".join(pair), 0) + 1
    if found.about == "all" and is_storm(found.cases - 1):
        found.storms += 1
        fewest = found.fewest_storm_preemptions
        found.fewest_storm_preemptions = num_preemptions if fewest is None else min(fewest, num_preemptions)


def _probe(python: Path, cases: Sequence[SchedulerCase], found: Comparison) -> Iterator[list[Record]]:
    """Every case's steps as vLLM took them, as they come."""
    steps: list[Record] = []
    lines = (case.to_json() for case in cases)
    failure = "vLLM's scheduler could not be driven"
    with closing(probe_records(python, PROBES.get(found.about, "scheduler_probe"), lines, failure=failure)) as records:
        for record in records:
            if "vllm_version" in record:
                found.vllm_version = record["vllm_version"]
            elif "case" in record:
                yield steps
                steps = []
            else:
                steps.append(read_record(record))
