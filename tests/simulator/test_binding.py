"""What is said of a limit that is missed."""

from types import SimpleNamespace
from typing import Any

import pytest

from simulator.study.binding import first_missed
from simulator.study.slo import SLO


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.0, "0%"), (0.0005, "0.05%"), (0.3, "30%"), (0.9995, "99.95%"), (1.0, "100%")],
)
def test_a_few_misses_are_not_none_and_most_are_not_all(share: float, said: str) -> None:
    point: Any = SimpleNamespace(mean=lambda _: share)
    slo = SLO(ttft_s=1.0, tpot_s=None, attainment=0.95)
    assert first_missed(slo, point) == f"{said} of requests miss the TTFT limit"
