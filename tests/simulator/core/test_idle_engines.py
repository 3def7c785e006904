"""An engine without requests costs next to nothing."""

import subprocess
import sys

import pytest

SERVE = """
import resource, sys
from headcount.api import simulate
replicas, ranks = map(int, sys.argv[1:])
answer = simulate(
    "qwen3-30b-a3b", "h100-sxm", replicas=replicas, data_parallel_size=ranks, enable_expert_parallel=ranks > 1,
    concurrency=2, input_len=100, output_len=10, num_requests=10,
)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
MOST_BYTES_EACH = 20_000


def peak_bytes(replicas: int, ranks: int) -> int:
    ran = subprocess.run([sys.executable, "-c", SERVE, str(replicas), str(ranks)], capture_output=True, text=True)  # noqa: PLW1510
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(("replicas", "ranks"), [(2000, 1), (1, 2048)])
def test_an_engine_without_requests_takes_at_most_20_kb(replicas: int, ranks: int) -> None:
    """Beside two of them, which need the same kernels: those of ranks take 50 MB more than those of a plain engine."""
    few = min(replicas, 2), min(ranks, 2)
    peak_bytes(*few)  # compiles what is not compiled yet
    more = peak_bytes(replicas, ranks) - peak_bytes(*few)
    assert more <= MOST_BYTES_EACH * replicas * ranks
