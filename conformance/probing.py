"""Runs a probe under another interpreter: cases in, what it says of them out."""

import json
import subprocess
import tempfile
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from calibrate.interpreters.interpreter_build import environment, last_line
from files.errors import HeadcountError

Record = dict[str, Any]
PROBES = Path(__file__).parent / "probes"
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "PYTHONWARNINGS": "ignore",
    "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(PROBES),
}  # fmt: skip


def answers(
    python: Path, probe: str, cases: Sequence[Record], *, failure: str, folder: Path = PROBES
) -> Generator[Record]:
    """One answer to each case, in order; both have a `name`. Raises HeadcountError as `probe_records` does."""
    with closing(probe_records(python, probe, cases, failure=failure, folder=folder)) as records:
        for case, answer in zip(cases, records, strict=True):
            assert answer["name"] == case["name"], "the probe answers in order"
            yield answer


def probe_records(
    python: Path, probe: str, cases: Iterable[Record], *, failure: str, folder: Path = PROBES
) -> Generator[Record]:
    """What a probe of this folder writes of these cases under `python`, line by line, as it comes.

    Raises HeadcountError, beginning with `failure`, where it ends badly.
    """
    with tempfile.TemporaryDirectory() as made, tempfile.TemporaryFile("w+") as errors:
        path = Path(made) / "cases.jsonl"
        path.write_text("".join(json.dumps(case) + "\n" for case in cases), encoding="utf-8")
        process = subprocess.Popen(
            [str(python), str(folder / f"{probe}.py"), str(path)], stdout=subprocess.PIPE, stderr=errors, text=True,
            env={**environment(), **_ENVIRONMENT},
        )  # fmt: skip
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("{"):  # older releases log to stdout
                    yield json.loads(line)
            if process.wait() != 0:
                errors.seek(0)
                raise HeadcountError(f"{failure} by {python}: {last_line(errors.read())}")
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
