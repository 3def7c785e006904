"""The directory of a recording: what was asked for, what ran, and each load's steps once it is complete."""

import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from msgspec import Meta, convert

from calibrate.readers.parsing.engine_options import engine_options
from calibrate.record.loads import Load
from calibrate.recording import STEP_COLUMNS, Recording
from files.documents import Json, ReadJson, read_json
from files.errors import HeadcountError
from files.outputs import write_whole
from files.reading import InputError, read_text, shown
from files.schema import AtLeastOne, Count, Lenient, NotNegative, Number, Positive, typed
from simulator.latency.step_time import BatchSums

SCHEMA_VERSION = 1
FILE = "recording.json"
STEPS = "steps"
ENGINE_LOG = "engine.log"
KIND_STEPS, KIND_SERVER = "engine steps", "server metrics"
# Beside STEP_COLUMNS: which load and phase of it a step is from, what it took by the wall clock, whether or not that
# is the recording's.
EXTRA_COLUMNS = ("load", "phase", "wall_s")
PLANNED, DONE, FAILED = "planned", "done", "failed"
_UNTIMED = {"cycle_s", "schedule_s", "wall_s"}  # NaN where nothing was measured
_MOST = 1e15


class _Head(Lenient, frozen=True):
    schema_version: object = None
    kind: object = None


class _Server(Lenient, frozen=True):
    url: str
    begin_unix_s: Number


class _Entry(Lenient, frozen=True):
    load: Load
    status: Literal["planned", "done", "failed"]
    expected_s: NotNegative
    steps: Count = 0


class _Environment(Lenient, frozen=True):
    vllm_version: Annotated[str, Meta(max_length=100)] | None = None
    num_gpu_blocks: AtLeastOne | None = None
    experts: Literal["evenly"] | None = None


class _Steps(Lenient, frozen=True):
    loads: list[_Entry]
    options: Json
    environment: _Environment
    warm_up_steps: Count
    begin_unix_s: Number
    seed: Count
    asked: Json
    engine: Json
    reached: Positive | None = None


_CONTENT = {KIND_STEPS: _Steps, KIND_SERVER: _Server}


@dataclass(frozen=True)
class RecordingFolder:
    """What is written there is complete at every moment: files appear whole or not at all."""

    path: Path

    @property
    def file(self) -> Path:
        return self.path / FILE

    @property
    def engine_log(self) -> Path:
        return self.path / ENGINE_LOG

    def create(self, *, with_steps: bool = True) -> None:
        """Raises HeadcountError where something else is there already, or where nothing may be."""
        try:
            if self.path.exists() and not self.path.is_dir():
                raise HeadcountError(f"{shown(self.path)} is a file; name a folder for the recording")
            inside = {path.name for path in self.path.iterdir()} if self.path.exists() else set()
            if not self.file.exists() and inside - {STEPS, ENGINE_LOG}:
                raise HeadcountError(f"{shown(self.path)} holds files but no recording; name a new folder")
            (self.path / STEPS if with_steps else self.path).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise HeadcountError(f"{shown(self.path)} cannot hold a recording: {reason}; name another folder") from None

    def read(self, kind: str = KIND_STEPS) -> Json | None:
        """What `recording.json` holds; None where there is none. Raises InputError where it is not of this kind."""
        if not self.file.is_file():
            return None
        found: Json = read_json(self.file, "result_bytes")
        head = typed(found, _Head, self.file)
        if (head.schema_version, head.kind) != (SCHEMA_VERSION, kind):
            given = f" but of {shown(str(head.kind))}" if head.kind else ""
            raise InputError(f"{shown(self.file)} is not a recording of {kind}{given}; name another folder")
        content: type = _CONTENT[kind]
        typed(found, content, self.file)
        if kind == KIND_STEPS:
            found["options"] = engine_options(found["options"], self.file, "options")
        return found

    def write(self, content: Mapping[str, object], kind: str = KIND_STEPS) -> None:
        text = json.dumps({"schema_version": SCHEMA_VERSION, "kind": kind, **content}, indent=1)
        write_whole(self.file, text + "\n")

    def steps_file(self, number: int, load: Load) -> Path:
        return self.path / STEPS / f"{number:03d}-{load.name}.csv"

    def write_steps(self, number: int, load: Load, steps: pd.DataFrame) -> None:
        columns = [*STEP_COLUMNS, *EXTRA_COLUMNS]
        write_whole(self.steps_file(number, load), steps[columns].to_csv(index=False, float_format="%.9g"))

    def read_steps(self, number: int, load: Load) -> pd.DataFrame:
        """Raises InputError where a load's file is not what was written."""
        path = self.steps_file(number, load)
        if not path.is_file():
            raise InputError(f"{shown(path)} is missing, though {FILE} says that its load is done")
        try:
            steps = pd.read_csv(io.StringIO(read_text(path, "result_bytes")))
        except (ValueError, OverflowError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{shown(path)} is not a table of steps") from None
        if missing := [name for name in (*STEP_COLUMNS, *EXTRA_COLUMNS) if name not in steps]:
            raise InputError(f"{shown(path)} has no column {', '.join(missing)}")
        for name in (*STEP_COLUMNS, "phase", "wall_s"):
            _check_column(path, steps[name])
        return steps

    def read_done(self, entries: Sequence[Mapping[str, object]]) -> list[pd.DataFrame]:
        """The steps of each load that is done, by what `recording.json` says of the loads."""
        done = [(number, convert(each["load"], Load)) for number, each in enumerate(entries) if each["status"] == DONE]
        return [self.read_steps(number, load) for number, load in done]


def _check_column(path: Path, column: "pd.Series[Any]") -> None:
    """Raises InputError with the line of a value that no step has."""
    values = pd.to_numeric(column, errors="coerce").to_numpy(np.float64)
    wrong = ~(np.abs(values) <= _MOST) & ~(column.isna().to_numpy() & (column.name in _UNTIMED))
    if column.name != "start_s":
        wrong |= values < 0
    if wrong.any():
        row = int(wrong.argmax())
        given = shown(str(column.iloc[row]))
        raise InputError(
            f"{shown(path)}, line {row + 2}: {column.name} is {given}; it must be a number, at least 0; leave the load "
            "out and record it again"
        )


def is_of_server(path: Path) -> bool:
    """Whether a folder's recording is of a live server's metrics, not of engine steps."""
    file = RecordingFolder(path).file
    return typed(read_json(file, "result_bytes"), _Head, file).kind == KIND_SERVER


def read_recording(path: Path) -> Recording:
    """The complete loads of a recorded engine. Raises HeadcountError where the folder holds none."""
    folder = RecordingFolder(path)
    content = folder.read()
    if content is None:
        raise InputError(f"{shown(path)} holds no recording; make one with 'headcount calibrate record --out {path}'")
    tables = folder.read_done(content["loads"])
    if not tables:
        raise InputError(f"{shown(path)} holds no complete load yet; run the same 'headcount calibrate record' again")
    excluded = {
        "steps that warm the engine up": content["warm_up_steps"],
        "loads that the engine could not run": sum(entry["status"] == FAILED for entry in content["loads"]),
    }
    log = folder.engine_log
    start = read_text(log, "result_bytes", damaged="replace") if log.is_file() else ""
    return Recording(
        options=content["options"],
        environment=content["environment"] | {"startup_log": start},
        steps=pd.concat(tables, ignore_index=True),
        excluded={reason: count for reason, count in excluded.items() if count},
    )


def step_table(load: Load, records: Sequence[ReadJson], *, begin_unix_s: float, window: int) -> pd.DataFrame:
    """A probe's steps of one load with the sums over their batches; `window` caps the context of windowed layers.

    A sequence with one token is a decode, as in `BatchSums` of the simulator.
    """
    rows = []
    for record in records:
        cycle_s, schedule_s = (math.nan if (s := record.get(name)) is None else s for name in ("cycle_s", "schedule_s"))
        step = {
            "start_s": record["unix_s"] - begin_unix_s,
            "cycle_s": cycle_s,
            "schedule_s": schedule_s,
            "load": load.name,
            "phase": record["phase"],
            "wall_s": record.get("wall_s", cycle_s),
        }
        rows.append(step | batch_sums(record["computed"], record["scheduled"], len(record["unsampled"]), window))
    return pd.DataFrame(rows, columns=[*STEP_COLUMNS, *EXTRA_COLUMNS])


def batch_sums(
    computed: Sequence[int], scheduled: Sequence[int], num_unsampled: int, window: int
) -> dict[str, int | float]:
    """`BatchSums` of a step whose sequences have `computed` tokens and are given `scheduled` more."""
    sums = BatchSums(sampled=-num_unsampled)
    for start, tokens in zip(computed, scheduled, strict=True):
        sums.add(start=start, end=start + tokens, is_sampled=True, is_decode=tokens == 1, window=window)
    return vars(sums)
