"""Which prompts decode engines compute themselves: the originals' rules, both twins, and what stays true of a fleet."""

import contextlib
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.cases import disaggregation_cases as disaggregated_cases
from conformance.cases.disaggregation_cases import ApartCase, disaggregated_case, simulate_disaggregated
from conformance.cases.scheduler_case import MAX_STEPS
from conformance.disaggregation import EngineCore, core_disaggregated_steps, difference_of
from conformance.probes.disaggregation_loop import BusyLoop, DisaggregatedDeployment
from conformance.probes.engine_loop import POLL_S, Load
from simulator.core.layout import FINISHED, NONE
from simulator.core.vllm.disaggregation.arrays import deciding
from simulator.engines.vllm.connectors.pulling import Network
from simulator.fleet.deciders import RULES, Decider, Seen, read_decider
from simulator.fleet.fleet import Fleet
from simulator.simulation import Simulation, StalledError
from workloads.requests import independent_requests

DECIDERS = (
    "prefix-based-pd-decider", "prefix-based-pd-decider:nonCachedTokens=40",
    "prefix-based-pd-decider:nonCachedTokens=16,promptTokens=60", "isl_bounding:eff_isl_threshold=50",
    "isl_bounding:eff_isl_threshold=90,eff_isl_ratio_threshold=1", "prefill_load:prefill_busy_threshold=0.02",
    "isl_or_load:eff_isl_threshold=30,prefill_busy_threshold=0.5",
)  # fmt: skip


def llm_d_disaggregates(non_cached: int, prompt: int, tokens: int, hit: int) -> bool:
    """`PrefixBasedPDDecider.disaggregate`, llm-d-router's prefix_based_pd_decider.go, line by line."""
    if non_cached == 0:
        return False
    if prompt > 0 and tokens < prompt:
        return False
    if tokens < non_cached:
        return False
    return not tokens - hit < non_cached


def dynamo_bypasses(policy: str, values: dict[str, float], seen: Seen) -> bool:
    """`should_bypass_remote_prefill`, Dynamo's conditional_disagg.rs, policy by policy."""
    eff_isl = max(seen.prompt_tokens - seen.cached_tokens, 0)
    isl = False
    if policy != "prefill_load" and not eff_isl >= values["eff_isl_threshold"]:
        isl = eff_isl / max(seen.prompt_tokens, 1) < values["eff_isl_ratio_threshold"]
    if policy == "isl_bounding":
        return isl
    busy = seen.prefill_tokens > values["prefill_busy_threshold"] * seen.max_num_batched_tokens
    return busy if policy == "prefill_load" else isl or busy


def random_decider(rng: np.random.Generator) -> Decider:
    name = str(rng.choice(list(RULES)))
    values = {
        "nonCachedTokens": int(rng.choice([0, 1, 16, 512, 2048])), "promptTokens": int(rng.choice([0, 0, 100, 1000])),
        "eff_isl_threshold": int(rng.choice([1, 64, 2048, 5000])),
        "eff_isl_ratio_threshold": float(rng.choice([0.0, 0.25, 0.5, 0.7, 1.0])),
        "prefill_busy_threshold": float(rng.choice([0.0, 0.5, 1.0, 16.0])),
    }  # fmt: skip
    return read_decider(f"{name}:" + ",".join(f"{key}={values[key]:g}" for key in RULES[name].parameters))


@pytest.mark.slow
def test_both_twins_decide_as_the_originals_on_random_states() -> None:
    import numba  # noqa: PLC0415  takes long to load

    from simulator.core.vllm.disaggregation import deciding as core  # noqa: PLC0415  the same

    computes_here: Any = numba.njit(core.computes_here.py_func)  # type: ignore[attr-defined]
    rng = np.random.default_rng(20261124)
    for _ in range(10_000):
        decider = random_decider(rng)
        prompt = int(rng.choice([1, 64, 100, 128, 512, 1000, 2048, 6000]))
        seen = Seen(
            prompt_tokens=prompt,
            cached_tokens=int(rng.integers(0, prompt // 16 + 1)) * 16,
            prefill_tokens=int(rng.choice([0, 1, 1024, 2048, 2049, 40_000])),
            max_num_batched_tokens=2048,
        )
        values = dict(decider.values)
        if decider.name.startswith("prefix"):
            least = int(values["nonCachedTokens"]), int(values["promptTokens"])
            expected = not llm_d_disaggregates(*least, prompt, seen.cached_tokens)
        else:
            expected = dynamo_bypasses(decider.name, values, seen)
        assert decider.rule.computes_here(values, seen) == expected
        state = prompt, seen.cached_tokens, seen.prefill_tokens, seen.max_num_batched_tokens
        assert bool(computes_here(deciding(decider)[0], *state)) == expected


def decided(case: ApartCase, decider: str) -> ApartCase:
    return replace(case, handover=replace(case.handover, decider=read_decider(decider)))


@pytest.mark.slow
@pytest.mark.parametrize("router", ["least-outstanding", "round-robin", "dynamo-kv", "llm-d"])
@pytest.mark.parametrize("decider", DECIDERS)
def test_every_request_is_served_and_every_block_is_free_when_all_is_over(decider: str, router: str) -> None:
    num_here = 0
    for number in range(12):
        case = decided(disaggregated_case(5, number), decider)
        pools = tuple(replace(pool, num_servers=2) for pool in case.pools)
        simulation = Simulation(Fleet(pools=pools, router=router, handover=case.handover), case.table)
        with contextlib.suppress(StalledError):
            simulation.run(3000.0)
        if simulation.num_finished < case.table.num_requests:  # a request that never fits
            continue
        replicas, handovers = simulation.arrays.replicas, simulation.arrays.handovers
        assert (replicas["num_free_blocks"] == replicas["num_usable_blocks"]).all()
        assert (simulation.arrays.engine_views["outstanding"] == 0).all()
        came = handovers["stage"] == 1
        here = came & (handovers["source"] == NONE)
        ended = came & (simulation.requests["status"] == FINISHED)
        assert (simulation.requests["replica"][ended] >= 2).all()
        num_here += int(here.sum())
        if decider == "prefix-based-pd-decider":
            assert (came & ~here).sum() == 0
            assert (simulation.totals["steps"][:2] == 0).all()
    assert num_here > 0


@pytest.mark.slow
def test_a_decider_that_keeps_nothing_here_changes_no_bit() -> None:
    for number in range(6):
        case = disaggregated_case(6, number)
        count = case.table.num_requests
        table = independent_requests(
            arrival_s=np.arange(count) * 0.3, prompt_tokens=case.table.prompt_tokens % 30 + 7, output_tokens=[5] * count
        )
        pools = tuple(replace(pool, num_servers=1) for pool in case.pools)
        runs = []
        for each in (case, decided(case, "prefix-based-pd-decider:nonCachedTokens=1")):
            simulation = Simulation(Fleet(pools=pools, handover=each.handover), table)
            with contextlib.suppress(StalledError):
                simulation.run(3000.0)
            runs.append(simulation.requests[["first_token_s", "finish_s", "replica", "output"]].tobytes())
        assert runs[0] == runs[1]


class DecidedApart(DisaggregatedDeployment):
    """A request goes at once to the decode engine that was looked at when it came, or there after its prefill."""

    def __init__(self, load: Any, loops: Any, network: Any, case: dict[str, Any], here: set[int]) -> None:
        super().__init__(load, loops, network, case)
        self._here, self._looked_at = here, dict[int, int]()

    def _enter(self, row: int, arrival_s: float) -> list[BusyLoop]:
        count = len(self.loops) - self._num_prefill
        if row not in self.network.sources:
            self._looked_at[row] = self._next[1]
            following = (self._next[1] + 1) % count
            if row in self._here:
                self._next[1] = following
                loop: BusyLoop = self.loops[self._num_prefill + self._looked_at[row]]
                self._where[row] = [loop]
                loop.core.add(row, loop.core.load.requests[row], arrival_s)
                return [loop]
            loops = super()._enter(row, arrival_s)
            self._next[1] = following
            return loops
        kept, self._next[1] = self._next[1], self._looked_at[row]
        loops = super()._enter(row, arrival_s)
        self._next[1] = kept
        return loops


@pytest.mark.slow
@pytest.mark.parametrize("number", range(40))
def test_the_compiled_core_decides_as_the_readable_schedulers_beside_prompts_of_their_own(number: int) -> None:
    case = decided(disaggregated_case(11, number), DECIDERS[1 + number % 2])
    handovers = simulate_disaggregated(case).arrays.handovers
    here = set(np.flatnonzero((handovers["stage"] == 1) & (handovers["source"] == NONE)).tolist())
    found = case.to_json()
    load = Load(found["requests"])
    pools = [pool for pool in case.pools for _ in range(pool.num_engines)]
    network = Network([pool.nic for pool in pools if pool.nic])
    loops = [
        BusyLoop(engine, lambda loop: EngineCore(case, loop, load, network), load, POLL_S)
        for engine in range(len(pools))
    ]
    readable = DecidedApart(load, loops, network, found, here).run(MAX_STEPS)
    assert difference_of(case, core_disaggregated_steps(case), readable, of="core", number=number) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("isl_bound", "no decider 'isl_bound'; did you mean 'isl_bounding'?"),
        ("prefill_load", "decider 'prefill_load' needs prefill_busy_threshold"),
        ("isl_bounding:eff_isl_ratio_threshold=2", "eff_isl_ratio_threshold is '2'; give a number, 0 to 1"),
        ("isl_bounding:eff_isl_threshold=0.5", "eff_isl_threshold is '0.5'; give a whole number, at least 0"),
        ("prefix-based-pd-decider:noncached=2", "decider 'prefix-based-pd-decider' has no parameter 'noncached'"),
    ],
)
def test_what_is_no_decider_is_one_clear_error(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        read_decider(text)


def test_defaults_are_the_originals() -> None:
    assert read_decider("isl_bounding").values == {"eff_isl_threshold": 2048, "eff_isl_ratio_threshold": 0.7}
    assert read_decider("prefix-based-pd-decider").values == {"nonCachedTokens": 0, "promptTokens": 0}


def test_a_router_in_python_is_refused_with_a_decider() -> None:
    class Mine:
        def __init__(self, _seed: int) -> None: ...
        def choose(self, view: Any) -> int:
            return int(view.candidates[0])

    case = decided(disaggregated_cases.disaggregated_case(5, 1), "isl_bounding")
    with pytest.raises(ValueError, match="'Mine' runs in Python, which does not work with a decider"):
        Simulation(Fleet(pools=case.pools, router=Mine, handover=case.handover), case.table)
