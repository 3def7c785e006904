"""Where the error of step times allows a load to queue and not to queue, the answer says so."""

from typing import Any

import pytest

from headcount.diagnostics import Facts, find_diagnostics
from headcount.queries.queueing import queue_share
from headcount.queries.simulate import SimulateResult, simulate
from headcount.views.of import simulate as view
from simulator.study.capacity_row import CapacityRow

MIXTURE = {"model": "Qwen/Qwen3-30B-A3B", "gpu": "rtx-pro-6000", "input_len": 1024, "output_len": 512}


def served(rate: float, **changes: Any) -> SimulateResult:
    return simulate(**{**MIXTURE, "rate": rate, "num_requests": 300, **changes})


@pytest.mark.parametrize(("rate", "queues"), [(6.0, False), (8.0, True)])
def test_a_mixture_on_an_rtx_pro_6000_may_or_may_not_queue(rate: float, queues: bool) -> None:
    """At a rate that fills the KV cache if steps are as long as they may be, or unless they are as short."""
    answer = served(rate)
    assert answer.other_end is not None
    assert (queue_share(answer.result) > 0.5) == queues
    assert (queue_share(answer.other_end.result) > 0.5) != queues
    assert (answer.other_end.factor < 1) == queues
    figures = answer.figures()
    other_s = figures["may_queue"]["ttft_s"]["mean"]
    assert figures["ttft_s"]["mean_low"] <= other_s <= figures["ttft_s"]["mean_high"]
    assert [item.code for item in answer.diagnostics if "may or may not queue" in item.text] == ["may-queue"]
    said = view.summary(answer).answer
    assert said.startswith("This load may or may not queue")


def test_a_light_load_and_an_overload_surely_do_one_of_both() -> None:
    """At 1 request/s hardly anything runs; clients that all come at once queue however fast the steps are."""
    for answer in (served(1.0), served(200.0, num_requests=400)):
        assert answer.other_end is None
        assert answer.figures()["may_queue"] is None
        assert not [item for item in answer.diagnostics if item.code == "may-queue"]


def test_steps_that_were_given_leave_nothing_open() -> None:
    assert served(8.0, latency_model="constant", step_s=0.06).other_end is None


def test_a_capacity_row_whose_users_may_queue_says_so() -> None:
    """The shares of a GPU nobody measured leave steps open by half: fewer than half of the users may be served."""
    row = make_row(users=1000, users_at_step_time_error_high=400, step_time_error=0.67)
    assert row.may_queue and row.is_near_limit
    notes = find_diagnostics(Facts(near_limit=[("2 GPUs", row)]))
    assert [note.code for note in notes] == ["may-queue"]
    assert notes[0].text.startswith("2 GPUs: 1,000 users may or may not queue: with steps 67% longer")
    assert not make_row(users=1000, users_at_step_time_error_high=600, step_time_error=0.67).may_queue
    in_time = make_row(users=1000, users_at_step_time_error_high=400, step_time_error=0.67, binding="TPOT: compute")
    assert not in_time.may_queue  # they get tokens too slowly, and wait for none


def make_row(**figures: Any) -> CapacityRow:
    return CapacityRow(
        gpus=2, tp=1, replicas=2, users_low=300, users_high=1500, **{"binding": "TTFT: KV blocks", **figures}
    )
