"""One damaged input, and what is wrong with how the command took it."""

import io
import json
import os
import random
import re
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from unittest.mock import patch

from headcount.cli import main as cli
from tests.fuzz.doors import LINES, SLOW_LINES, Door, file_doors, mutated_line, slow_doors
from tests.fuzz.mutations import mutated

MOST_S, MOST_BYTES = 20.0, 2_000_000_000
OF_OPTIONS = 0.25  # share of cases that damage a command line instead of a file
CODES = {0: "done", 1: "target missed", 2: "bad input", 3: "inconclusive", 4: "refused"}
_NO_FIGURE = re.compile(r"(?<![\w'\".-])nan(?![\w'\"-])", re.IGNORECASE)
_SLIPPED = re.compile(r"\w+Warning:|Traceback")


@dataclass(frozen=True)
class Outcome:
    """`fault` is empty where the law held: an answer or one line of error, in time, within memory."""

    case: str
    arguments: tuple[str, ...]
    content: bytes
    code: int
    seconds: float
    out: str
    err: str
    fault: str


class Fuzzer:
    """Cases by number: the same seed and number, the same damage. Files lie in a temporary folder."""

    def __init__(self, seed: int, folder: Path, *, slow: bool = False) -> None:
        self.seed, self.folder = seed, folder
        (folder / "seeds").mkdir()
        self.doors, self.lines = tuple(file_doors(folder / "seeds")), LINES
        if slow:
            self.doors, self.lines = (*self.doors, *slow_doors(self.doors)), (*LINES, *SLOW_LINES)
        for line in LINES[2:4]:
            run(line, "kernels are compiled before anything is timed")
        trace = next(door for door in self.doors if door.name == "llmservingsim trace")
        self._taken(trace, trace.content, "kernels of contents are, too")

    def unharmed(self) -> Iterator[Outcome]:
        """Every door with its right content: what is damaged later was taken before."""
        for door in self.doors:
            yield self._taken(door, door.content, f"{door.name}, unharmed")

    def case(self, number: int) -> Outcome:
        rng = random.Random(f"{self.seed}/{number}")
        if rng.random() < OF_OPTIONS:
            line = mutated_line(rng, self.lines)
            return run(line, f"case {number}: options")
        door = rng.choice(self.doors)
        return self._taken(door, mutated(rng, door.content), f"case {number}: {door.name}")

    def _taken(self, door: Door, content: bytes, case: str) -> Outcome:
        with TemporaryDirectory(dir=self.folder) as name:
            path = Path(name) / door.file
            if door.beside is not None:
                copytree(door.beside, name, dirs_exist_ok=True)
            path.parent.mkdir(exist_ok=True)
            before = {*Path(name).rglob("*"), path}
            path.write_bytes(content)
            with patch.dict(os.environ, {"HEADCOUNT_PATH": name} if door.searched else {}):
                found = run(door.arguments(path, self.folder / "out.toml"), case, content)
            left = [item.name for item in {*Path(name).rglob("*")} - before]
        return found if not left or found.fault else _at_fault(found, f"left {', '.join(left)} behind")


def run(arguments: tuple[str, ...], case: str, content: bytes = b"") -> Outcome:
    """Run a command in this process."""
    out, err, began_s = io.StringIO(), io.StringIO(), time.monotonic()
    code: object = None
    with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "argv", ["headcount", *arguments]):
        try:
            cli.main()
        except SystemExit as stopped:
            code = stopped.code
        except BaseException as error:
            err.write(f"Traceback: {type(error).__name__}: {error}")
    found = Outcome(
        case=case, arguments=arguments, content=content, code=code if isinstance(code, int) else -1,
        seconds=time.monotonic() - began_s, out=out.getvalue(), err=err.getvalue(), fault="",
    )  # fmt: skip
    return _at_fault(found, fault_of(found))


def fault_of(found: Outcome) -> str:
    """What of the law was broken first."""
    slipped = _SLIPPED.search(found.err)
    told = any(said.startswith("headcount: ") for said in found.err.splitlines())
    as_json = "--json" in found.arguments
    broken = {
        f"exit {found.code}": found.code not in CODES,
        f"said '{slipped and slipped[0]}'": slipped is not None,
        "a figure that is nan": _NO_FIGURE.search(found.out) is not None,
        "ran out of memory": "memory; ask for fewer" in found.err,
        f"took {found.seconds:.0f} s": found.seconds > MOST_S,
        "no clear error": found.code == 2 and not told,
        "an answer beside an error": found.code == 2 and as_json and bool(found.out),
        "wrote bad JSON": found.code == 0 and as_json and not _is_json(found.out),
    }
    return next((fault for fault, holds in broken.items() if holds), "")


def _is_json(text: str) -> bool:
    """Without NaN and infinities, which are none."""
    constants = list[str]()
    try:
        json.loads(text, parse_constant=constants.append)
    except ValueError:
        return False
    return not constants


def _at_fault(found: Outcome, fault: str) -> Outcome:
    return Outcome(**{**vars(found), "fault": fault})


@contextmanager
def bounded_memory() -> Iterator[None]:
    """No more address space than now and MOST_BYTES."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + MOST_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
