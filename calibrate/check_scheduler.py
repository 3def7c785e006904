"""Our scheduler's decisions laid beside vLLM's own, step by step."""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from calibrate.scheduler_cases import MAX_STEPS, SchedulerCase, features, is_storm, main_options, random_case, simulate
from simulator.engine import with_release_rules

PROBE = Path(__file__).parent / "probes" / "scheduler_probe.py"
COMPARED = ("scheduled", "preempted", "finished", "free_blocks", "running", "waiting")
Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first step at which the two disagree; None where one of them made no such call."""

    case: int
    engine: dict[str, Any]
    ours: Record | None
    vllm: Record | None


@dataclass(kw_only=True)
class Comparison:
    """What was compared, with the first difference of each case that has one."""

    seed: int
    vllm_version: str = ""
    cases: int = 0
    steps: int = 0
    preemptions: int = 0
    prefix_hits: int = 0
    cut_short: int = 0  # cases that had not ended after MAX_STEPS steps
    storms: int = 0  # cases with a pool so small that preemptions follow each other …
    fewest_storm_preemptions: int | None = None  # … and the fewest of them in any
    differences: list[Difference] = field(default_factory=list)
    options: dict[str, int] = field(default_factory=dict)  # in how many cases each occurred, by "option: value"
    pairs: dict[str, int] = field(default_factory=dict)  # of options, by "one + other"

    def to_json(self) -> dict[str, Any]:
        names = (
            "seed", "vllm_version", "cases", "steps", "preemptions", "prefix_hits", "cut_short", "storms",
            "fewest_storm_preemptions", "options", "pairs",
        )  # fmt: skip
        first = asdict(self.differences[0]) if self.differences else None
        return {name: getattr(self, name) for name in names} | {
            "differing_cases": len(self.differences),
            "first_difference": first,
        }


def check_scheduler(
    python: Path, *, num_cases: int, seed: int, watch: Callable[[Comparison], None] = lambda _: None
) -> Comparison:
    """Run `num_cases` random cases through vLLM's scheduler under `python`, and through the compiled core.

    Raises ValueError where vLLM cannot be driven there.
    """
    cases = [random_case(seed, number) for number in range(num_cases)]
    found = Comparison(seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases.jsonl"
        path.write_text("".join(json.dumps(case.to_json()) + "\n" for case in cases), encoding="utf-8")
        for case, theirs in zip(cases, _probe(python, path, found), strict=True):
            _compare(found, case, theirs)
            watch(found)
    return found


def our_steps(case: SchedulerCase) -> tuple[list[Record], dict[int, int]]:
    """The compiled core's decisions, one record per `schedule()` call, with each request's first prefix hit."""
    simulation = simulate(case)
    records = []
    for step in simulation.steps[:MAX_STEPS]:
        record = step.to_json()
        record["scheduled"] = step.scheduled
        record["preempted"] = sorted(step.preempted)
        records.append(record)
    return records, dict(enumerate(simulation.requests["cached_tokens"].tolist()))


def _compare(found: Comparison, case: SchedulerCase, theirs: Sequence[Record]) -> None:
    case = replace(case, engine=with_release_rules(case.engine, found.vllm_version))
    ours, hits = our_steps(case)
    theirs = theirs[:MAX_STEPS]
    found.cases += 1
    found.steps += len(theirs)
    found.cut_short += len(theirs) == MAX_STEPS
    found.preemptions += sum(len(record["preempted"]) for record in theirs)
    _count_features(found, case, sum(len(record["preempted"]) for record in theirs))
    for number in range(max(len(ours), len(theirs))):
        one = ours[number] if number < len(ours) else None
        other = theirs[number] if number < len(theirs) else None
        if one is None or other is None or any(one[name] != other[name] for name in COMPARED):
            found.differences.append(Difference(case=found.cases - 1, engine=asdict(case.engine), ours=one, vllm=other))
            return
        for request, computed in other["new"].items():
            found.prefix_hits += computed > 0
            if hits[int(request)] != computed:
                record = {"request": request, "prefix_hit_tokens": hits[int(request)]}
                found.differences.append(
                    Difference(case=found.cases - 1, engine=asdict(case.engine), ours=record, vllm=other)
                )
                return


def _count_features(found: Comparison, case: SchedulerCase, num_preemptions: int) -> None:
    exercised = [f"{option}: {value}" for option, value in sorted(features(case.engine).items())]
    for name in exercised:
        found.options[name] = found.options.get(name, 0) + 1
    for pair in combinations(main_options(case.engine), 2):
        found.pairs[" + ".join(pair)] = found.pairs.get(" + ".join(pair), 0) + 1
    if is_storm(found.cases - 1):
        found.storms += 1
        fewest = found.fewest_storm_preemptions
        found.fewest_storm_preemptions = num_preemptions if fewest is None else min(fewest, num_preemptions)


def _probe(python: Path, cases: Path, found: Comparison) -> Iterator[list[Record]]:
    """Every case's steps as vLLM took them, as they come."""
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "PYTHONWARNINGS": "ignore",
        "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip
    with tempfile.TemporaryFile("w+") as errors:
        command = [str(python), str(PROBE), str(cases)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        assert process.stdout is not None
        try:
            steps: list[Record] = []
            for line in process.stdout:
                if not line.startswith("{"):  # older releases log to stdout
                    continue
                record = json.loads(line)
                if "vllm_version" in record:
                    found.vllm_version = record["vllm_version"]
                elif "case" in record:
                    yield steps
                    steps = []
                else:
                    record["scheduled"] = {int(request): tokens for request, tokens in record["scheduled"].items()}
                    steps.append(record)
            if process.wait() != 0:
                errors.seek(0)
                last = (errors.read().strip().splitlines() or ["no message"])[-1]
                raise ValueError(f"vLLM's scheduler could not be driven by {python}: {last}")
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
