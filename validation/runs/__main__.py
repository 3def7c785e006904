"""Compare every run of this folder with its simulation: `python -m validation.runs [NAME …] [--write]`.

A run is refused where it cannot be what it says (see `refusals`); `--write` stores the figures for the scoreboard.
"""

import argparse
import json
import sys

from files.errors import HeadcountError
from validation.runs.compared import FOLDER, RESULT, compared, find_runs, refusals


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"files of {FOLDER.name}/, without .toml; default: all")
    parser.add_argument("--write", action="store_true", help=f"store {RESULT.name}")
    arguments = parser.parse_args()
    found = {}
    try:
        for path in find_runs(arguments.names):
            found[path.stem] = figures = compared(path)
            for name, error in figures["errors"].items():
                print(f"{path.stem}: {name} {error:+.1f} % (median of {figures['runs']} runs)")
            for why in refusals(figures):
                print(f"{path.stem}: {why}", file=sys.stderr)
    except HeadcountError as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.write:
        stored = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() and arguments.names else {}
        RESULT.write_text(json.dumps(stored | found, indent=1) + "\n", encoding="utf-8")
    return int(any(refusals(figures) for figures in found.values()))


if __name__ == "__main__":
    sys.exit(main())
