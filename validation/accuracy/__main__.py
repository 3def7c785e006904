"""How far the simulator is off, on every public measurement at hand.

    python -m validation.accuracy --data ../shared/data [--part NAME …] [--json | --servers] [--pages]

reads `measured/` there and prints the figures. `--pages` puts them into docs/measurements/results, beside the parts
that were not asked for, and into the tables of docs/measurements. Parts run side by side, a processor each: all of
them took 770 s of processor time, the longest 260. `--servers` prints every start-up log beside its prediction. What a
measurement does not record is assumed, as the modules of validation/measured say.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from validation.accuracy import page
from validation.accuracy.closed_loops import closed_loops, shipped_intervals
from validation.accuracy.cycles import cycles
from validation.accuracy.drafts import drafts
from validation.accuracy.fitted_loads import fitted_loads
from validation.accuracy.five_runs import five_runs
from validation.accuracy.held_out import held_out
from validation.accuracy.intervals import write_spreads
from validation.accuracy.measured_deployments import write_measured
from validation.accuracy.memory import kv_memory, rows_text
from validation.accuracy.open_runs import h100_aggregates, h100_requests, h100_tails, rtx
from validation.accuracy.outsider import outsider
from validation.accuracy.public_reports import public_reports
from validation.accuracy.served import chat, lone
from validation.markdown import DOCS

RESULTS = DOCS / "measurements" / "results" / "accuracy.json"
Part = dict[str, Any]


def parts(workers: int) -> dict[str, Callable[[Path], Part]]:
    """What is measured, by name, the longest first."""
    return {
        "calibrated": five_runs,
        "fitted-loads": fitted_loads,
        "outsider": outsider,
        "held-out": partial(held_out, workers=workers),
        "closed-loops": closed_loops,
        "intervals": shipped_intervals,
        "h100": h100_requests,
        "h100-aggregates": h100_aggregates,
        "h100-tails": h100_tails,
        "rtx": rtx,
        "cycles": cycles,
        "drafts": drafts,
        "chat": chat,
        "lone-prompts": lone,
        "public-reports": public_reports,
        "memory": kv_memory,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder that holds measured/")
    parser.add_argument("--part", action="append", choices=list(parts(1)), help="only these; may be repeated")
    parser.add_argument("--workers", type=int, default=2, help="processes that measure")
    parser.add_argument("--servers", action="store_true", help="only the memory of each logged server")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--write-spreads", action="store_true", help="put the part held-out's into the constants")
    parser.add_argument("--pages", action="store_true", help=f"write {RESULTS.name} and the tables of the pages")
    arguments = parser.parse_args()
    if arguments.servers:
        print(rows_text(arguments.data))
        return 0
    results = measured(arguments.data, arguments.part, arguments.workers)
    if arguments.write_spreads and "held-out" in results:
        write_spreads(results["held-out"]["spreads"])
        write_measured(arguments.data)
    if arguments.pages:
        kept = {name: part for name, part in results.items() if name != "fitted-loads"}  # no table of the pages
        stored = rounded(json.loads(RESULTS.read_text(encoding="utf-8")) | kept)
        RESULTS.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
        for path in page.PAGES:
            path.write_text(page.filled(path.read_text(encoding="utf-8"), stored), encoding="utf-8")
        results = stored | results
    print(json.dumps(results, indent=1) if arguments.json else page.text(results))
    if "fitted-loads" in results and not arguments.json:  # no table of the pages
        print(json.dumps({name: results["fitted-loads"].get(name) for name in ("all", "fuller")}, indent=1))
    return 0


def measured(data: Path, names: list[str] | None, workers: int) -> Part:
    """The figures of the parts named, of all where none is."""
    chosen = [name for name in parts(1) if not names or name in names]
    with ProcessPoolExecutor(min(workers, len(chosen))) as pool:
        found = pool.map(part, chosen, [data] * len(chosen), [workers if len(chosen) == 1 else 1] * len(chosen))
        return Part(schema_version=1) | dict(zip(chosen, found, strict=True))


def part(name: str, data: Path, workers: int) -> Part:
    """One part's figures; says how long they took."""
    begin_s, begin_cpu_s = time.monotonic(), time.process_time()
    found = parts(workers)[name](data)
    lasted_s, cpu_s = time.monotonic() - begin_s, time.process_time() - begin_cpu_s
    print(f"{name}: {lasted_s:.0f} s, {cpu_s:.0f} s of processor time", file=sys.stderr, flush=True)
    return found


def rounded(value: Any) -> Any:
    """Figures to four digits: the rest is noise, and would change with every run. Spreads stay as they are shipped."""
    if isinstance(value, dict):
        return {key: item if key == "spreads" else rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main())
