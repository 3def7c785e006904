"""What our two schedulers decide in a case, step by step: the compiled core and the readable one."""

from collections.abc import Sequence
from typing import Any

from calibrate.conformance.cases.scheduler_cases import MAX_STEPS, STEP_S, SchedulerCase, simulate
from calibrate.conformance.probes.engine_loop import Load, Pipeline, run_by_hand
from calibrate.conformance.probing import Record
from simulator.engines.engine import Engine
from simulator.engines.vllm.kv_cache_manager import BlockTables
from simulator.engines.vllm.scheduler import Plan, Request, Scheduler


def core_steps(case: SchedulerCase) -> list[Record]:
    """The compiled core's decisions, one record per `schedule()` call."""
    simulation = simulate(case)
    hits = simulation.requests["cached_tokens"].tolist()
    records, seen = [], set[int]()
    for step in simulation.steps[:MAX_STEPS]:
        new = {row: hits[row] for row in step.scheduled if row not in seen}
        seen.update(new)
        records.append({**step.to_json(), "scheduled": step.scheduled, "new": new})
    return records


def readable_steps(case: SchedulerCase) -> list[Record]:
    """The readable scheduler's, with the prefix hits of resumed requests too."""
    load = Load(case.to_json()["requests"])
    engine = _Readable(case, load.requests)
    pipeline = Pipeline(STEP_S, case.engine.pipeline_parallel_size)
    found: list[Record] = run_by_hand(load, engine, pipeline, depth=case.engine.plans_in_flight, max_steps=MAX_STEPS)
    return found[:MAX_STEPS]


class _Readable:
    """The readable scheduler, as the loop drives it."""

    def __init__(self, case: SchedulerCase, requests: Sequence[dict[str, Any]]) -> None:
        self.scheduler: Engine[Request, Plan] = Scheduler(case.engine)
        self.requests = requests
        self.is_new: dict[int, bool] = {}  # of requests that hold no blocks; False once preempted

    def add(self, row: int, arrival_s: float) -> None:
        request = self.requests[row]
        prompt = request["prompt_tokens"]
        self.is_new[row] = True
        self.scheduler.add_request(
            Request(
                id=row,
                num_prompt_tokens=prompt,
                max_tokens=request["output_tokens"],
                priority=request["priority"],
                arrival_s=arrival_s,
                table=BlockTables(spans=tuple(request["spans"]), num_prompt_tokens=prompt),
            )
        )

    def has_unfinished(self) -> bool:
        return self.scheduler.has_unfinished_requests

    def schedule(self) -> tuple[Plan, Record]:
        plan = self.scheduler.schedule()
        entered: dict[bool, dict[int, int]] = {True: {}, False: {}}
        for request, tokens in plan.num_scheduled_tokens.items():
            if request.id in self.is_new:
                entered[self.is_new.pop(request.id)][request.id] = request.num_computed_tokens - tokens
        preempted = [request.id for request in plan.preempted]
        self.is_new |= dict.fromkeys(preempted, False)
        return plan, {
            "step": plan.step,
            "scheduled": {request.id: tokens for request, tokens in plan.num_scheduled_tokens.items()},
            "new": entered[True],
            "resumed": entered[False],
            "preempted": preempted,
            "free_blocks": plan.free_blocks,
            "running": plan.num_running,
            "waiting": plan.num_waiting,
            "finished": [],
        }

    def complete(self, plan: Plan) -> list[int]:
        return [request.id for request in self.scheduler.complete(plan)]
