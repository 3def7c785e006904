"""What our two schedulers decide in a case, step by step: the compiled core and the readable one."""

import math

from conformance.cases.scheduler_case import MAX_STEPS, STEP_S, SchedulerCase
from conformance.cases.scheduler_cases import simulate
from conformance.probes.engine_loop import Load, Pipeline
from conformance.probing import Record
from conformance.reference.engine import Engine
from conformance.reference.vllm.kv_cache_manager import BlockTables
from conformance.reference.vllm.requests import Image, Plan, Request
from conformance.reference.vllm.scheduler import Scheduler


def core_steps(case: SchedulerCase) -> list[Record]:
    """The compiled core's decisions, one record per `schedule()` call."""
    simulation = simulate(case)
    hits = simulation.requests["cached_tokens"].tolist()
    records, seen = [], set[int]()
    for step in simulation.steps[:MAX_STEPS]:
        new = {row: hits[row] for row in step.scheduled if row not in seen}
        seen.update(new)
        encoder = {"embeddings": step.embeddings, "free_slots": step.free_slots} if case.engine.encoder else {}
        records.append({**step.to_json(), "scheduled": step.scheduled, "new": new, **encoder})
    return records


def readable_steps(case: SchedulerCase) -> list[Record]:
    """The readable scheduler's, with the prefix hits of resumed requests too.

    The loop stands for vLLM's engine core.
    """
    load, engine = Load(case.to_json()["requests"]), ReadableEngine(Scheduler(case.engine))
    pipeline = Pipeline(STEP_S, case.engine.pipeline_parallel_size)
    in_flight: list[tuple[float, Plan]] = []  # with when it ends
    records: list[Record] = []
    while len(records) < MAX_STEPS:
        for arrival_s, row in load.due():
            if arrival_s == math.inf:
                engine.abort(row)
            else:
                engine.add(row, load.requests[row], arrival_s)
        while len(in_flight) < case.engine.plans_in_flight and engine.scheduler.has_unfinished_requests:
            plan, record = engine.schedule()
            records.append(record)
            if record["scheduled"]:
                in_flight.append((pipeline.end_s(load.now_s), plan))
            elif in_flight:  # an empty step waits in the queue too, and takes no time
                in_flight.append((in_flight[-1][0], plan))
            elif not record["preempted"]:
                break
        if in_flight:
            end_s, oldest = in_flight.pop(0)
            for row in load.cancelled_before(end_s):
                engine.abort(row)
            load.now_s = end_s
            finished = [request.id for request in engine.scheduler.complete(oldest)]
            while in_flight and not in_flight[0][1].num_scheduled_tokens:
                engine.scheduler.complete(in_flight.pop(0)[1])
            records[-1]["finished"] += finished
            load.follow_up(finished)
        elif not load.wait():
            break  # all is done, or nothing fits: vLLM would wait for ever
    return records[:MAX_STEPS]


class ReadableEngine:
    """A readable scheduler, with what it decides as records."""

    def __init__(self, scheduler: Engine[Request, Plan]) -> None:
        self.scheduler = scheduler
        self.requests: dict[int, Request] = {}
        self.is_new: dict[int, bool] = {}  # of requests that hold no blocks; False once preempted

    def add(self, row: int, request: Record, arrival_s: float) -> None:
        prompt = request["prompt_tokens"]
        self.is_new[row] = True
        self.requests[row] = Request(
            id=row,
            num_prompt_tokens=prompt,
            max_tokens=request["output_tokens"],
            priority=request["priority"],
            arrival_s=arrival_s,
            table=BlockTables(spans=_spans(request), num_prompt_tokens=prompt),
            adapter=request.get("adapter"),
            images=tuple(Image(*image) for image in request.get("images", ())),
        )
        self.scheduler.add_request(self.requests[row])

    def abort(self, row: int) -> None:
        self.scheduler.abort(self.requests[row])

    def schedule(self, **options: bool) -> tuple[Plan, Record]:
        plan = self.scheduler.schedule(**options)
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
            **_encoder(self.scheduler, plan),
        }


def _encoder(scheduler: object, plan: Plan) -> Record:
    """What the encoder does in the step; nothing where prompts have no images."""
    if not isinstance(scheduler, Scheduler) or scheduler.encoder.limits is None:
        return {}
    return {
        "encoded": {request.id: places for request, places in plan.encoded.items()},
        "embeddings": sum(request.images[place].embeddings for request, each in plan.encoded.items() for place in each),
        "free_slots": scheduler.encoder.cache.num_free_slots,
    }


def _spans(request: Record) -> tuple[tuple[int, int], ...]:
    """What a request's tokens are, to whom uses the same adapter alone."""
    adapter = request.get("adapter")
    return tuple((content if adapter is None else (content << 20) + adapter, end) for content, end in request["spans"])
