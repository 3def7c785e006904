"""What one request is like: its tokens, and how long its answer takes where few GPUs serve it."""

from collections.abc import Callable
from dataclasses import dataclass

from files.errors import HeadcountError
from simulator.study.fleets.layouts import FleetQuestion, Layout, every_layout
from simulator.study.fleets.screening import estimated_users
from simulator.study.traffic import traffic_of


@dataclass(frozen=True, kw_only=True)
class Request:
    """Means over the requests of a workload; `layout` is what the response time is of, None where nothing serves it."""

    input_tokens: float
    output_tokens: float
    response_time_s: float | None
    layout: str | None


def mean_request(question: FleetQuestion, told: Callable[[Layout, float, int, int], None] = lambda *_: None) -> Request:
    """Estimated at the capacity of the single server that serves users at the least cost.

    `told` gets each layout with about how many users one server of it serves, as soon as that is known; then how many
    layouts are done, and how many there are.
    Raises HeadcountError where the model runs on no GPU.
    """
    layouts, dropped = every_layout(question)
    if not layouts:
        raise HeadcountError(dropped[0].reason if dropped else "no layout runs")
    traffic = traffic_of(question.load(layouts[0]), 1)
    found: list[tuple[float, float, str]] = []  # cost per user, response time, layout
    for done, layout in enumerate(layouts, 1):
        users, estimate = estimated_users(layout, 1, question, question.load(layout))
        told(layout, users, done, len(layouts))
        if users:
            response_s = estimate.in_flight / estimate.requests_per_s
            tp = layout.plan.tensor_parallel_size
            found.append((layout.usd_per_hour(1) / users, response_s, f"{layout.plan.gpu.name}, TP {tp}"))
    cheapest = min(found, default=None)
    return Request(
        input_tokens=float(traffic.prompt.mean()),
        output_tokens=float(traffic.output.mean()),
        response_time_s=cheapest[1] if cheapest else None,
        layout=cheapest[2] if cheapest else None,
    )
