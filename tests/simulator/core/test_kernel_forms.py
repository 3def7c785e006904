"""Kernels compiled for fleets of a form do exactly what the whole ones do."""

import importlib
import pkgutil
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import simulator.core
from conformance.cases.scheduler_cases import images_case
from conformance.cases.sglang_cases import STEP_S, stateful_sglang_case
from files.compiling import machine_code
from files.compiling.kernels import IS_COMPILED
from kvcache.layout.kv_layout import KVGroup
from simulator.core import lag
from simulator.core.compiling.forms import EMPTY, FORMS
from simulator.core.jit import RUN
from simulator.core.sglang.layout import SGLangArrays
from simulator.core.state import Arrays
from simulator.engines.vllm.speculation import Speculation
from simulator.fleet.fleet import Fleet, Pool
from simulator.latency.step_time import constant_step_times
from simulator.simulation import Simulation, StalledError
from tests.simulator.core.test_core_against_reference import SEED, assert_same
from tests.simulator.engines.sglang.test_core import simulated_case, table_of
from tests.simulator.random_cases import GROUPS, UNEQUAL_GROUPS, Case, cases

LOADED_BY_LLVM: dict[object, object] = {}  # once for all cases
ROUTERS_THAT_SEE_MORE = ("vllm-dp", "cache-aware", "dynamo-kv", "ray-prefix", "llm-d-precise")


def with_engines(case: Case, groups: tuple[KVGroup, ...]) -> Case:
    """The same fleet with engines of those groups of layers, which do nothing that needs the whole kernels."""
    pools = [
        replace(
            pool,
            data_parallel_size=1,
            engine=replace(
                pool.engine,
                num_gpu_blocks=len(groups) * pool.engine.num_gpu_blocks,
                kv_groups=groups,
                pipeline_parallel_size=1,
                scheduling_policy="fcfs",
                scheduler_reserve_full_isl=True,
                speculation=None,
            ),
        )
        for pool in case.fleet.pools
    ]
    return replace(case, fleet=replace(case.fleet, pools=tuple(pools)))


def without_prefixes(case: Case) -> Case:
    pools = [replace(pool, engine=replace(pool.engine, enable_prefix_caching=False)) for pool in case.fleet.pools]
    return replace(case, fleet=replace(case.fleet, pools=tuple(pools)))


plain_cases = cases().map(lambda case: with_engines(case, (KVGroup(None),)))


LONGEST_S = 1000.0  # a request that no pool holds whole is preempted again and again


def bytes_after(case: Case, form: str) -> dict[str, bytes]:
    simulation = Simulation(case.fleet, case.table, seed=SEED)
    simulation.form = form
    with suppress(StalledError):
        simulation.run(LONGEST_S)
    of_sglang = {f"sglang.{name}": value for name, value in simulation.arrays.sglang._asdict().items()}
    arrays = {**simulation.arrays._asdict(), **of_sglang}
    left_out = ("sglang", "tables") if len(simulation.arrays.segments) else ("sglang",)  # such tables begin unwritten
    return {name: value.tobytes() for name, value in arrays.items() if name not in left_out}


def test_each_form_has_names_of_its_own() -> None:
    """Of two forms that two processes compiled, calls of the one would else reach into the other: a run never ended."""
    named = [lag.end_steps.of_form(form) for form in FORMS]
    assert len({each.py_func.__qualname__ for each in named}) == len(FORMS)


@settings(max_examples=40)
@given(plain_cases)
def test_a_plain_fleet_leaves_the_same_bytes_in_every_form(case: Case) -> None:
    assert Simulation(case.fleet, case.table).form == "plain"
    expected = bytes_after(case, "whole")
    assert all(bytes_after(case, form) == expected for form in ("plain", "routed"))
    assert_same(case)


@pytest.mark.skipif(not IS_COMPILED, reason="nothing is compiled")
@settings(max_examples=20)
@given(plain_cases)
def test_kernels_that_llvm_loads_leave_the_same_bytes(case: Case) -> None:
    """As on a machine without a linker."""
    expected = bytes_after(case, "plain")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RUN["plain"], "_calls", LOADED_BY_LLVM)
        patched.setattr(machine_code, "_load_shared", _refused)
        assert bytes_after(case, "plain") == expected


def _refused(_: object) -> int:
    raise OSError("no shared object is loaded")


@settings(max_examples=40)
@given(plain_cases, st.sampled_from(ROUTERS_THAT_SEE_MORE))
def test_a_router_that_sees_more_leaves_the_same_bytes_in_its_form(case: Case, router: str) -> None:
    case = replace(case, fleet=replace(case.fleet, router=router))
    assert Simulation(case.fleet, case.table).form == "routed"
    assert bytes_after(case, "routed") == bytes_after(case, "whole")


@settings(max_examples=40)
@given(cases(), st.sampled_from(GROUPS))
def test_engines_with_windows_leave_the_same_bytes_in_their_form(case: Case, groups: tuple[KVGroup, ...]) -> None:
    case = with_engines(case, groups)
    assert Simulation(case.fleet, case.table).form == "windowed"
    assert bytes_after(case, "windowed") == bytes_after(case, "whole")


@settings(max_examples=20)
@given(cases(), st.sampled_from([groups for groups in UNEQUAL_GROUPS if groups[0].block_size is None][:2]))
def test_engines_with_states_leave_the_same_bytes_in_their_form(case: Case, groups: tuple[KVGroup, ...]) -> None:
    case = without_prefixes(with_engines(case, groups))
    assert Simulation(case.fleet, case.table).form == "layered"
    assert bytes_after(case, "layered") == bytes_after(case, "whole")


@settings(max_examples=20)
@example(seed=21751194, number=1)
@given(seed=st.integers(0, 2**32 - 1), number=st.integers(1, 20))
def test_images_leave_the_same_bytes_in_their_form(seed: int, number: int) -> None:
    found = images_case(seed, number)
    engine = replace(
        found.engine,
        kv_groups=(KVGroup(None),),
        prefix_cache_retention_interval=0,
        pipeline_parallel_size=1,
        scheduling_policy="fcfs",
    )
    times = constant_step_times(
        STEP_S, max_num_batched_tokens=engine.max_num_batched_tokens, max_num_seqs=engine.max_num_seqs
    )
    case = Case(Fleet(pools=(Pool(engine=engine, step_times=times),)), replace(found.table, waits=None))
    assert Simulation(case.fleet, case.table).form == "images"
    assert bytes_after(case, "images") == bytes_after(case, "whole")


@settings(max_examples=20)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 20),
    st.sampled_from(["sglang", "sglang_windowed", "sglang_stateful", "sglang_drafting"]),
)
def test_sglangs_engines_leave_the_same_bytes_in_their_form(seed: int, number: int, form: str) -> None:
    of = stateful_sglang_case(seed, number) if form == "sglang_stateful" else simulated_case(seed, number)
    if form == "sglang_drafting":
        drafts = Speculation(method="eagle", num_speculative_tokens=3, acceptance_rate=0.6)
        of = replace(of, engine=replace(of.engine, speculation=drafts))
    if form == "sglang_windowed":
        windows = {"sliding_window_size": 20, "swa_max_total_num_tokens": 20_000}
        of = replace(of, engine=replace(of.engine, **windows))
    times = constant_step_times(
        STEP_S, max_num_batched_tokens=of.engine.max_num_batched_tokens, max_num_seqs=of.engine.max_num_seqs
    )
    case = Case(Fleet(pools=(Pool(engine=of.engine, step_times=times),)), table_of(of))
    assert Simulation(case.fleet, case.table).form == form
    assert bytes_after(case, form) == bytes_after(case, "whole")


@settings(max_examples=20)
@given(plain_cases)
def test_a_fleet_whose_steps_are_logged_or_whose_engine_drafts_is_whole(case: Case) -> None:
    pool = case.fleet.pools[0]
    speculation = Speculation(method="ngram", num_speculative_tokens=1, acceptance_rate=1.0)
    drafting = replace(pool, engine=replace(pool.engine, speculation=speculation))
    fleet = replace(case.fleet, pools=(*case.fleet.pools[1:], drafting))
    assert Simulation(fleet, case.table).form == "whole"
    assert Simulation(case.fleet, case.table, log_steps=True).form == "whole"


def test_what_is_folded_is_the_name_of_one_field_alone() -> None:
    """A kernel's source tells a field by its name alone."""
    modules = [module.name for module in pkgutil.walk_packages(simulator.core.__path__, "simulator.core.")]
    of_modules = [vars(importlib.import_module(name)).values() for name in modules if name.endswith("layout")]
    records = {id(value): value for values in of_modules for value in values if isinstance(value, np.dtype)}
    named = [name for record in records.values() for name in record.names or ()]
    named += [*Arrays._fields, *SGLangArrays._fields]
    folded = {*EMPTY, *(name for fields in FORMS.values() for name in fields)}
    assert {name: named.count(name) for name in folded} == dict.fromkeys(folded, 1)
