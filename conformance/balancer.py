"""Our balancer of data-parallel engines beside vLLM's own, choice by choice."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from conformance.probing import Record, probe_records
from conformance.sglang_scheduler import first_of
from simulator.core.layout import NONE, OWN
from simulator.core.routing.layout import ENGINE_VIEW
from simulator.fleet.routers import vllm_dp

BALANCER: Final = "balancer"  # what its cases are about
OPERATIONS: Final = {"send": 0.55, "end": 0.35, "report": 0.1}
NUM_OPERATIONS: Final = 120


@dataclass(kw_only=True)
class BalancerComparison:
    """What was compared, with the first choice of each case that was another."""

    seed: int
    vllm_version: str = ""
    cases: int = 0
    choices: int = 0
    reports: int = 0
    differences: list[Record] = field(default_factory=list)

    def says(self) -> str:
        """How much, as text."""
        return (
            f"vLLM {self.vllm_version}, seed {self.seed}: {self.choices:,} choices in {self.cases:,} cases, "
            f"{self.reports:,} reports of the engines compared"
        )

    def first(self) -> list[str]:
        """The first difference, as lines."""
        return first_of(self.differences)

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return vars(self) | {"differing_cases": len(self.differences)}


def check_balancer(
    python: Path, *, num_cases: int, seed: int, watch: Callable[[BalancerComparison], None] = lambda _: None
) -> BalancerComparison:
    """Let both balancers route the same random requests.

    Raises HeadcountError where vLLM's cannot be driven under `python`.
    """
    cases = [random_balancer_case(seed, number) for number in range(num_cases)]
    records = probe_records(python, "balancer_probe", cases, failure="vLLM's balancer could not be driven")
    found = BalancerComparison(seed=seed, vllm_version=next(records)["vllm_version"])
    for case, theirs in zip(cases, records, strict=True):
        _compare(found, case, theirs["chosen"])
        watch(found)
    return found


def random_balancer_case(seed: int, number: int) -> Record:
    """Requests that come and end, and reports of the engines, some of them far from what was sent."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, number]))
    num_engines, longest = int(rng.integers(2, 17)), int(rng.choice([2, 10, 200]))
    operations: list[Record] = []
    sent = 0
    live: list[int] = []
    for what in rng.choice(list(OPERATIONS), NUM_OPERATIONS, p=list(OPERATIONS.values())):
        if what == "report":
            counts = rng.integers(0, longest, (num_engines, 2)) * (rng.random((num_engines, 2)) < rng.random())
            usage = rng.choice([0.0, 0.5, 1.0, *rng.random(3)], num_engines)
            operations.append(
                {"report": [[*map(int, of), float(used)] for of, used in zip(counts, usage, strict=True)]}
            )
        elif what == "end" and live:
            operations.append({"end": live.pop(int(rng.integers(len(live))))})
        else:
            operations.append({"send": sent})
            live.append(sent)
            sent += 1
    return {"name": f"{seed}-{number}", "num_engines": num_engines, "operations": operations}


def _compare(found: BalancerComparison, case: Record, theirs: list[int]) -> None:
    ours = our_choices(case)
    found.cases += 1
    found.choices += len(theirs)
    found.reports += sum("report" in operation for operation in case["operations"])
    both = enumerate(zip(ours, theirs, strict=True))
    differing = next((number for number, (one, other) in both if one != other), None)
    if differing is not None:
        at = {"case": case["name"], "num_engines": case["num_engines"], "request": differing}
        found.differences.append(at | {"ours": ours[differing], "vllm": theirs[differing]})


def our_choices(case: Record) -> list[int]:
    """The router's choices, from views that are kept up as the compiled core keeps them up."""
    engines: Any = np.zeros(case["num_engines"], ENGINE_VIEW).view(np.recarray)
    engines["routable"] = 1
    memory = np.zeros(OWN + 1, np.int64)
    chosen: list[int] = []
    for operation in case["operations"]:
        if "report" in operation:
            for engine, (waiting, running, usage) in enumerate(operation["report"]):
                engines[engine].waiting, engines[engine].running, engines[engine].kv_usage = waiting, running, usage
                engines[engine].sent = 0
        elif "end" in operation:
            engines[chosen[operation["end"]]].outstanding -= 1
        else:
            engine = vllm_dp.choose(engines, None, None, memory)
            assert engine != NONE, "every engine takes requests"
            engines[engine].outstanding += 1
            engines[engine].sent += 1
            chosen.append(int(engine))
    return chosen
