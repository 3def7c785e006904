"""Damage every input many times over, and tell what was not taken well.

    python -m validation.fuzz --cases 20000 --seed 7 [--workers 2] [--only NUMBER …] [--json]

A worker process runs a part of the cases; where one hangs in compiled code or dies, its case is a finding and the
next goes on. Exit 1 where anything was found.
"""

import argparse
import json
import multiprocessing
import queue
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.fuzz.outcome import MOST_S, Fuzzer, Outcome, bounded_memory

HANGS_S = 3 * MOST_S


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", type=int, nargs="*", help="these cases alone, in this process, told whole")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.only:
        return _tell_whole(asked.seed, asked.only)
    began_s = time.monotonic()
    codes, findings = _all_cases(asked.cases, asked.seed, asked.workers)
    seconds = time.monotonic() - began_s
    if asked.json:
        print(json.dumps({"cases": asked.cases, "seed": asked.seed, "codes": codes, "findings": findings}))
    else:
        for found in findings:
            print(f"{found['case']}: {found['fault']}\n    {found['err'].strip()[-300:]}")
        counted = ", ".join(f"{code}: {count:,}" for code, count in sorted(codes.items()))
        print(f"{asked.cases:,} cases in {seconds:,.0f} s; exit codes {counted}; {len(findings)} findings")
    return bool(findings)


def _all_cases(cases: int, seed: int, workers: int) -> tuple[Counter[int], list[dict[str, Any]]]:
    context = multiprocessing.get_context("spawn")
    told: Any = context.Queue()
    todo = [list(range(worker, cases, workers)) for worker in range(workers)]
    running = [_Worker(context, seed, numbers, told, name) for name, numbers in enumerate(todo)]
    codes, findings = Counter[int](), list[dict[str, Any]]()
    while any(worker.numbers for worker in running):
        try:
            name, found = told.get(timeout=1.0)
        except queue.Empty:
            findings += [lost for worker in running if (lost := worker.lost())]
            continue
        running[name].took()
        codes[found["code"]] += 1
        findings += [found] if found["fault"] else []
    return codes, findings


class _Worker:
    """A process with the cases that it has yet to run."""

    def __init__(self, context: Any, seed: int, numbers: list[int], told: Any, name: int) -> None:
        self._start = lambda: context.Process(target=_work, args=(seed, self.numbers, told, name), daemon=True)
        self.numbers = numbers
        self._begin()

    def _begin(self) -> None:
        self._heard_s = time.monotonic()
        self._process = self._start()
        if self.numbers:
            self._process.start()

    def took(self) -> None:
        self.numbers, self._heard_s = self.numbers[1:], time.monotonic()

    def lost(self) -> dict[str, Any] | None:
        """The case at which the process hangs or died; the process is started again after it."""
        hangs = time.monotonic() - self._heard_s > HANGS_S + 60 * (self._process.exitcode is None)
        if not self.numbers or (self._process.is_alive() and not hangs):
            return None
        fault = "hangs" if self._process.is_alive() else f"the process died ({self._process.exitcode})"
        self._process.kill()
        number, self.numbers = self.numbers[0], self.numbers[1:]
        self._begin()
        return {"case": f"case {number}", "fault": fault, "err": "", "code": -1}


def _work(seed: int, numbers: list[int], told: Any, name: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(seed, Path(folder), slow=True)
        with bounded_memory():
            for number in numbers:
                found = fuzzer.case(number)
                kept = {"case": found.case, "fault": found.fault, "err": found.err[-600:], "code": found.code}
                told.put((name, kept))


def _tell_whole(seed: int, numbers: list[int]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(seed, Path(folder), slow=True)
        for number in numbers:
            _tell(fuzzer.case(number))
    return 0


def _tell(found: Outcome) -> None:
    print(f"{found.case}: {found.fault or 'well taken'}, exit {found.code}, {found.seconds:.2f} s")
    print("   ", "headcount", " ".join(found.arguments)[:2000])
    for name, text in (
        ("input", found.content[:3000].decode("utf-8", "replace")),
        ("out", found.out),
        ("err", found.err),
    ):
        print(f"--- {name}\n{text[:3000]}")


if __name__ == "__main__":
    sys.exit(main())
