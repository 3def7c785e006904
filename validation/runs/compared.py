"""A run that somebody measured, beside its simulation, and what makes it implausible."""

import datetime
import re
import shlex
import tomllib
from collections.abc import Iterable, Sequence
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
from click.testing import CliRunner

from files.documents import Json, parse_json
from files.errors import HeadcountError
from files.names import check_names
from files.schema import Strict, typed
from headcount.cli.main import cli
from kvcache.models.catalog import find_gpu, load_model
from kvcache.shape.parameters import active_parameters
from validation.markdown import DOCS

FOLDER: Final = Path(__file__).parent
RESULT: Final = DOCS / "measurements" / "results" / "runs.json"
FIGURES: Final = ("ttft_s.mean", "tpot_s.mean", "e2e_s.mean")
FARTHEST: Final = 5.0  # measured over simulated, or the reverse: beyond it, a run needs its reason
FEWEST_BITS: Final = 4  # of a weight, where the format is not known
LARGEST_FILE: Final = 2_000_000  # bytes
_PARALLEL: Final = re.compile(r"--?(?:tp|pp|tensor-parallel|pipeline-parallel)(?:-size)?[ =](\d+)")


class Run(Strict, frozen=True, kw_only=True):
    """One server under one or more loads."""

    model: str
    gpu: str
    arguments: str  # of `headcount calibrate check`: parallelism, formats, release
    files: list[str]  # results of benchmark clients, as patterns from this folder on
    measured_on: datetime.date
    measured_by: str
    license: str
    source: str = ""  # where it was published
    why: str = ""  # of a run that is far from its simulation


def find_runs(names: Sequence[str] = ()) -> list[Path]:
    """The files of runs with these names, or all. Raises HeadcountError for a name that is none."""
    found = {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}
    check_names(names, found, "run")
    return [found[name] for name in names] if names else list(found.values())


def read_run(path: Path) -> Run:
    """Raises HeadcountError where the file does not say what it has to."""
    run = typed(tomllib.loads(path.read_text(encoding="utf-8")), Run, path)
    for name in ("model", "gpu", "measured_by", "license"):
        if not getattr(run, name).strip():
            raise HeadcountError(f"{path.name}: {name} is empty; say it")
    if run.measured_on > datetime.datetime.now(datetime.UTC).date():
        raise HeadcountError(f"{path.name}: measured_on is {run.measured_on}, a day to come")
    return run


def compared(path: Path) -> Json:
    """What `calibrate check` says of the run, as medians over its files."""
    run = read_run(path)
    files = sorted({file for pattern in run.files for file in path.parent.glob(pattern)})
    if not files:
        raise HeadcountError(f"{path.name}: no file is at {', '.join(run.files)}")
    large = next((file for file in files if file.stat().st_size > LARGEST_FILE), None)
    if large is not None:
        raise HeadcountError(f"{path.name}: {large.name} has more than {LARGEST_FILE / 1e6:g} MB; leave its texts out")
    asked = ["--model", run.model, "--gpu", run.gpu, *shlex.split(run.arguments)]
    done = CliRunner().invoke(cli, ["calibrate", "check", *map(str, files), *asked, "--json"])
    if done.exit_code:
        raise HeadcountError(f"{path.name}: {done.stderr.strip().removeprefix('headcount: ')}")
    rows = [row for row in parse_json(done.stdout, "the answer")["runs"] if not row["overloaded"]]
    errors = {name: _median(row["figures"][name]["error_percent"] for row in rows if name in row["figures"])
              for name in FIGURES}  # fmt: skip
    tpot_s = [row["figures"]["tpot_s.mean"]["measured"] for row in rows if "tpot_s.mean" in row["figures"]]
    return {
        "model": run.model,
        "gpu": run.gpu,
        "measured_on": run.measured_on.isoformat(),
        "measured_by": run.measured_by,
        "runs": len(rows),
        "errors": {name: error for name, error in errors.items() if error is not None},
        "least_tpot_s": min(tpot_s, default=None),
        "least_possible_tpot_s": least_tpot_s(run),
        "why": run.why,
    }


def least_tpot_s(run: Run) -> float:
    """What a server of its GPUs takes at least to read the weights that one token needs, at 4 bits each.

    0 with speculative decoding, where several tokens share a reading.
    """
    if "speculative" in run.arguments:
        return 0.0
    weights = active_parameters(load_model(run.model)) * FEWEST_BITS / 8
    return weights / (find_gpu(run.gpu).memory_bandwidth_bytes_per_s * _gpus(run))


def _gpus(run: Run) -> int:
    """That share the weights: as many as the run's own flags, or those of a pasted command, say."""
    return prod(int(size) for size in _PARALLEL.findall(run.arguments))


def refusals(figures: Json) -> list[str]:
    """Why a run cannot be what it says, a line each."""
    found = []
    least, possible = figures["least_tpot_s"], figures["least_possible_tpot_s"]
    if least is not None and least < possible:
        found.append(
            f"TPOT of {1e3 * least:.2f} ms: reading the weights takes at least {1e3 * possible:.2f} ms; are model, GPU "
            "and their number right?"
        )
    if not figures["errors"]:
        found.append("no run of it can be compared: all are overloaded, or have no latencies")
    for name, error in figures["errors"].items():
        ratio = 1 + error / 100
        if not figures["why"] and not 1 / FARTHEST <= ratio <= FARTHEST:
            found.append(f"{name}: simulated at {ratio:.2g} times the measured one; mend the run, or say why in `why`")
    return found


def _median(values: Iterable[Any]) -> float | None:
    found = [value for value in values if value is not None]
    return round(float(np.median(found)), 2) if found else None
