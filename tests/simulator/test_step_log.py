"""The log of what each `schedule()` call decided."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.simulation import Simulation
from simulator.step_log import _FINISHED, _STEP, StepRecord, read_log
from tests.simulator.random_cases import Case, cases

ids = st.integers(0, 2**31 - 1)
records = st.builds(
    StepRecord,
    replica=st.integers(0, 9),
    step=st.integers(1, 2**31 - 1),
    scheduled=st.dictionaries(ids, st.integers(1, 2**31 - 1), max_size=6),
    preempted=st.lists(ids, max_size=4),
    free_blocks=ids,
    running=ids,
    waiting=ids,
    embeddings=ids,
    free_slots=ids,
    finished=st.lists(ids, max_size=4),
)


def written(record: StepRecord) -> list[int]:
    """What the core writes for a step: preempted, pairs, encoder, counts, state, then the finished as they come."""
    pairs = [word for pair in record.scheduled.items() for word in pair]
    counts = [record.embeddings, record.free_slots, len(record.scheduled), len(record.preempted)]
    state = [record.free_blocks, record.running, record.waiting, record.step, record.replica, _STEP]
    finished = [word for request in record.finished for word in (request, record.replica, _FINISHED)]
    return [*record.preempted, *pairs, *counts, *state, *finished]


@pytest.mark.slow
@given(st.lists(records, max_size=8))
def test_what_is_written_is_read(steps: list[StepRecord]) -> None:
    words = [word for step in steps for word in written(step)]
    assert read_log(np.array(words, np.int32), 2**31) == steps


@given(records)
def test_a_step_as_json_has_the_agreed_keys(record: StepRecord) -> None:
    found = json.loads(json.dumps(record.to_json()))
    keys = ["step", "scheduled", "preempted", "finished", "free_blocks", "running", "waiting"]
    keys = ["embeddings"] * bool(record.embeddings) + keys
    assert list(found) == keys
    assert {int(request): tokens for request, tokens in found["scheduled"].items()} == record.scheduled


@settings(max_examples=20)
@given(cases(max_replicas=1))
def test_running_falls_by_what_finishes_and_rises_by_what_starts(case: Case) -> None:
    simulation = Simulation(case.fleet, case.table, log_steps=True)
    simulation.run()
    away: set[int] = set()  # preempted: the output in flight may end them while they wait
    for before, after in pairwise(simulation.steps):
        away = (away | set(before.preempted)) - set(before.scheduled)
        num_ended = len(set(before.finished) - away)
        started = after.running - before.running + num_ended + len(after.preempted)
        assert 0 <= started <= len(after.scheduled)
