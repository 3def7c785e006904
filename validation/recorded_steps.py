"""Shipped step times beside the steps of a recorded engine.

    python -m validation.recorded_steps [FOLDER]

FOLDER holds a recording of `headcount calibrate record`; those in `validation/recordings` are vLLM 0.26.0 on one H200,
torch 2.11.0, random weights, 2026-11-26 and 27. No constant was fitted to them. `headcount calibrate check FOLDER`
says the same in words.
"""

import sys
from pathlib import Path

from calibrate.check.steps import check_steps
from calibrate.record.recording_files import read_recording

FOLDER = Path(__file__).parent / "recordings" / "h200-llama-3.1-8b"


def main() -> None:
    """Print both tables."""
    checked = check_steps(read_recording(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER), {})
    for found in checked.tables.values():
        shown = found.assign(cycle_ms=found["cycle_s"] * 1e3, predicted_ms=found["predicted_s"] * 1e3)
        print(shown[["decode_context", "cycle_ms", "predicted_ms", "error"]].round(2).to_string(), "\n")


if __name__ == "__main__":
    main()
