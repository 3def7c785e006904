"""The directory of a recording: what was asked for, what ran, and each load's steps once it is complete."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from boundary.outputs import write_whole
from calibrate.record.loads import Load, load_from_json
from calibrate.recording import STEP_COLUMNS, Recording
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
        """Raises ValueError where something else is there already."""
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is a file; name a folder for the recording")
        strangers = {path.name for path in self.path.iterdir()} - {STEPS, ENGINE_LOG} if self.path.exists() else set()
        if not self.file.exists() and strangers:
            raise ValueError(f"{self.path} holds files but no recording; name a new folder")
        (self.path / STEPS if with_steps else self.path).mkdir(parents=True, exist_ok=True)

    def read(self, kind: str = KIND_STEPS) -> dict[str, Any] | None:
        """What `recording.json` holds; None where there is none. Raises ValueError where it is not of this kind."""
        try:
            text = self.file.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            found = json.loads(text)
        except ValueError:
            raise ValueError(f"{self.file} is not JSON; record into a new folder") from None
        if not isinstance(found, dict) or found.get("schema_version") != SCHEMA_VERSION or found.get("kind") != kind:
            given = found.get("kind") if isinstance(found, dict) else None
            raise ValueError(f"{self.file} is not a recording of {kind}" + (f" but of {given}" if given else ""))
        return found

    def write(self, content: Mapping[str, Any], kind: str = KIND_STEPS) -> None:
        text = json.dumps({"schema_version": SCHEMA_VERSION, "kind": kind, **content}, indent=1)
        write_whole(self.file, text + "\n")

    def steps_file(self, number: int, load: Load) -> Path:
        return self.path / STEPS / f"{number:03d}-{load.name}.csv"

    def write_steps(self, number: int, load: Load, steps: pd.DataFrame) -> None:
        columns = [*STEP_COLUMNS, *EXTRA_COLUMNS]
        write_whole(self.steps_file(number, load), steps[columns].to_csv(index=False, float_format="%.9g"))

    def read_steps(self, number: int, load: Load) -> pd.DataFrame:
        """Raises ValueError where a load's file is not what was written."""
        path = self.steps_file(number, load)
        try:
            steps = pd.read_csv(path)
        except FileNotFoundError:
            raise ValueError(f"{path} is missing, though {FILE} says that its load is done") from None
        except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError):
            raise ValueError(f"{path} is not a table of steps") from None
        if missing := [name for name in (*STEP_COLUMNS, *EXTRA_COLUMNS) if name not in steps]:
            raise ValueError(f"{path} has no column {', '.join(missing)}")
        return steps

    def read_done(self, entries: Sequence[Mapping[str, Any]]) -> list[pd.DataFrame]:
        """The steps of each load that is done, by what `recording.json` says of the loads."""
        done = [(number, load_from_json(each["load"])) for number, each in enumerate(entries) if each["status"] == DONE]
        return [self.read_steps(number, load) for number, load in done]


def read_recording(path: Path) -> Recording:
    """The complete loads of a recorded engine. Raises ValueError where the folder holds none."""
    folder = RecordingFolder(path)
    content = folder.read()
    if content is None:
        raise ValueError(f"{path} holds no recording; make one with 'headcount calibrate record --out {path}'")
    tables = folder.read_done(content["loads"])
    if not tables:
        raise ValueError(f"{path} holds no complete load yet; run the same 'headcount calibrate record' again")
    excluded = {
        "steps that warm the engine up": content["warm_up_steps"],
        "loads that the engine could not run": sum(entry["status"] == FAILED for entry in content["loads"]),
    }
    log = folder.engine_log
    start = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    return Recording(
        options=content["options"],
        environment=content["environment"] | {"startup_log": start},
        steps=pd.concat(tables, ignore_index=True),
        excluded={reason: count for reason, count in excluded.items() if count},
    )


def step_table(load: Load, records: Sequence[Mapping[str, Any]], *, begin_unix_s: float, window: int) -> pd.DataFrame:
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
