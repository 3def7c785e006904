"""Recording the steps of a real engine, load by load."""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from msgspec import convert

from calibrate.record.design import Plan, expected_seconds, pilot, plan_loads, warm_up
from calibrate.record.loads import Limits, Load
from calibrate.record.record_model import (
    attention_window,
    check_plannable,
    guessed_seconds,
    model_folder,
    record_config,
)
from calibrate.record.recorded_engine import PROBE, Asked, Engine, LoadFailedError, running_engine
from calibrate.record.recording_files import DONE, FAILED, PLANNED, RecordingFolder, step_table
from calibrate.record.step_terms import FloatArray, TermTimes, fit_terms
from files.documents import Json, ReadJson
from files.errors import HeadcountError
from kvcache.gpus.gpu import find_gpu

MAX_ROUNDS = 4  # of planning: more loads where the steps scatter more than was assumed
KV_SHARE = 0.9  # of the pool that loads may fill, so that nothing is preempted
SPREADS = (0.5, 2.0)  # of what the plan assumes: steps that scatter more are told, not repeated without end
PLANNED_MEDIAN_ERROR = 0.05  # that the plan's assumed scatter stands for


@dataclass(kw_only=True)
class Progress:
    """How far a recording is; whoever watches reads it after each step and each load."""

    done: int = 0
    planned: int = 0
    failed: int = 0
    steps: int = 0  # so far in this call
    recorded_steps: int = 0  # of complete loads
    expected_left_s: float = 0.0
    note: str = ""
    plan: Plan | None = None  # the latest
    times: TermTimes | None = None  # fitted on what is there
    is_complete: bool = False  # nothing is left to run for the precision asked for


Watch = Callable[[Progress], None]


def record(
    asked: Asked,
    python: Path,
    out: Path,
    *,
    loads: Sequence[Load] | None = None,
    max_seconds: float | None = None,
    probe: Path = PROBE,
    watch: Watch = lambda _: None,
) -> Progress:
    """Record into a folder what is missing there; a load that was interrupted is run again.

    The loads are planned for the precision asked for, unless `loads` are given. Raises HeadcountError where the engine
    cannot be run, or the folder holds a recording of something else.
    """
    config = asked_config(asked)
    folder = RecordingFolder(out)
    folder.create()
    content = folder.read() or {}
    _require_same(content.get("asked"), asked.to_json(), out, "of other options")
    watched = Progress(note="starting the engine")
    if content.get("reached", float("inf")) <= asked.precision:
        tell(watched, content["loads"])
        watched.times, watched.is_complete = fit_recorded(folder, content["loads"]), True
        return watched
    watch(watched)
    with running_engine(asked, config, python, probe, log=folder.engine_log) as engine:
        _require_same(content.get("engine"), engine.identity(), out, "of another engine")
        session = _Session(
            asked=asked, config=config, given=loads, folder=folder, content=content, engine=engine,
            progress=watched, watch=watch,
            end_s=time.monotonic() + (float("inf") if max_seconds is None else max_seconds),
        )  # fmt: skip
        session.run()
    return watched


def asked_config(asked: Asked) -> Json:
    """The config of the model to record. Raises ValueError where that can be refused before an engine is looked for."""
    config = record_config(asked.model)
    if asked.has_weights and model_folder(asked.model) is None:
        raise HeadcountError(
            f"--load-format {asked.engine['load_format']} loads weights; give --model a folder with them"
        )
    check_plannable(config, asked.engine)
    return config


@dataclass(kw_only=True)
class _Session:
    """One engine's share of a recording; `content` is what `recording.json` holds."""

    asked: Asked
    config: ReadJson
    given: Sequence[Load] | None
    folder: RecordingFolder
    content: Json
    engine: Engine
    progress: Progress
    watch: Watch
    end_s: float  # of `time.monotonic`

    @cached_property
    def limits(self) -> Limits:
        return limits_of(self.engine.about, self.config)

    def begin(self) -> Json:
        """What is known before the first load."""
        about = self.engine.about
        settings = {name: value for name, value in about["settings"].items() if value is not None}
        settings["dtype"] = str(settings.get("dtype", "auto")).removeprefix("torch.")
        settings |= {"model": self.asked.model, "vllm_version": about["vllm_version"].split("+")[0]}
        return {
            "asked": self.asked.to_json(),
            "engine": self.engine.identity(),
            "options": settings | known_gpu(about["device_name"]),
            "environment": {name: value for name, value in about.items() if name not in {"settings", "windows"}}
            | {"temperature": self.asked.temperature, "attention_window": self.limits.window, "config": self.config},
            "begin_unix_s": time.time(),
            "warm_up_steps": 0,
            "seed": secrets.randbelow(2**31),
            "loads": [],
        }

    def run(self) -> None:
        """All that is missing, as long as there is time."""
        self.content = self.content or self.begin()
        self._warm_up()
        if not self.content["loads"]:
            first = [pilot(self.limits)] if self.given is None else self.given
            self._add(first, [expected_seconds(load, self.limits, self._guess()) for load in first])
        self._run_planned()
        if self.given is None:
            self._run_until_precise()
        else:
            self.progress.is_complete = not self._any(PLANNED)
        self.progress.times = fit_recorded(self.folder, self.content["loads"])
        self._save()
        self._tell("done")

    def _run_until_precise(self) -> None:
        for _ in range(MAX_ROUNDS):
            if self._left_s() <= 0 or self._any(PLANNED):
                return
            plan = self._plan_more()
            if not plan.loads:
                assert self.progress.times is not None
                is_precise = self.progress.times.relative_error <= self.asked.precision
                self.progress.is_complete = plan.is_reached and is_precise
                if self.progress.is_complete and not plan.too_long:
                    self.content["reached"] = self.asked.precision
                return
            self._run_planned()

    def _warm_up(self) -> None:
        self._tell("warming up")
        try:
            self.content["warm_up_steps"] += sum(1 for _ in self.engine.run(warm_up(self.limits)))
        except LoadFailedError as error:
            raise HeadcountError(f"the engine cannot run even short prompts: {error}") from None

    def _run_planned(self) -> None:
        for number, entry in enumerate(self.content["loads"]):
            if entry["status"] == PLANNED:
                if entry["expected_s"] > self._left_s() and self._any(DONE):
                    break
                self._run(number, entry)

    def _run(self, number: int, entry: dict[str, object]) -> None:
        load = convert(entry["load"], Load)
        self._tell(load.name)
        records, begin_s = [], time.monotonic()
        try:
            for record in self.engine.run(load):
                records.append(record)
                self.progress.steps += 1
                self.watch(self.progress)
        except LoadFailedError as error:
            entry |= {"status": FAILED, "reason": str(error)}
        else:
            table = step_table(
                load,
                records,
                begin_unix_s=self.content["begin_unix_s"],
                window=self.limits.window or self.limits.max_model_len,
            )
            self.folder.write_steps(number, load, table)
            entry |= {"status": DONE, "steps": len(table), "took_s": time.monotonic() - begin_s}
        self._save()

    def _plan_more(self) -> Plan:
        """Further loads, none if all is as precise as asked for, or more of them would not help.

        Both must be precise: compositions that are reachable, by the plan's assumptions with the measured scatter, and
        those that were recorded, by their own residuals.
        """
        times = self.progress.times = fit_recorded(self.folder, self.content["loads"])
        missed = max(times.relative_error / self.asked.precision, 1.0)
        left_s = self._left_s() / self._wall_per_cycle()
        plan = plan_loads(
            self.limits,
            np.where(times.seconds > 0, times.seconds, self._guess() * 0.1),  # no load must look free
            precision=self.asked.precision,
            done=self._loads(DONE),
            spread=float(np.clip(missed * times.median_error / PLANNED_MEDIAN_ERROR, *SPREADS)),
            max_seconds=None if left_s == float("inf") else max(left_s, 1.0),
        )
        self.progress.plan = plan
        self._add(plan.loads, plan.seconds)
        return plan

    def _add(self, loads: Sequence[Load], seconds: Sequence[float]) -> None:
        """The wall may take longer than the steps' own clock."""
        clock = self._wall_per_cycle()
        for load, expected_s in zip(loads, seconds, strict=True):
            seeded = replace(load, seed=self.content["seed"] + len(self.content["loads"]))
            entry = {"load": asdict(seeded), "status": PLANNED, "expected_s": expected_s * clock}
            self.content["loads"].append(entry)
        self._save()
        self._tell("planned")

    def _wall_per_cycle(self) -> float:
        if not self._any(DONE):
            return 1.0
        table = recorded_table(self.folder, self.content["loads"])
        return max(float(table["wall_s"].sum() / max(table["cycle_s"].sum(), 1e-9)), 1.0)

    def _guess(self) -> FloatArray:
        ranks = int(self.engine.about["settings"].get("tensor_parallel_size") or 1)
        return guessed_seconds(self.config, self.engine.about["device"], ranks)

    def _loads(self, status: str) -> list[Load]:
        return [convert(each["load"], Load) for each in self.content["loads"] if each["status"] == status]

    def _any(self, status: str) -> bool:
        return any(entry["status"] == status for entry in self.content["loads"])

    def _left_s(self) -> float:
        return self.end_s - time.monotonic()

    def _save(self) -> None:
        self.folder.write(self.content)

    def _tell(self, note: str) -> None:
        self.progress.note = note
        tell(self.progress, self.content["loads"])
        self.watch(self.progress)


def tell(progress: Progress, entries: Sequence[ReadJson]) -> None:
    """Bring the counts up to what `recording.json` says of its loads."""
    progress.planned = len(entries)
    progress.done = sum(entry["status"] == DONE for entry in entries)
    progress.failed = sum(entry["status"] == FAILED for entry in entries)
    progress.recorded_steps = sum(entry.get("steps", 0) for entry in entries)
    progress.expected_left_s = sum(entry["expected_s"] for entry in entries if entry["status"] == PLANNED)


def recorded_table(folder: RecordingFolder, entries: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    """The steps of all loads that are done. Raises HeadcountError where there are none."""
    tables = folder.read_done(entries)
    if not tables:
        raise HeadcountError(f"the engine could run none of the loads; see {folder.file}")
    return pd.concat(tables, ignore_index=True)


def fit_recorded(folder: RecordingFolder, entries: Sequence[ReadJson]) -> TermTimes:
    """The terms of what is recorded; steps of one phase, with prefill or without, err alike."""
    table = recorded_table(folder, entries)
    return fit_terms(table, list(zip(table["load"], table["phase"], table["prefill_tokens"] > 0, strict=True)))


def limits_of(about: ReadJson, config: Mapping[str, object]) -> Limits:
    """What a started engine takes; a layer group's share of the pool bounds the tokens that it holds."""
    settings, groups = about["settings"], [(window, layers) for window, layers in about["windows"]]
    tokens = about["num_gpu_blocks"] * settings["block_size"] // max(len(groups), 1)
    return Limits(
        max_num_seqs=settings["max_num_seqs"],
        max_num_batched_tokens=settings["max_num_batched_tokens"],
        max_model_len=settings["max_model_len"],
        kv_tokens=int(tokens * KV_SHARE),
        window=attention_window(config, groups),
    )


def known_gpu(device_name: str) -> dict[str, str]:
    """The option that names the device, where the catalog knows it by what its driver calls it."""
    try:
        return {"gpu": find_gpu(device_name).name}
    except ValueError:
        return {}


def _require_same(before: Any, now: Json, out: Path, what: str) -> None:
    """Raises HeadcountError naming what differs."""
    if before is None:
        return
    flat_before, flat_now = _flat(before), _flat(now)
    for name in sorted({*flat_before, *flat_now}):
        one, other = flat_before.get(name), flat_now.get(name)
        if one != other:
            raise HeadcountError(
                f"{out} holds a recording {what}: {name} is {one} there, {other} now; name a new folder"
            )


def _flat(value: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for name, item in value.items():
        found |= _flat(item, f"{name}.") if isinstance(item, Mapping) else {prefix + name: item}
    return found
