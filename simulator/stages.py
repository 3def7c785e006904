"""How each stage of a load of rising or falling rates was served."""

from dataclasses import asdict, dataclass

import numpy as np

from simulator.core import layout
from simulator.results import request_times
from simulator.simulation import Simulation
from simulator.study.replication import waits_of
from simulator.study.slo import SLO
from simulator.study.statistics import summary
from workloads.stages import Stages


@dataclass(frozen=True, kw_only=True)
class StageFigures:
    """Latencies are of the requests that arrive in a stage; what is served ends in it, whenever it arrived."""

    rate_per_s: float  # that was asked for
    num_requests: int
    served_per_s: float
    output_tokens_per_s: float  # of the answers that end
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    tpot_p50_s: float | None
    tpot_p95_s: float | None
    attainment: float | None  # None where no SLO was asked for

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def stage_figures(simulation: Simulation, stages: Stages, slo: SLO | None) -> tuple[StageFigures, ...]:
    """One for each stage, in order."""
    requests = simulation.requests[simulation.requests["status"] != layout.NOT_ARRIVED]
    times = request_times(requests)
    of, finish_s = stages.of(times.arrival_s), times.arrival_s + times.e2e_s
    found = []
    for number, (start_s, end_s) in enumerate(stages.ends_s):
        mine, served = of == number, (finish_s >= start_s) & (finish_s < end_s)
        ttft, tpot = summary(times.ttft_s[mine]), summary(times.tpot_s[mine])
        attainment = None
        if slo is not None:
            late, slow, decided = waits_of(requests[mine], simulation.now_s).missed(slo)
            attainment = float((~(late | slow)[decided]).mean()) if decided.any() else None
        found.append(
            StageFigures(
                rate_per_s=stages.rates_per_s[number],
                num_requests=int(mine.sum()),
                served_per_s=float(served.sum()) / stages.length_s,
                output_tokens_per_s=float(np.sum(times.output_tokens[served])) / stages.length_s,
                ttft_p50_s=ttft["p50"], ttft_p95_s=ttft["p95"], tpot_p50_s=tpot["p50"], tpot_p95_s=tpot["p95"],
                attainment=attainment,
            )
        )  # fmt: skip
    return tuple(found)
