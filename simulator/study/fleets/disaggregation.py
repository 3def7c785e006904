"""Users of engines that compute prompts and engines that compute answers."""

from dataclasses import replace

from simulator.disaggregation import DisaggregatedDeployment
from simulator.study.candidate import RunContext
from simulator.study.capacity import Capacity, find_capacity
from simulator.study.capacity_interval import users_within_errors
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_row import CapacityRow, empty_row, no_capacity_reason, row_of
from simulator.study.estimate import estimate_users, stationary_load
from simulator.study.points import Evaluator


def evaluator_of_disaggregated(
    question: CapacityQuestion, disaggregated: DisaggregatedDeployment, how: RunContext
) -> Evaluator:
    """Simulates loads on both pools."""
    return Evaluator(
        fleet=disaggregated.fleet(question.router),
        load=stationary_load(
            question.load(*disaggregated.plans), disaggregated.decode, disaggregated.num_decode, question.slo
        ),
        slo=question.slo,
        watcher=how.watch,
        simulations=how.simulations,
    )


def guessed_size(disaggregated: DisaggregatedDeployment, evaluator: Evaluator) -> float:
    """As large a load as the GPUs would serve with every engine doing both."""
    parts = zip(disaggregated.plans, disaggregated.counts, strict=True)
    return sum(estimate_users(plan, count, evaluator.load, evaluator.slo).size for plan, count in parts)


def capacity_of_disaggregated(
    question: CapacityQuestion,
    disaggregated: DisaggregatedDeployment,
    evaluator: Evaluator,
    guess: float = 0.0,
) -> Capacity:
    """The largest load that both pools serve together; `guess` is where the search begins."""
    return find_capacity(
        evaluator,
        guess or guessed_size(disaggregated, evaluator),
        precision=question.precision,
        replications=question.replications,
    )


def disaggregated_row(
    question: CapacityQuestion, disaggregated: DisaggregatedDeployment, evaluator: Evaluator, found: Capacity
) -> CapacityRow:
    """What was found, as a row of `headcount capacity` has it; its replicas are the engines of both pools."""
    engines = sum(disaggregated.counts)
    if not found.mean:
        reason = no_capacity_reason(question, evaluator)
        row = empty_row(
            question, disaggregated.gpus, disaggregated.decode.tensor_parallel_size, reason, disaggregated.decode
        )
        return replace(row, replicas=engines, disaggregated=disaggregated)
    row = row_of(
        question,
        disaggregated.decode,
        evaluator,
        found,
        gpus=disaggregated.gpus,
        within_errors=lambda users: users_within_errors(disaggregated.plans, evaluator, found, users),
    )
    return replace(row, replicas=engines, disaggregated=disaggregated)
