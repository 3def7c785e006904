"""Kernels compiled for plain fleets do exactly what the whole ones do."""

import importlib
import pkgutil
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import simulator.core
from kvcache.layout.kv_layout import KVGroup
from simulator.core.compiling.plain import EMPTY, FIELDS
from simulator.core.layout import Arrays
from simulator.core.sglang.layout import SGLangArrays
from simulator.engines.vllm.speculation import Speculation
from simulator.simulation import Simulation
from tests.simulator.random_cases import Case, cases
from tests.simulator.test_core_against_reference import SEED, assert_same


@st.composite
def plain_cases(draw: st.DrawFn) -> Case:
    case = draw(cases())
    pools = [
        replace(
            pool,
            data_parallel_size=1,
            engine=replace(
                pool.engine,
                kv_groups=(KVGroup(None),),
                pipeline_parallel_size=1,
                scheduling_policy="fcfs",
                scheduler_reserve_full_isl=True,
                speculation=None,
            ),
        )
        for pool in case.fleet.pools
    ]
    return replace(case, fleet=replace(case.fleet, pools=tuple(pools)))


def bytes_of(arrays: Arrays | SGLangArrays) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in arrays._asdict().items() if isinstance(value, np.ndarray)}


@settings(max_examples=40, deadline=None)
@given(plain_cases())
def test_a_plain_fleet_leaves_the_same_bytes_as_with_the_whole_kernels(case: Case) -> None:
    plain, whole = (Simulation(case.fleet, case.table, seed=SEED) for _ in range(2))
    assert plain.is_plain
    plain.run()
    whole.is_plain = False
    whole.run()
    expected = bytes_of(whole.arrays)
    assert {name for name, found in bytes_of(plain.arrays).items() if found != expected[name]} == set()
    assert_same(case)


@settings(max_examples=20, deadline=None)
@given(plain_cases())
def test_a_fleet_whose_steps_are_logged_or_whose_engine_drafts_is_not_plain(case: Case) -> None:
    pool = case.fleet.pools[0]
    speculation = Speculation(method="ngram", num_speculative_tokens=1, acceptance_rate=1.0)
    drafting = replace(pool, engine=replace(pool.engine, speculation=speculation))
    fleet = replace(case.fleet, pools=(*case.fleet.pools[1:], drafting))
    assert Simulation(case.fleet, case.table).is_plain
    assert not Simulation(fleet, case.table).is_plain
    assert not Simulation(case.fleet, case.table, log_steps=True).is_plain


def test_what_is_folded_is_the_name_of_one_field_alone() -> None:
    """A kernel's source tells a field by its name alone."""
    modules = [module.name for module in pkgutil.walk_packages(simulator.core.__path__, "simulator.core.")]
    of_modules = [vars(importlib.import_module(name)).values() for name in modules if name.endswith("layout")]
    records = {id(value): value for values in of_modules for value in values if isinstance(value, np.dtype)}
    named = [name for record in records.values() for name in record.names or ()]
    named += [*Arrays._fields, *SGLangArrays._fields]
    assert {name: named.count(name) for name in (*FIELDS, *EMPTY)} == dict.fromkeys((*FIELDS, *EMPTY), 1)
