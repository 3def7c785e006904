"""What a probe tells of vLLM's steps, and where ours differ from it."""

import json
import os
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from calibrate.conformance.interpreters.interpreter_build import last_line
from simulator.engines.vllm.engine import EngineConfig

COMPARED = ("scheduled", "preempted", "finished", "free_blocks", "running", "waiting")
Record = dict[str, Any]
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "PYTHONWARNINGS": "ignore",
    "CUDA_VISIBLE_DEVICES": "",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first step at which the two disagree; None where one of them made no such call."""

    case: int
    engine: dict[str, Any]
    ours: Record | None
    vllm: Record | None


def first_difference(
    engine: EngineConfig, ours: Sequence[Record], hits: dict[int, int], theirs: Sequence[Record], *, case: int = 0
) -> Difference | None:
    """The first `schedule()` call that was decided otherwise, or admitted a request with another prefix hit.

    `hits` are ours, in tokens by request.
    """
    for number in range(max(len(ours), len(theirs))):
        one = ours[number] if number < len(ours) else None
        other = theirs[number] if number < len(theirs) else None
        if one is None or other is None or any(one[name] != other[name] for name in COMPARED):
            return Difference(case=case, engine=asdict(engine), ours=one, vllm=other)
        for request, computed in other["new"].items():
            if hits[int(request)] != computed:
                record = {"request": request, "prefix_hit_tokens": hits[int(request)]}
                return Difference(case=case, engine=asdict(engine), ours=record, vllm=other)
    return None


def num_prefix_hits(steps: Sequence[Record]) -> int:
    """Requests that entered with a prefix hit."""
    return sum(computed > 0 for step in steps for computed in step["new"].values())


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
                if "scheduled" in record:
                    record["scheduled"] = {int(request): tokens for request, tokens in record["scheduled"].items()}
                yield record
            if process.wait() != 0:
                errors.seek(0)
                raise ValueError(f"{failure} by {python}: {last_line(errors.read())}")
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
