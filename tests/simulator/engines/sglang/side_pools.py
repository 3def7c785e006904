"""What the tests of SGLang's pools beside the KV cache share: of windows, of SSM states."""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import assume

from conformance.cases.sglang_cases import STEP_S, SGLangCase
from conformance.sglang_scheduler import our_batches
from simulator.core.layout import NONE
from simulator.core.sglang.layout import SGLangArrays
from simulator.fleet.fleet import Fleet, Pool
from simulator.latency.step_time import constant_step_times
from simulator.simulation import Simulation, StalledError
from tests.simulator.engines.sglang.test_core import assert_same_decisions, simulation_of, table_of


def simulated(case: SGLangCase) -> SGLangCase:
    """What the core simulates of a random case."""
    kept = (replace(request, ignore_eos=False, timeout_s=None) for request in case.requests)
    return replace(case, requests=tuple(kept))


def simulated_as_the_reference(case: SGLangCase) -> Simulation:
    """A run to its end, of which every batch is the reference's; cases that crash there are left out."""
    theirs, has_crashed = our_batches(case)
    finished = [row for batch in theirs for row in batch["finished"]]
    assume(not has_crashed and len(finished) == len(case.requests))
    simulation = simulation_of(case)
    simulation.run()
    assert_same_decisions(case, simulation.steps, theirs)
    return simulation


def check_often(case: SGLangCase, form: str, check: Callable[[Simulation], None]) -> None:
    """Look into a simulation every few steps."""
    times = constant_step_times(
        STEP_S, max_num_batched_tokens=case.engine.max_num_batched_tokens, max_num_seqs=case.engine.max_num_seqs
    )
    simulation = Simulation(Fleet(pools=(Pool(engine=case.engine, step_times=times),)), table_of(case))
    assert simulation.form == form
    for step in range(1, 200):
        try:
            simulation.run(step * 4.5 * STEP_S)
        except StalledError:
            return
        if simulation.arrays.replicas["is_laid_out"][0]:
            check(simulation)


def listed_nodes(arrays: SGLangArrays) -> list[int]:
    """The nodes that hold something of the pool, by their last use."""
    listed, node = list[int](), int(arrays.engines[0]["oldest_side"])
    while node != NONE:
        listed.append(node)
        node = int(arrays.side_nodes[node]["newer"])
    assert all(arrays.side_nodes[node]["is_held"] for node in listed)
    return listed
