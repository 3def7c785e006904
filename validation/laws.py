"""Random questions, asked in several ways: how often do their answers contradict each other?

`python -m validation.laws QUESTIONS [--first N]` asks so many from the N-th on, and writes
docs/measurements/results/laws.json: those that stand there are not asked again.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np

import headcount as hc
from files.errors import HeadcountError
from files.outputs import write_whole
from headcount.queries.capacity import CapacityResult
from simulator.study.capacity_row import CapacityRow
from simulator.study.points import Point
from simulator.study.statistics import FloatArray
from validation.markdown import DOCS

RESULTS: Final = DOCS / "measurements" / "results" / "laws.json"
MODELS: Final = (
    "llama-3.2-1b", "llama-3.1-8b", "qwen3-8b", "mistral-7b-v0.3", "gemma-3-12b", "qwen3-32b", "qwen3-30b-a3b",
    "llama-3.1-70b",
)  # fmt: skip
GPUS: Final = ("h100-sxm", "l40s", "a100-80gb", "h200-sxm", "b200-sxm")
WORKLOADS: Final = ("chat", "rag", "summarize")
COUNTS: Final = (1, 2, 3, 4)
COPIES_KEEP: Final = 0.97
"""Of the users that as many times fewer GPUs serve for each; design.md's law."""
REPLICATIONS: Final = 4
"""Of each load: most laws hold exactly, however well each candidate is known."""
MORE_REPLICATIONS: Final = 8
"""Where one answer is compared with that of other requests: the interval of four may reach down to nobody."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One deployment, asked about in several ways."""

    model: str
    gpu: str
    workload: str = "chat"
    seed: int = 0
    options: dict[str, Any] = field(default_factory=lambda: {"replications": REPLICATIONS})

    def capacity(self, counts: tuple[int, ...] = COUNTS, **changes: Any) -> CapacityResult:
        """Users on each GPU count."""
        asked = {"workload": self.workload, "seed": self.seed} | self.options | changes
        return hc.capacity(self.model, self.gpu, gpus=counts, **asked)

    @cached_property
    def answer(self) -> CapacityResult:
        """All GPU counts asked for together."""
        return self.capacity()

    @cached_property
    def rows(self) -> dict[int, CapacityRow]:
        """By the number of GPUs."""
        return {row.gpus: row for row in self.answer.capacity}

    @cached_property
    def largest(self) -> CapacityRow:
        """The row of the most GPUs."""
        return self.rows[max(self.rows)]


def more_gpus_never_hurt(asked: Question) -> Iterator[str]:
    for few, many in pairwise(asked.rows.values()):
        if many.users_low < few.users_low:
            yield f"{few.gpus} GPUs serve {few.users_low}, {many.gpus} serve {many.users_low}"


def copies_serve_as_many_times(asked: Question) -> Iterator[str]:
    for few in asked.rows.values():
        for many in asked.rows.values():
            times = many.gpus // few.gpus
            if many.users_low < COPIES_KEEP * times * few.users_low:
                yield f"{few.gpus} GPUs serve {few.users_low}, {many.gpus} serve {many.users_low}"


def a_row_does_not_depend_on_the_others(asked: Question) -> Iterator[str]:
    (alone,) = asked.capacity((max(asked.rows),)).capacity
    if alone.to_json() != asked.largest.to_json():
        yield f"{alone.gpus} GPUs serve {alone.users_low} alone, {asked.largest.users_low} beside others"


def compare_says_what_capacity_says(asked: Question) -> Iterator[str]:
    given = {"workload": asked.workload, "seed": asked.seed} | asked.options
    best = hc.compare(asked.model, asked.gpu, gpus=[max(asked.rows)], **given).best
    users = best.row.users_low if best is not None and best.row is not None else 0
    if users != asked.largest.users_low:
        yield f"{asked.largest.gpus} GPUs: capacity {asked.largest.users_low}, compare {users}"
    sizes = [tp for tp in COUNTS if max(asked.rows) % tp == 0]
    listed = hc.compare(
        asked.model, asked.gpu, gpus=[max(asked.rows)], tensor_parallel_size=sizes, sort="users", **given
    )
    users = listed.best.users if listed.best is not None else 0
    if users != asked.largest.users_low:
        yield f"{asked.largest.gpus} GPUs: capacity {asked.largest.users_low}, compare of {sizes} {users}"


def a_plan_buys_what_capacity_says_suffices(asked: Question) -> Iterator[str]:
    given = {"workload": asked.workload, "seed": asked.seed} | asked.options
    for row in (asked.rows[1], asked.rows[2], asked.largest):
        if not row.users_low:
            continue
        plan = hc.plan(asked.model, gpu=asked.gpu, users=row.users_low, **given)
        if plan.best is None or plan.gpus is None:
            yield f"{row.users_low} users: none serves them, {row.gpus} GPUs do by capacity"
            continue
        if plan.gpus > row.gpus:
            yield f"{row.users_low} users: {plan.gpus} GPUs, {row.gpus} suffice by capacity"
        known = asked.rows.get(plan.gpus)
        if known is not None and plan.best.users_low != known.users_low:
            yield f"{plan.gpus} GPUs: capacity {known.users_low}, plan {plan.best.users_low}"
        elif known is not None and (plan.best.tp, plan.best.router) != (known.tp, known.router_name):
            yield f"{plan.gpus} GPUs: capacity {known.router_name}, plan {plan.best.router}"


def more_users_never_cost_less(asked: Question) -> Iterator[str]:
    given = {"workload": asked.workload, "seed": asked.seed} | asked.options
    most = asked.largest.users_low
    found = [
        hc.plan(asked.model, gpu=asked.gpu, users=users, **given)
        for users in sorted({max(round(share * most), 1) for share in (0.3, 0.6, 1.2)})
        if most
    ]
    costs = [math.inf if plan.usd_per_month is None else plan.usd_per_month for plan in found]
    if costs != sorted(costs):
        yield f"costs a month {costs} for {[round(plan.users_to_serve) for plan in found]} users"


def what_is_easier_serves_no_fewer(asked: Question) -> Iterator[str]:
    slo = asked.answer.question.slo
    assert slo.ttft_s is not None and slo.tpot_s is not None, "the workloads' SLOs have both limits"
    changes: dict[str, dict[str, Any]] = {
        "twice the limit on TTFT": {"ttft_s": 2 * slo.ttft_s},
        "twice the limit on TPOT": {"tpot_s": 2 * slo.tpot_s},
        "a target of 90 %": {"attainment": 0.9},
    }
    gpus = 2 if asked.rows[2].users else max(asked.rows)  # what does not fit has no row to ask for
    (base,) = asked.capacity((gpus,), replications=MORE_REPLICATIONS).capacity
    for name, change in changes.items():
        (row,) = asked.capacity((gpus,), replications=MORE_REPLICATIONS, **change).capacity
        if row.users_low < (1 - max(row.precision, base.precision)) * base.users_low:
            yield f"{name}: {row.users_low} instead of {base.users_low}"


def figures_lie_in_their_intervals(asked: Question) -> Iterator[str]:
    for row in asked.rows.values():
        ends = [row.users_low, row.users_low_sampling, row.users, row.users_high_sampling, row.users_high]
        if ends != sorted(ends):
            yield f"{row.gpus} GPUs: {ends}"
        for at in (row.to_json()["at_users_low"], row.to_json()["at_users"]):
            for name in ("ttft_s", "tpot_s") if at else ():
                found = at[name]
                if not found["p95_low"] <= found["p95"] <= found["p95_high"]:
                    yield f"{row.gpus} GPUs, {name}: {found}"


def money_and_little_s_law_hold(asked: Question) -> Iterator[str]:
    for row in asked.rows.values():
        price = asked.answer.question.gpu.usd_per_hour
        if price is not None and row.usd_per_hour != price * row.gpus:
            yield f"{row.gpus} GPUs cost {row.usd_per_hour} an hour, {price} each"
        if row.point is None:
            continue
        expected = row.point.mean("requests_per_s") * float(np.mean(_taken_s(row.point)))
        if not math.isclose(row.point.mean("in_flight"), expected, rel_tol=0.05, abs_tol=0.3):
            yield f"{row.gpus} GPUs: {row.point.mean('in_flight'):.2f} in flight, λR is {expected:.2f}"


def _taken_s(point: Point) -> FloatArray:
    """How long each request takes; of one that the horizon cuts, on average as long again as so far.

    The horizon meets long answers more often: what was and what is left of those it meets have the same mean.
    """
    found = []
    for each in point.replications:
        e2e_s, so_far_s = each.times.e2e_s, each.horizon_s - each.times.arrival_s
        found.append(np.where(np.isfinite(e2e_s), e2e_s, 2 * so_far_s))
    return np.concatenate(found)


Law = Callable[[Question], Iterator[str]]
LAWS: Final[tuple[Law, ...]] = (
    more_gpus_never_hurt, copies_serve_as_many_times, a_row_does_not_depend_on_the_others,
    compare_says_what_capacity_says, a_plan_buys_what_capacity_says_suffices, more_users_never_cost_less,
    what_is_easier_serves_no_fewer, figures_lie_in_their_intervals, money_and_little_s_law_hold,
)  # fmt: skip


def random_question(number: int) -> Question:
    """Any of the models, GPUs and workloads, with a seed of its own."""
    rng = np.random.default_rng([41, number])

    def one_of(values: tuple[str, ...]) -> str:
        return values[rng.integers(len(values))]

    return Question(model=one_of(MODELS), gpu=one_of(GPUS), workload=one_of(WORKLOADS), seed=int(rng.integers(1000)))


def breaks_of(asked: Question, laws: Iterable[Law] = LAWS) -> dict[str, list[str]]:
    """What breaks a law, by law; a question that nothing runs is none."""
    try:
        _ = asked.rows
    except HeadcountError:
        return {}
    return {law.__name__: found for law in laws if (found := list(law(asked)))}


def main() -> None:
    """Ask what was not asked yet; after each question write what breaks, so that nothing asked is lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", type=int)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    for number in range(given.first, given.first + given.questions):
        if str(number) in _asked():
            continue
        question = random_question(number)
        found = breaks_of(question)
        told = {"model": question.model, "gpu": question.gpu, "workload": question.workload, "breaks": found}
        by_number = _asked() | {str(number): told}  # read again: another process may ask others
        write_whole(
            RESULTS, json.dumps(dict(sorted(by_number.items(), key=lambda each: int(each[0]))), indent=1) + "\n"
        )
        print(number, question.model, question.gpu, question.workload, found or "", flush=True)
    asked = _asked()
    print(f"{len(asked)} questions asked, {sum(bool(each['breaks']) for each in asked.values())} break a law")


def _asked() -> dict[str, Any]:
    """What each question broke, by its number."""
    return dict(json.loads(RESULTS.read_text(encoding="utf-8"))) if RESULTS.exists() else {}


if __name__ == "__main__":
    main()
