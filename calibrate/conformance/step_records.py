"""What a probe tells of vLLM's steps, and where ours differ from them."""

import json
import os
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from calibrate.conformance.interpreters.interpreter_build import last_line
from simulator.engines.vllm.engine import EngineConfig

COMPARED = ("scheduled", "new", "resumed", "preempted", "finished", "free_blocks", "running", "waiting")
BY_REQUEST = ("scheduled", "new", "resumed")  # tokens by request, in the order of the batch
Record = dict[str, Any]
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "PYTHONWARNINGS": "ignore",
    "CUDA_VISIBLE_DEVICES": "",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first step at which two schedules part; None where one of them made no such call."""

    case: int
    engine: dict[str, Any]
    of: str  # whose schedule is beside vLLM's
    ours: Record | None
    vllm: Record | None


def first_difference(
    engine: EngineConfig, ours: Sequence[Record], theirs: Sequence[Record], *, of: str, case: int = 0
) -> Difference | None:
    """The first `schedule()` call that was decided otherwise: in whom, in how many tokens, or in which order.

    Fields that our records have not are not compared.
    """
    for one, other in zip_longest(ours, theirs):
        if one is None or other is None or any(_ordered(one[name]) != _ordered(other[name]) for name in _shared(one)):
            return Difference(case=case, engine=asdict(engine), of=of, ours=one, vllm=other)
    return None


def _shared(record: Record) -> list[str]:
    return [name for name in COMPARED if name in record]


def _ordered(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) else value


def num_prefix_hits(steps: Sequence[Record], entered: str = "new") -> int:
    """Requests that entered, or were resumed, with a prefix hit."""
    return sum(computed > 0 for step in steps for computed in step[entered].values())


def probe_records(python: Path, probe: Path, argument: Path, *, failure: str) -> Generator[Record]:
    """What a probe under `python` writes, line by line, as it comes.

    Raises ValueError, beginning with `failure`, where it ends badly.
    """
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [str(python), str(probe), str(argument)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **_ENVIRONMENT},
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if not line.startswith("{"):  # older releases log to stdout
                    continue
                record = json.loads(line)
                for name in BY_REQUEST:
                    if name in record:
                        record[name] = {int(request): tokens for request, tokens in record[name].items()}
                yield record
            if process.wait() != 0:
                errors.seek(0)
                raise ValueError(f"{failure} by {python}: {last_line(errors.read())}")
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
