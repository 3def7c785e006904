"""How long a small simulation takes from start to end: `python -m validation.start_speed [CHECKOUT]`.

Processor time, user and system, the least of RUNS runs, and peak memory, with kernels that are kept. With another
CHECKOUT of the repository, the two alternate, and the last line is this one's share of the other's. Each has a cache
folder of its own, which the first run fills. Reads `os.wait4`, so it does not run on Windows.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

RUNS: Final = 7
COMMAND: Final = ("simulate", "--model", "Qwen/Qwen3-8B", "--gpu", "h100-sxm", "--workload", "chat", "--users", "20")
MIB: Final = 2**20
PEAK_UNIT: Final = 1 if sys.platform == "darwin" else 1024  # bytes, of `ru_maxrss`


def run(checkout: Path, cache: str) -> tuple[float, float]:
    """Seconds of processor time and MiB at the peak of one run."""
    variables = {**os.environ, "PYTHONPATH": str(checkout), "HEADCOUNT_CACHE_DIR": cache}
    process = subprocess.Popen(
        [sys.executable, "-m", "headcount", *COMMAND],
        cwd=checkout,
        env=variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"the command failed in {checkout}"
    return used.ru_utime + used.ru_stime, used.ru_maxrss * PEAK_UNIT / MIB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", nargs="?", type=Path)
    other: Path | None = parser.parse_args().checkout
    checkouts = [Path(__file__).parents[1], *([other.resolve()] if other else [])]
    least: dict[Path, tuple[float, float]] = {}
    with TemporaryDirectory() as folder:
        caches = [str(Path(folder, str(number))) for number in range(len(checkouts))]
        for number in range(RUNS + 1):
            for checkout, cache in zip(checkouts, caches, strict=True):
                found = run(checkout, cache)
                if number:  # the first compiles
                    before = least.get(checkout, found)
                    least[checkout] = min(before[0], found[0]), min(before[1], found[1])
    for checkout, (seconds, mib) in least.items():
        print(f"{seconds:.2f} s  {mib:.0f} MiB  {checkout}")
    if other:
        (seconds, mib), (of_seconds, of_mib) = least.values()
        print(f"{seconds / of_seconds:.2f} ×  {mib / of_mib:.2f} ×")


if __name__ == "__main__":
    main()
