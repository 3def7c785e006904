"""How fast traces are read: `python -m validation.trace_speed [--rows N] [--json]`.

A made-up week in the form of the Azure trace of 2024 is written to a temporary folder and read in a process of its own,
whose memory is told: what `--workload FILE` costs before anything is simulated.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from workloads.requests import independent_requests
from workloads.writers.azure import WRITER

WEEK_S = 7 * 86_400
READ = """
import json, sys, time
from files.limits import limits_raised
from workloads.load import load_workload
begun, used = time.perf_counter(), time.process_time()
with limits_raised(rows=1e9):
    rows = load_workload(sys.argv[1]).num_requests
wall_s, processor_s = time.perf_counter() - begun, time.process_time() - used
with open("/proc/self/status") as file:  # the peak of getrusage begins with that of the process that started this one
    peak = next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM"))
print(json.dumps({"rows": rows, "wall_s": wall_s, "processor_s": processor_s, "peak_bytes": peak}))
"""


def write_week(path: Path, num_rows: int) -> None:
    """Arrivals of a Poisson process, lengths like chat's."""
    rng = np.random.default_rng(0)
    table = independent_requests(
        arrival_s=np.sort(rng.uniform(0, WEEK_S, num_rows)),
        prompt_tokens=rng.integers(1, 8000, num_rows),
        output_tokens=rng.integers(1, 900, num_rows),
    )
    WRITER.write(table, path, 512)


def measured(num_rows: int) -> dict[str, Any]:
    """Seconds and bytes of one reading."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "week.csv"
        write_week(path, num_rows)
        done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
        return {"file_bytes": path.stat().st_size, **json.loads(done.stdout)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=5e6, help="rows of the file")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    arguments = parser.parse_args()
    found = measured(int(arguments.rows))
    if arguments.json:
        print(json.dumps({"schema_version": 1, **found}, indent=2))
        return
    print(
        f"{found['rows']:,} rows ({found['file_bytes'] / 1e6:,.0f} MB) in {found['wall_s']:.1f} s, "
        f"{found['processor_s']:.1f} s of one processor ({found['rows'] / found['processor_s']:,.0f} rows/s); "
        f"{found['peak_bytes'] / 1e6:,.0f} MB at most"
    )


if __name__ == "__main__":
    main()
