"""Kernels compiled for fleets of a form do exactly what the whole ones do."""

import importlib
import pkgutil
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import simulator.core
from kvcache.layout.kv_layout import KVGroup
from simulator.core.compiling.forms import EMPTY, FORMS
from simulator.core.layout import Arrays
from simulator.core.sglang.layout import SGLangArrays
from simulator.engines.vllm.speculation import Speculation
from simulator.simulation import Simulation
from tests.simulator.random_cases import Case, cases
from tests.simulator.test_core_against_reference import SEED, assert_same

ROUTERS_THAT_SEE_MORE = ("vllm-dp", "cache-aware", "dynamo-kv", "ray-prefix", "llm-d-precise")


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


def bytes_after(case: Case, form: str) -> dict[str, bytes]:
    simulation = Simulation(case.fleet, case.table, seed=SEED)
    simulation.form = form
    simulation.run()
    return {name: value.tobytes() for name, value in simulation.arrays._asdict().items() if name != "sglang"}


@settings(max_examples=40, deadline=None)
@given(plain_cases())
def test_a_plain_fleet_leaves_the_same_bytes_in_every_form(case: Case) -> None:
    assert Simulation(case.fleet, case.table).form == "plain"
    expected = bytes_after(case, "whole")
    for form in ("plain", "routed"):
        found = bytes_after(case, form)
        assert {name for name in expected if found[name] != expected[name]} == set()
    assert_same(case)


@settings(max_examples=40, deadline=None)
@given(plain_cases(), st.sampled_from(ROUTERS_THAT_SEE_MORE))
def test_a_router_that_sees_more_leaves_the_same_bytes_in_its_form(case: Case, router: str) -> None:
    case = replace(case, fleet=replace(case.fleet, router=router))
    assert Simulation(case.fleet, case.table).form == "routed"
    assert bytes_after(case, "routed") == bytes_after(case, "whole")


@settings(max_examples=20, deadline=None)
@given(plain_cases())
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
    folded = (*FORMS["plain"], *EMPTY)
    assert {name: named.count(name) for name in folded} == dict.fromkeys(folded, 1)
