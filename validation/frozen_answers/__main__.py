"""Records what some 80 commands answer, and tells which figures a change of the code has changed.

    python -m validation.frozen_answers record OUT.json.gz [--only TEXT …]
    python -m validation.frozen_answers compare BEFORE.json.gz AFTER.json.gz [--renamed OLD=NEW …]

`record` runs the commands of `commands.txt` with --json, one after the other; with warm kernels it takes a quarter of
an hour of two cores. `compare` ends with 1 where a figure differs in any bit; texts for people, dates, versions and
file digests are left out. Record before a change that should change no answer, and again after it, on one machine:
another processor may round otherwise.
"""

import argparse
import gzip
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

COMMANDS: Final = Path(__file__).parent / "commands.txt"
ROOT: Final = Path(__file__).parents[2]
FOR_PEOPLE: Final = ("summary", "body", "versions", "date", "asked", "inputs")  # keys of `report`
_NO_JSON: Final = ("workload generate", "workload convert")
_SHOWN: Final = 6  # differences of one command

Recorded = dict[str, dict[str, object]]  # of each command: its exit code and its answer


def commands() -> list[str]:
    """Those of the file; `{out}` stands for a folder of the run's own."""
    lines = COMMANDS.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def record(only: list[str]) -> Recorded:
    """What each command answers now."""
    found: Recorded = {}
    with TemporaryDirectory() as folder:
        for line in commands():
            if only and not any(text in line for text in only):
                continue
            words = shlex.split(line.replace("{out}", folder))
            as_json = [] if line.startswith(_NO_JSON) else ["--json"]
            command = [sys.executable, "-m", "headcount", *words, *as_json]
            ran = subprocess.run(
                command, cwd=ROOT, env=os.environ | {"COLUMNS": "120"}, capture_output=True, text=True, check=False
            )
            out = ran.stdout.replace(folder, "OUT")
            found[line] = {"code": ran.returncode, "answer": json.loads(out) if out.startswith("{") else out}
            print(f"{ran.returncode} {line}", file=sys.stderr, flush=True)
    return found


def differences(before: object, after: object, place: str = "") -> Iterator[str]:
    """Where two answers differ, a line each; what is for people is left out."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            if key not in FOR_PEOPLE:
                yield from differences(before.get(key), after.get(key), f"{place}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, pair in enumerate(zip(before, after, strict=True)):
            yield from differences(*pair, f"{place}[{number}]")
    elif before != after and not _are_texts(before, after):
        yield f"{place.lstrip('.')}: {str(before)[:70]} -> {str(after)[:70]}"


def _are_texts(before: object, after: object) -> bool:
    """Whether both are sentences, which may be said in other words."""
    return isinstance(before, str) and isinstance(after, str) and " " in before and " " in after


def renamed(value: object, names: Mapping[str, str]) -> object:
    """The same under other keys."""
    if isinstance(value, dict):
        return {names.get(key, key): renamed(each, names) for key, each in value.items()}
    return [renamed(each, names) for each in value] if isinstance(value, list) else value


def compare(before: Recorded, after: Recorded, names: Mapping[str, str]) -> int:
    """Tell what differs; 1 where anything does."""
    changed = 0
    for line in before.keys() & after.keys():
        found = list(differences(renamed(before[line], names), after[line]))
        if found:
            changed += 1
            print("\n    ".join([line, *found[:_SHOWN]]))
    print(f"{len(before.keys() & after.keys())} commands in both, {changed} of them differ")
    return int(bool(changed))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_subparsers(dest="what", required=True)
    recording = what.add_parser("record", help="run the commands")
    recording.add_argument("out", type=Path)
    recording.add_argument("--only", nargs="+", default=[], help="commands that contain one of these")
    comparing = what.add_parser("compare", help="tell what differs")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--renamed", nargs="+", default=[], metavar="OLD=NEW", help="keys that were renamed")
    asked = parser.parse_args()
    if asked.what == "record":
        asked.out.write_bytes(gzip.compress(json.dumps(record(asked.only)).encode()))
        return 0
    read = [json.loads(gzip.decompress(path.read_bytes())) for path in (asked.before, asked.after)]
    return compare(read[0], read[1], dict(each.split("=") for each in asked.renamed))


if __name__ == "__main__":
    sys.exit(main())
