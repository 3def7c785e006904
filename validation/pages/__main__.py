"""Writes what docs pages show of the code: tables, and the outputs of commands.

    python -m validation.pages [--check] [--outputs [PAGE …]] [--pictures PAGE …] [--missing]

Tables come from the code, and from `docs/measurements/results`: results of
`headcount calibrate check-scheduler --json` and
`python -m conformance.components engine --json`. `--check` writes nothing, and ends with 1
where a table is not current. `--outputs` runs the commands of the pages instead, and writes what they print below them;
public traces that a page names are looked for in the folder HEADCOUNT_TRACES.
`--pictures` runs those with a picture below, and writes it; with `--missing` only those that are not there.
"""

import argparse
import sys
from pathlib import Path

from validation.cookbook import cookbook_tables
from validation.fitted_traces import fitted_tables
from validation.large_fleets import large_fleet_tables
from validation.markdown import DOCS, filled
from validation.new_families import new_family_tables
from validation.pages.api import diagnostic_tables, python_tables, router_tables, scaler_tables
from validation.pages.catalog import gpu_tables, model_tables
from validation.pages.fidelity import fidelity_tables
from validation.pages.inputs import input_tables
from validation.pages.memory import memory_tables
from validation.pages.names import (
    change_tables,
    demand_tables,
    file_format_tables,
    limit_tables,
    release_tables,
    workload_tables,
)
from validation.pages.options import flag_tables, option_tables, plan_tables
from validation.pages.outputs import pages_with_outputs, with_outputs
from validation.pages.pictures import draw
from validation.pages.sglang import sglang_tables
from validation.pages.structure import structure_tables
from validation.router_ladder import ladder_tables
from validation.sampling import page_tables as sampling_tables
from validation.scoreboard import scoreboard_tables
from validation.wide_ep import wide_ep_tables

PAGES = {
    "explanation/demand.md": demand_tables,
    "explanation/structure.md": structure_tables,
    "explanation/workloads.md": change_tables,
    "measurements/expert-parallelism.md": wide_ep_tables,
    "measurements/fidelity.md": fidelity_tables,
    "measurements/fitted-traces.md": fitted_tables,
    "measurements/large-fleets.md": large_fleet_tables,
    "measurements/new-families.md": lambda: new_family_tables() | cookbook_tables(),
    "measurements/routers.md": ladder_tables,
    "measurements/sampling.md": sampling_tables,
    "measurements/scoreboard.md": scoreboard_tables,
    "measurements/sglang.md": sglang_tables,
    "reference/autoscalers.md": scaler_tables,
    "reference/engine-flags.md": flag_tables,
    "reference/engine-options.md": option_tables,
    "reference/file-formats.md": file_format_tables,
    "reference/gpus.md": gpu_tables,
    "reference/inputs.md": input_tables,
    "reference/limits.md": limit_tables,
    "reference/memory.md": memory_tables,
    "reference/models.md": model_tables,
    "reference/diagnostics.md": diagnostic_tables,
    "reference/plan-options.md": plan_tables,
    "reference/python.md": python_tables,
    "reference/release-rules.md": release_tables,
    "reference/routers.md": router_tables,
    "reference/workloads.md": workload_tables,
}


def outdated(*, write: bool) -> list[Path]:
    """Pages whose tables are not what the code says; written anew where asked."""
    found = []
    for name, tables in PAGES.items():
        path = DOCS / name
        page = path.read_text(encoding="utf-8")
        if (current := filled(page, tables())) != page:
            found.append(path)
            if write:
                path.write_text(current, encoding="utf-8")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a page is not current")
    parser.add_argument("--outputs", nargs="*", type=Path, metavar="PAGE", help="run commands; default: all pages")
    parser.add_argument("--pictures", nargs="+", type=Path, metavar="PAGE", help="draw the pictures of these pages")
    parser.add_argument("--missing", action="store_true", help="of pictures: only those that are not there")
    asked = parser.parse_args()
    for path in asked.pictures or ():
        draw(path.resolve(), missing_alone=asked.missing)
    if asked.pictures:
        return 0
    if asked.outputs is not None:
        for path in asked.outputs or pages_with_outputs():
            print(f"ran: {path}", flush=True)
            path.write_text(with_outputs(path.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    check = asked.check
    pages = outdated(write=not check)
    for path in pages:
        print(f"{'not current' if check else 'wrote'}: docs/{path.relative_to(DOCS)}")
    return int(check and bool(pages))


if __name__ == "__main__":
    sys.exit(main())
