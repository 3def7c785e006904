"""One run of a fleet over a table of requests."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from files.errors import HeadcountError
from files.names import error_shown, value_shown
from simulator.cancellations import Cancellations, cancellations
from simulator.core import layout
from simulator.core.arrays import build_arrays
from simulator.core.compiling.forms import form_of
from simulator.core.jit import RUN, router_address
from simulator.engines.sglang.engine import EngineConfig as SGLangConfig
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.fleet import Fleet
from simulator.fleet.router import find_router, router_name
from simulator.fleet.view import View
from simulator.step_log import StepRecord, read_log
from workloads.requests import RequestTable

INSTANTS_PER_CALL = 200_000  # at most a second or two between two looks for Ctrl-C


class StalledError(HeadcountError):
    """Nothing runs, and what waits can never be scheduled."""


class Simulation:
    """A fleet serving a request table; `run` may be called again to go further in time.

    `seed` begins the random streams of the router and of SGLang's policy `random`. `arrays` are the core's state;
    `form` names the kernels that run it.
    """

    def __init__(self, fleet: Fleet, table: RequestTable, *, log_steps: bool = False, seed: int = 0) -> None:
        for pool in fleet.pools:
            check_lengths(pool.engine, table)
            check_images(pool.engine, table)
        if table.waits is not None:
            fleet.check_vllm_alone("clients' patience (--patience, --client-timeout)")
        self.fleet = fleet
        self.table = table
        self.steps: list[StepRecord] = []
        router = find_router(fleet.router, fleet.block_size)
        if "cached_tokens" in router.sees:
            fleet.check_vllm_alone(f"router {router_name(fleet.router)!r}, which reads the engines' caches,")
        if fleet.handover.decider is not None and router.choose is None:
            raise HeadcountError(
                f"router {router_name(fleet.router)!r} runs in Python, which does not work with a decider; "
                "choose a shipped router, or leave --decider out"
            )
        self.arrays = build_arrays(fleet, table, router, log_steps=log_steps, seed=seed)
        self._cursor: Any = self.arrays.cursor[0]
        self.form = form_of(self.arrays)
        self._view = View(self.arrays, router.sees)
        self._routers = [router.make(seed % 2**32) for _ in range(2)] if router.choose is None else []
        if router.choose is not None:
            self.arrays.router_memory[layout.SEED] = seed % 2**32
            if fleet.is_disaggregated:
                self.arrays.decode_memory[layout.SEED] = (seed + 1) % 2**32
            self.arrays.routing["router"] = router_address(router.choose, tuple(router.parameters))

    def run(self, until_s: float = math.inf) -> None:
        """Advance to `until_s` seconds of simulated time, or until nothing is left to do.

        Raises StalledError where a request can never be scheduled because its blocks exceed the pool.
        """
        self._advance(float(until_s))

    def run_to_control(self, time_s: float) -> bool:
        """Advance to `time_s`, when its steps have ended but nothing has arrived; False if the load ends before."""
        self._cursor["control_s"] = time_s
        is_reached = self._advance(math.inf) == layout.CONTROL
        self._cursor["control_s"] = math.inf
        return is_reached

    def _advance(self, until_s: float) -> int:
        run = RUN[self.form]
        while True:
            reason: int = run(self.arrays, until_s, INSTANTS_PER_CALL)
            if reason == layout.NEED_ROUTE:
                self._cursor["chosen"] = self._route()
                continue
            self._flush_log()
            assert self._cursor["num_unforeseen"] == 0, "a request ended before its engine was read"
            if reason == layout.STALLED:
                raise StalledError(self._stall_message())
            if reason not in (layout.NEED_LOG_SPACE, layout.PAUSED):
                return reason

    def _route(self) -> int:
        name = router_name(self.fleet.router)
        try:
            chosen = self._routers[self._stage()].choose(self._view) if self._routers else int(self._cursor["chosen"])
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise HeadcountError(
                f"router {name!r}: choose(view) fails with {error_shown(error)}; correct it"
            ) from error
        if isinstance(chosen, int | np.integer) and 0 <= chosen < self.fleet.num_engines:
            if self.arrays.engine_views["routable"][chosen]:
                return int(chosen)
            raise HeadcountError(f"router {name!r} chose engine {chosen}, which takes no requests; see view.candidates")
        last = self.fleet.num_engines - 1
        raise HeadcountError(
            f"router {name!r} chose engine {value_shown(chosen)}; choose(view) must return a number from 0 to {last}"
        )

    def _stage(self) -> int:
        """Of the request to route: 1 if it is to be decoded in another engine than it was prefilled in."""
        return int(self.arrays.handovers["stage"][self._cursor["unrouted"]]) if self.fleet.is_disaggregated else 0

    @property
    def now_s(self) -> float:
        return float(self._cursor["now_s"])

    @property
    def requests(self) -> NDArray[np.void]:
        """Every attempt's state and times, see `simulator.core.layout.REQUEST`: the table's rows, then retries."""
        return self.arrays.requests[: self.table.num_requests * self.table.num_attempts]

    @property
    def totals(self) -> NDArray[np.void]:
        """Sums and time integrals per engine; see `simulator.core.layout.TOTALS`."""
        return self.arrays.totals

    @property
    def samples(self) -> NDArray[np.void]:
        """The fleet's state at evenly spaced times; see `simulator.core.layout.SAMPLE`."""
        return self.arrays.samples[: int(self._cursor["num_samples"])]

    @property
    def itl_histogram(self) -> NDArray[np.float64]:
        return self.arrays.itl_histogram

    @property
    def itl_sum_s(self) -> float:
        """Sum of all inter-token gaps."""
        return float(self.totals["itl_sum_s"].sum())

    @property
    def num_finished(self) -> int:
        """Requests that have ended, cancelled ones too."""
        return int(self._cursor["num_finished"])

    @property
    def all_have_arrived(self) -> bool:
        """Whether every request with an arrival time of its own has come."""
        return int(self._cursor["next_open"]) == len(self.arrays.open_order)

    @property
    def num_exhausted_sessions(self) -> int:
        """Sessions that have had their last turn."""
        return int(self._cursor["num_exhausted"])

    @property
    def waits_for_ever(self) -> bool:
        """Whether a request waits for KV that no prefill engine will write, see `PushNetwork`."""
        lost = self.arrays.handovers["lost"][: len(self.requests)] == 1
        return bool(len(lost) and (self.requests["status"][lost] < layout.FINISHED).any())

    def cancellations(self, computed_tokens: float, *, since_s: float = 0.0) -> Cancellations | None:
        """What was cancelled or rejected from then on, beside so many tokens computed; None where nothing can be."""
        if self.table.waits is None and not len(self.arrays.gateways):
            return None
        return cancellations(self.requests, self.table.num_requests, computed_tokens, since_s=since_s)

    @property
    def held_s(self) -> float | None:
        """Request-seconds in the gateway's queue; None without one."""
        if self.fleet.flow_control is None:
            return None
        gateway = self.arrays.gateways[0]
        return float(gateway["held_s"] + gateway["num_held"] * (self.now_s - gateway["accounted_s"]))

    def _flush_log(self) -> None:
        size = int(self._cursor["log_size"])
        if size:
            self.steps.extend(read_log(self.arrays.log[:size], len(self.requests)))
            self._cursor["log_size"] = 0

    def _stall_message(self) -> str:
        request = int(self._cursor["stalled_request"])
        pool = int(self.arrays.replicas["pool"][self.requests[request]["replica"]])
        engine = self.fleet.pools[pool].engine
        tokens = int(self.requests[request]["prompt"] + self.requests[request]["output"])
        if isinstance(engine, SGLangConfig):
            return _fails_for_want_of_memory(engine, request, tokens)
        needed = sum(math.ceil(tokens / block_size) for block_size in engine.group_block_sizes)
        return (
            f"request {request} has {tokens} tokens and needs {needed} KV blocks, but the pool has "
            f"{engine.num_gpu_blocks - 1}: vLLM would wait forever; lower --max-model-len or give it more blocks"
        )


def _fails_for_want_of_memory(engine: SGLangConfig, request: int, tokens: int) -> str:
    remedy = "give it more memory, or send less load"
    if engine.schedule_policy == "shortest-prefill-first":
        remedy = (
            "with shortest-prefill-first, shorter prompts take the memory that a cut prompt still needs: choose "
            "another --schedule-policy, give --chunked-prefill-size -1 so that no prompt is cut, or send less load"
        )
    pool, then = f"{engine.max_total_num_tokens:,} of the KV cache", "ends"
    if engine.sliding_window_size:
        pool += f" ({engine.swa_max_total_num_tokens:,} of layers with sliding windows)"
        then = "ends or waits forever"
    return (
        f"request {request} has {tokens:,} tokens, and the {pool} do not suffice for it beside the prompts that are "
        f"being computed: SGLang's server {then} there; {remedy}"
    )


def check_images(engine: EngineConfig | SGLangConfig, table: RequestTable) -> None:
    """Raise HeadcountError where the engine refuses the images of prompts, or they are not simulated with it."""
    if table.images is None:
        return
    if isinstance(engine, SGLangConfig):
        raise HeadcountError("images are simulated with vLLM alone; leave --engine sglang out, or the images")
    engine.check_images(table.images)


def check_lengths(engine: EngineConfig | SGLangConfig, table: RequestTable) -> None:
    """Raise HeadcountError if the engine refuses a prompt: it leaves no room for a token within the longest context."""
    too_long = table.prompt_tokens > engine.max_prompt_tokens
    if not too_long.any():
        return
    row = int(np.argmax(too_long))
    limit, remedy = f"max_model_len {engine.max_model_len:,}", "--max-model-len"
    if isinstance(engine, SGLangConfig):
        limit, remedy = f"the {engine.max_prompt_tokens:,} tokens that SGLang takes", "--context-length or the memory"
    raise HeadcountError(
        f"{int(too_long.sum()):,} of {table.num_requests:,} prompts do not fit {limit}: request {row:,} has "
        f"{table.prompt_tokens[row]:,} tokens, the longest {table.prompt_tokens.max():,}; "
        f"raise {remedy} or remove them from the workload"
    )
