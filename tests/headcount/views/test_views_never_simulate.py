"""A result is complete when its query returns: no view simulates, and none estimates."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import headcount as hc
from headcount.queries.report_data import sensitivity, study
from headcount.queries.result import Result
from headcount.views import shown
from headcount.views.report import document
from simulator.simulation import Simulation
from simulator.study.variations import variation
from tests.headcount.conftest import SHORT_ANSWERS

ON = ("llama-3.1-8b", "h100-sxm")
SMALL = {
    "max_num_seqs": 2, "max_model_len": 4096, "latency_model": "constant", "step_s": 0.03, "workload": SHORT_ANSWERS,
}  # fmt: skip
FEW = {"replications": 2, "precision": 0.9, "store": False}
LOAD = {"input_len": 100, "output_len": 10, "concurrency": 2}
QUESTIONS: dict[str, Callable[[], Result]] = {
    "memory": lambda: hc.memory(*ON),
    "memory comparison": lambda: hc.memory_comparison(*ON, tensor_parallel_size=1),
    "training memory": lambda: hc.training_memory(*ON, recompute="full"),
    "simulate": lambda: hc.simulate(*ON, **LOAD),
    "capacity": lambda: hc.capacity(*ON, gpus=[1], **SMALL, **FEW),
    "capacity of pools": lambda: hc.disaggregated_capacity(*ON, "prefill=1,decode=1", **SMALL, **FEW),
    "fleet": lambda: hc.fleet(ON[0], {"h100-sxm": 1, "l40s": 1}, **SMALL, **FEW),
    "plan": lambda: hc.plan(ON[0], users=10, gpu="h100-sxm", **SMALL, replications=2, precision=0.9, store=False),
    "compare": lambda: hc.compare(*ON, gpus=[1, 2], **SMALL, **FEW),
    "whatif": lambda: hc.whatif(*ON, vary={"max_num_seqs": [2, 4]}, **{**SMALL, "max_num_seqs": None}, **FEW),
    "autoscaling": lambda: hc.simulate_autoscaling(
        *ON, replicas=2, users=4, duration_s=60.0, events=["crash@20s"], **SMALL
    ),
    "describe": lambda: hc.describe("chat", users=20),
}


@pytest.fixture
def no_simulation(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Forbids simulations and estimates from the call on."""

    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("a view simulates")

    def forbid() -> None:
        monkeypatch.setattr(Simulation, "run", forbidden)
        monkeypatch.setattr(Simulation, "__init__", forbidden)
        for module, name in (
            (variation, "screen"), (variation, "screen_disaggregated"), (sensitivity, "screen"),
            (sensitivity, "screen_disaggregated"), (study, "evaluator_of"),
        ):  # fmt: skip
            monkeypatch.setattr(module, name, forbidden)

    yield forbid


@pytest.mark.parametrize(
    "question", [each if each in ("memory", "simulate", "capacity") else pytest.param(each, marks=pytest.mark.slow)
                 for each in QUESTIONS],
)  # fmt: skip
def test_every_view_of_a_complete_result_is_drawn_without_simulating(
    question: str, no_simulation: Callable[[], None]
) -> None:
    result = QUESTIONS[question]().complete()
    no_simulation()
    assert shown.text(result) and shown.notebook(result)
    assert shown.summary(result).question and len(result.to_frame()) == len(result.rows())
    answer = result.to_json(report=True)
    assert {"summary", "body", "versions"} <= set(answer["report"])
    for ending in ("html", "md", "json"):
        assert document.FORMATS.load(ending).made(document.report_of(answer))


def test_text_of_a_result_needs_no_more_than_its_query(no_simulation: Callable[[], None]) -> None:
    result = QUESTIONS["capacity"]()
    no_simulation()
    assert "1 GPU" in str(result)
    with pytest.raises(AssertionError, match="completed before a report"):
        shown.report_json(result)
