"""Random small questions, asked to `plan` and by confirming every candidate: is what is recommended the cheapest?

`python -m validation.every_candidate QUESTIONS [--first N]` prints each question, and how much dearer `plan` is.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

import headcount as hc
from headcount.queries.money import HOURS_PER_MONTH
from simulator.study.candidate import Level, RunContext
from simulator.study.capacity import PRECISION
from simulator.study.capacity_table import CapacityTable

MODELS: Final = ("llama-3.2-1b", "llama-3.1-8b", "qwen3-8b", "mistral-7b-v0.3", "gemma-3-12b", "qwen3-30b-a3b")
GPUS: Final = ("h100-sxm", "l40s", "a100-80gb", "h200-sxm", "b200-sxm")
WORKLOADS: Final = ("chat", "rag", "summarize")
MOST_GPUS: Final = 3  # of each of two kinds: 12 candidates or a few more
NEAR: Final = 1.03  # times the cheapest


def fleets(model: str, gpu: str, workload: str, seed: int) -> Iterator[tuple[int, float]]:
    """Users at 95 % confidence, and dollars per hour, of every candidate."""
    first = hc.capacity(model, gpu, gpus=[2], workload=workload, seed=seed, replications=2, precision=0.9)
    question = replace(first.question, replications=None, precision=PRECISION)
    table = CapacityTable(question=question, how=RunContext())
    for gpus in range(1, MOST_GPUS + 1):
        price = question.gpu.usd_per_hour_of(gpus)
        assert price is not None
        for candidate in table.candidates(gpus):
            yield candidate.known_as(Level.CONFIRMED).users_low, price


def dearer(number: int) -> tuple[str, float]:
    """A random question, and the cost of what `plan` recommends over that of the cheapest candidate."""
    rng = np.random.default_rng([11, number])
    model, workload = (str(rng.choice(names)) for names in (MODELS, WORKLOADS))
    gpus, seed = [str(each) for each in rng.choice(GPUS, 2, replace=False)], int(rng.integers(1000))
    found = {gpu: list(fleets(model, gpu, workload, seed)) for gpu in gpus}
    every = [each for kind in found.values() for each in kind]
    least = min(max((users for users, _ in kind), default=0) for kind in found.values())  # no kind needs more GPUs
    users = max(int(rng.uniform(0.05, 1.0) * (least or max(users for users, _ in every))), 1)
    best = min(price for served, price in every if served >= users)
    plan = hc.plan(model, gpu=gpus, users=users, workload=workload, seed=seed)
    asked = f"{users} users, {workload}, {model} on {' or '.join(gpus)}, seed {seed}, {len(every)} candidates"
    return asked, np.inf if plan.usd_per_month is None else plan.usd_per_month / HOURS_PER_MONTH / best


def main() -> None:
    """Ask, and print what is not the cheapest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("questions", type=int)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    times = []
    for number in range(given.first, given.first + given.questions):
        asked, ratio = dearer(number)
        times.append(ratio)
        print(f"{number}: {asked}: {ratio:.3f} times the cheapest", flush=True)
    print(f"{sum(each <= NEAR for each in times)} of {len(times)} within {NEAR - 1:.0%}; at most {max(times):.3f}")


if __name__ == "__main__":
    main()
