"""A real vLLM engine in a process of its own that runs loads."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from calibrate.interpreters.interpreter_build import environment, last_line
from calibrate.record.loads import Load
from calibrate.record.record_model import model_folder, write_config
from files.documents import Json
from files.errors import HeadcountError
from files.schema import AtLeastOne, Count, Lenient, typed
from simulator.engines.argument import Settings

PROBE = Path(__file__).parent / "probes" / "record_probe.py"
END_TIMEOUT_S = 20  # for an engine to leave by itself


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is recorded: `engine` are vLLM's own arguments, without what is left to its defaults."""

    model: str
    engine: Settings = field(default_factory=dict)
    temperature: float = 0.0
    precision: float = 0.03

    @property
    def has_weights(self) -> bool:
        """Whether the model's own are loaded, instead of random ones."""
        return bool(self.engine.get("load_format", "dummy") != "dummy")

    def to_json(self) -> dict[str, object]:
        return {"model": self.model, "engine": dict(self.engine), "temperature": self.temperature}


class _Settings(Lenient, frozen=True):
    max_num_seqs: AtLeastOne
    max_num_batched_tokens: AtLeastOne
    max_model_len: AtLeastOne
    block_size: AtLeastOne


class _About(Lenient, frozen=True):
    """What an engine says of itself at its start, as far as the plan and the recording need it."""

    settings: _Settings
    windows: list[tuple[Count | None, Count]]
    num_gpu_blocks: AtLeastOne
    vllm_version: str
    device: str
    device_name: str


class Engine:
    """A probe that runs loads."""

    def __init__(self, process: subprocess.Popen[str], log: Path, python: Path) -> None:
        self._process, self._log, self._python = process, log, python
        found = self._read()
        if "started" not in found:
            raise HeadcountError(f"vLLM could not be started by {python}: it printed {str(found)[:200]}")
        self.about: Json = found["started"]
        typed(self.about, _About, python, "the engine")

    def identity(self) -> Json:
        """What must not change within a recording; the KV blocks of a GPU differ a little from start to start."""
        varying = {"num_gpu_blocks", "num_cpus"}
        return {name: value for name, value in self.about.items() if name not in varying}

    def run(self, load: Load) -> Generator[Json]:
        """The steps of a load as they end. Raises `LoadFailedError` where the engine cannot run it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(asdict(load)) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._fail()
        while "finished" not in (record := self._read()):
            if "failed" in record:
                raise LoadFailedError(str(record["reason"]))
            yield record

    def _read(self) -> Json:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                found = json.loads(line)
            except ValueError:
                continue  # half a line of an engine that was killed; the end of its output comes next
            if isinstance(found, dict):
                return found
        self._fail()
        raise AssertionError("unreachable")

    def _fail(self) -> None:
        self._process.wait()
        said = self._log.read_text(encoding="utf-8", errors="replace")
        raise HeadcountError(
            f"vLLM's engine ended under {self._python}: {last_line(said)} (all of it is in {self._log})"
        )


class LoadFailedError(Exception):
    """The engine runs, this load does not."""


@contextmanager
def running_engine(
    asked: Asked, config: Mapping[str, object], python: Path, probe: Path, *, log: Path
) -> Iterator[Engine]:
    """A running engine, with all of its processes gone at the end; what it says is added to `log`."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        given = model_folder(asked.model) if asked.has_weights else None  # else its config alone is needed
        if given is None:
            write_config(Path(scratch) / "model", config)
        model = {"model_folder": str(given or Path(scratch) / "model"), "is_own_folder": given is None}
        job = Path(scratch) / "job.json"
        job.write_text(
            json.dumps({**model, "temperature": asked.temperature, "engine": dict(asked.engine)}), encoding="utf-8"
        )
        with log.open("a", encoding="utf-8") as errors:
            process = subprocess.Popen(
                [str(python), str(probe), str(job)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                text=True, env={**environment(), "PYTHONWARNINGS": "ignore"}, start_new_session=True,
            )  # fmt: skip
            try:
                yield Engine(process, log, python)
            finally:
                _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Ask the engine to leave, then make its whole group leave: tensor-parallel workers are processes of their own."""
    assert process.stdin is not None and process.stdout is not None
    for send in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, send)
        except ProcessLookupError:
            break
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(BrokenPipeError):
            pipe.close()
