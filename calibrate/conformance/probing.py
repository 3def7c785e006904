"""Runs a probe under another interpreter: cases in, what it says of them out."""

import json
import subprocess
import tempfile
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

from calibrate.conformance.interpreters.interpreter_build import environment, last_line

Record = dict[str, Any]
PROBES = Path(__file__).parent / "probes"  # a probe from elsewhere may import what lies there too
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "PYTHONWARNINGS": "ignore",
    "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(PROBES),
}  # fmt: skip


def probe_records(python: Path, probe: Path, cases: Iterable[Record], *, failure: str) -> Generator[Record]:
    """What a probe, a script, writes of these cases under `python`, line by line, as it comes.

    Raises ValueError, beginning with `failure`, where it ends badly.
    """
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as errors:
        path = Path(folder) / "cases.jsonl"
        path.write_text("".join(json.dumps(case) + "\n" for case in cases), encoding="utf-8")
        process = subprocess.Popen(
            [str(python), str(probe), str(path)], stdout=subprocess.PIPE, stderr=errors, text=True,
            env={**environment(), **_ENVIRONMENT},
        )  # fmt: skip
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("{"):  # older releases log to stdout
                    yield json.loads(line)
            if process.wait() != 0:
                errors.seek(0)
                raise ValueError(f"{failure} by {python}: {last_line(errors.read())}")
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
