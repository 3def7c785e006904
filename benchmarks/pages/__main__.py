"""Writes the tables of the docs pages that are made from the code or from `docs/results`.

    python -m benchmarks.pages [--check]

`docs/memory-reference.md` comes from the code, `docs/fidelity.md` from results of `headcount calibrate check-scheduler
--json` and `check-engine --json`, `docs/accuracy.md` from `docs/results/accuracy.json` (benchmarks/accuracy.py). No
other data is needed. `--check` writes nothing, and ends with 1 where a page is not current.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.markdown import DOCS, filled
from benchmarks.pages.fidelity import fidelity_tables
from benchmarks.pages.memory import memory_tables

PAGES = {"memory-reference.md": memory_tables, "fidelity.md": fidelity_tables}


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
    check = parser.parse_args().check
    pages = outdated(write=not check)
    for path in pages:
        print(f"{'not current' if check else 'wrote'}: docs/{path.name}")
    return int(check and bool(pages))


if __name__ == "__main__":
    sys.exit(main())
