"""A recording of real vLLM, 0.32 on a CPU: what its designed loads predict about other traffic in the same engine.

`validation/cpu_vllm.py` made this one (4 layers of width 512, random weights).
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrate.record.design import expected_table
from calibrate.record.recording_files import read_recording
from validation import cpu_vllm as cpu

FOLDER = Path(__file__).parents[1] / "recordings" / "cpu-small"
PIECES = [cpu.traffic(1000 + number) for number in range(cpu.NUM_PIECES)]
BATCH = (
    "tokens", "sequences", "sampled", "decode_context", "window_context", "prefill_tokens", "prefill_work",
    "window_prefill_work",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: piece.name)
def test_every_batch_of_the_traffic_was_foreseen(piece: Any) -> None:
    steps = read_recording(FOLDER).steps
    ran = steps[steps["load"] == piece.name]
    foreseen = expected_table(piece, cpu.LIMITS)
    assert len(ran) == len(foreseen) > 0
    for name in BATCH:
        np.testing.assert_allclose(ran[name].to_numpy(float), foreseen[name].to_numpy(float), err_msg=name)


def test_the_traffic_takes_the_time_that_the_designed_loads_predict() -> None:
    found = cpu.judged(read_recording(FOLDER).steps, PIECES)
    assert abs(found["total_error"]) <= 0.05
    assert found["r2"] >= 0.85


def test_the_recording_says_what_it_is_of() -> None:
    recording = read_recording(FOLDER)
    assert recording.environment["vllm_version"].startswith("0.32")
    assert recording.environment["device"].lower().startswith("cpu")
