"""Fixtures of what the views are tested with."""

import pytest

from simulator.study.capacity_question import CapacityQuestion
from tests.simulator.study.made_up_fleets import simulate_as


@pytest.fixture
def formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers follow a formula: each server carries 200 users."""

    def linear(question: CapacityQuestion, servers: int) -> int:
        return 200 * servers

    simulate_as(monkeypatch, linear)
