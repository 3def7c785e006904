"""Our own H100, to whose chat load nothing is fitted: the simulated load is the measured one."""

import pytest

from tests.validation.data import DATA, needs_data
from validation.accuracy.served import chat
from validation.constants import step_times


@needs_data
def test_the_chat_load_is_simulated_as_it_was_served() -> None:
    found = chat(DATA)
    assert found["measured"]["requests"] == 503
    for name, error in found["error_percent"].items():
        assert abs(error) <= {"ttft": 10, "tpot": 5}[name[:4]], name
    assert found["simulated"]["attainment"] == pytest.approx(found["measured"]["attainment"], abs=0.02)


@needs_data
def test_no_fit_sees_the_chat_load() -> None:
    fitted = [case.run for case in step_times.runs_of("hopper", DATA)]
    assert not [run for run in fitted if "chat" in str(getattr(run, "source", ""))]
