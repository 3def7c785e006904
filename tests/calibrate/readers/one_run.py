"""A small run, written to a file and read back."""

import json
from pathlib import Path
from typing import Any

from calibrate.measured_run import MeasuredRun
from calibrate.readers import read_measured
from tests.calibrate.readers.result_writers import Sent

RUN = [
    Sent(arrival_us=0, prompt_tokens=100, ttft_us=30_000, gaps_us=(10_000, 12_000), session=1),
    Sent(arrival_us=5_000, prompt_tokens=120, ttft_us=45_000, gaps_us=(11_000,) * 9, session=2, cached_tokens=64),
    Sent(arrival_us=9_000, prompt_tokens=80, ttft_us=20_000, gaps_us=(), session=1, has_failed=True),
    Sent(arrival_us=60_000, prompt_tokens=90, ttft_us=25_000, gaps_us=(), session=1),
]


def written(tmp_path: Path, value: Any, name: str = "result.json") -> Path:
    path = tmp_path / name
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def only(path: Path) -> MeasuredRun:
    (run,) = read_measured(path)
    return run
