"""What no scheduler tells: how soon vLLM's push worker knows that a write is over."""

import json
import subprocess
from pathlib import Path

import pytest

from conformance import probes

PROBE = Path(probes.__file__).parent / "push_worker_probe.py"


@pytest.mark.slow
def test_vllm_s_worker_tells_of_a_write_in_the_second_step_after_it_or_in_one_that_registers(vllm_python: Path) -> None:
    """As `PushNetwork.tell` has it; of 100, a few may be late on a busy machine."""
    done = subprocess.run([vllm_python, PROBE], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    found = {line["registers"]: line["steps"] for line in lines}
    assert found[False].get("1", 0) == 0
    assert found[False]["2"] >= 90
    assert found[True]["1"] >= 90
