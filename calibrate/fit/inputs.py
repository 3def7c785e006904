"""What the paths given to `calibrate fit` or `calibrate check` hold."""

import hashlib
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from calibrate.check.client_load import with_load
from calibrate.measured_run import MeasuredRun
from calibrate.readers import read_file
from calibrate.readers.vllm_metrics import read_between
from calibrate.record.recording_files import is_of_server, read_recording
from calibrate.record.watch_server import read_server_recording
from calibrate.recording import Recording
from files.errors import HeadcountError
from files.reading import STANDARD_INPUT, InputError, read_text, shown, unreadable

RECORDING_FILE = "recording.json"  # marks a folder that `headcount calibrate record` wrote


@dataclass(frozen=True, kw_only=True, eq=False)
class Inputs:
    """Runs and recordings, in order of the paths, with the SHA-256 of all that was read."""

    runs: tuple[MeasuredRun, ...]
    recordings: tuple[Recording, ...]
    sha256: str
    files: frozenset[Path] = frozenset()  # all that was read, resolved


def read_inputs(
    paths: Sequence[Path],
    format_name: str | None = None,
    *,
    before: Path | None = None,
    load: Mapping[str, float] = MappingProxyType({}),
) -> Inputs:
    """All that files hold, or folders with files or recordings in them. Raises HeadcountError that names the path.

    `before` is the snapshot of /metrics from before the run that the one path ends; `load` is what `with_load` takes.
    """
    found = _read(paths, format_name, before)
    if load and found.recordings:
        option = f"--{next(iter(load)).removesuffix('_s')}"
        raise HeadcountError(f"{option} is about requests, and a recording holds engine steps; leave it out")
    return replace(found, runs=tuple(with_load(run, load) for run in found.runs))


def _read(paths: Sequence[Path], format_name: str | None, before: Path | None) -> Inputs:
    if before is not None:
        between, pair = runs_between(before, paths), [before, *paths]
        read = frozenset(file.resolve() for file in pair)
        return Inputs(runs=tuple(between), recordings=(), sha256=_digest(pair), files=read)
    runs: list[MeasuredRun] = []
    recordings: list[Recording] = []
    places = [place for path in paths for place in _places(path)]
    for place in places:
        found = _of_folder(place) if place.is_dir() else read_file(place, format_name)
        recordings += [item for item in found if isinstance(item, Recording)]
        runs += [item for item in found if isinstance(item, MeasuredRun)]
    files = frozenset(place.resolve() for place in places if place.is_file())
    return Inputs(runs=tuple(runs), recordings=tuple(recordings), sha256=_digest(places), files=files)


def runs_between(before: Path, paths: Sequence[Path]) -> list[MeasuredRun]:
    """What a server counted between two snapshots. Raises HeadcountError where not one file ends the run."""
    if len(paths) != 1:
        raise HeadcountError(f"--before goes with the one snapshot that ends the run, not with {len(paths)} files")
    return read_between(before, paths[0])


def _of_folder(place: Path) -> list[MeasuredRun] | list[Recording]:
    return [read_server_recording(place)] if is_of_server(place) else [read_recording(place)]


def _places(path: Path) -> list[Path]:
    """Files, or folders that are one recording each."""
    if path == STANDARD_INPUT:
        return [path]
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
        if not is_folder or (path / RECORDING_FILE).is_file():
            return [path]
        inside = sorted(item for item in path.iterdir() if not item.name.startswith("."))
        found = [item for item in inside if item.is_file() or (item / RECORDING_FILE).is_file()]
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if not found:
        raise InputError(f"{shown(path)} holds no file and no recording; give the files of measured runs")
    return found


def _digest(places: Iterable[Path]) -> str:
    total = hashlib.sha256()
    for place in places:
        if place == STANDARD_INPUT:
            total.update(read_text(place, "result_bytes").encode())
        for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if file.is_file():
                with file.open("rb") as content:
                    total.update(hashlib.file_digest(content, "sha256").digest())
    return total.hexdigest()
