"""Estimates compared with searches: `python -m validation.screening [--search]`.

Without --search the searches are those stored in docs/measurements/results/screening.json; with it they are done anew
and stored there, which takes ten minutes.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from simulator.study.bottleneck import what_binds
from simulator.study.capacity_screening import SCREENING_REPLICATIONS, screen_capacity
from simulator.study.estimate import Estimate, estimate_users
from simulator.study.points import Evaluator
from validation.markdown import DOCS, table
from validation.screening.cases import Case, cases

STORED = DOCS / "measurements" / "results" / "screening.json"
MATERIAL = 1.25  # costs per user that differ by less are not ranked
Searched = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One layout, searched and estimated."""

    case: Case
    searched: Searched
    estimate: Estimate
    seconds: float
    usd_per_hour: float

    @property
    def ratio(self) -> float | None:
        return self.estimate.size / self.searched["size"] if self.searched["size"] else None


def search(case: Case) -> Searched:
    """The capacity by simulation, in two replications."""
    deployment = case.deployment()
    load, slo = case.load(deployment), case.question.slo
    evaluator = Evaluator(fleet=deployment.fleet(case.replicas, "least-outstanding"), load=load, slo=slo)
    found = screen_capacity(evaluator, estimate_users(deployment, case.replicas, load, slo).size)
    points = evaluator.points()
    at = evaluator.point(found, SCREENING_REPLICATIONS) if found else points[0]
    above = next((point for point in points if point.size > found), points[-1])
    means = {name: at.mean(name) for name in ("requests_per_s", "in_flight", "kv_usage")}
    return {"size": found, "binding": what_binds(deployment, above), **means}


def compare(case: Case, searched: Searched) -> Compared:
    deployment = case.deployment()
    load = case.load(deployment)
    estimate_users(deployment, case.replicas, load, case.question.slo)  # draws the requests
    start = time.perf_counter()
    estimate = estimate_users(deployment, case.replicas, load, case.question.slo)
    seconds = time.perf_counter() - start
    usd_per_hour = deployment.gpu.usd_per_hour * deployment.gpus * case.replicas
    return Compared(case=case, searched=searched, estimate=estimate, seconds=seconds, usd_per_hour=usd_per_hour)


def summary(compared: list[Compared]) -> str:
    """The shares that the estimate is judged by."""
    ratios = [found.ratio for found in compared if found.ratio is not None]
    right, ranked = ranking(compared)

    def within(low: float, high: float) -> str:
        return f"{sum(low <= ratio <= high for ratio in ratios) / len(ratios):.0%}"

    none = [found for found in compared if found.ratio is None]
    said = sum(found.estimate.attainment < found.case.question.slo.attainment for found in none)
    rows = [
        ("layouts that serve somebody", f"{len(ratios)}"),
        ("median of estimate / search", f"{statistics.median(ratios):.2f}"),
        ("within ±25 %", within(0.75, 1.25)),
        ("within ±50 %", within(0.5, 1.5)),
        ("within a factor of 1.6", within(1 / 1.6, 1.6)),
        ("largest", f"{max(ratios):.2f}"),
        ("pairs of layouts ranked correctly by cost per user", f"{right} of {ranked}"),
        ("layouts that serve nobody, and are estimated so", f"{said} of {len(none)}"),
        ("median time of an estimate", f"{1e3 * statistics.median(found.seconds for found in compared):.0f} ms"),
    ]
    return table(("measure", "value"), rows)


def ranking(compared: Iterable[Compared]) -> tuple[int, int]:
    """Pairs of one question whose costs per user differ materially: how many are ranked rightly, how many there are."""
    served = [found for found in compared if found.ratio is not None]
    right = ranked = 0
    for one, other in combinations(served, 2):
        ratio = (one.usd_per_hour / one.searched["size"]) / (other.usd_per_hour / other.searched["size"])
        if one.case.question is other.case.question and not 1 / MATERIAL <= ratio <= MATERIAL:
            estimated = (one.usd_per_hour / one.estimate.size) / (other.usd_per_hour / other.estimate.size)
            right, ranked = right + ((ratio > 1) == (estimated > 1)), ranked + 1
    return right, ranked


def layouts(compared: Iterable[Compared]) -> str:
    rows = [
        (
            found.case.name,
            f"{found.searched['size']:.3g}",
            f"{found.estimate.size:.3g}",
            f"{found.ratio:.2f}" if found.ratio else "",
            str(found.searched["binding"]),
            found.estimate.binding,
        )
        for found in compared
    ]
    return table(("layout", "search", "estimate", "ratio", "bottleneck by search", "bottleneck by estimate"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--search", action="store_true", help="Search anew by simulation.")
    if parser.parse_args().search:
        found = {case.name: search(case) for case in cases()}
        STORED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    compared = [compare(case, stored[case.name]) for case in cases()]
    print(summary(compared), layouts(compared), sep="\n\n")


if __name__ == "__main__":
    main()
