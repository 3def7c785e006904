"""What a prefill and a decode pool do."""

import numpy as np

from headcount.text.pools import Part
from headcount.text.words import pools_text
from simulator.core import layout
from simulator.core.layout import NONE
from simulator.disaggregation import DisaggregatedDeployment
from simulator.fleet.pool_sizes import DECODE, PREFILL
from simulator.simulation import Simulation
from simulator.study.statistics import summary


def disaggregated_text(disaggregated: DisaggregatedDeployment) -> str:
    """Such as `2 × TP1 prefill + 2 × TP4 decode`."""
    return pools_text(disaggregated.counts, [plan.tensor_parallel_size for plan in disaggregated.plans])


def disaggregated_parts(disaggregated: DisaggregatedDeployment) -> tuple[Part, Part]:
    """Servers that compute prompts, then those that compute answers."""
    (prefill, decode), (num_prefill, num_decode) = disaggregated.plans, disaggregated.counts
    return (num_prefill, prefill.gpus), (num_decode, decode.gpus)


def disaggregated_json(disaggregated: DisaggregatedDeployment, simulation: Simulation) -> dict[str, object]:
    """The pools, what lies between them, and how long handovers took."""
    return {
        "pools": pool_rows(disaggregated, simulation),
        "handover_s": handover_s(simulation),
        "kv_transfer": disaggregated.between.kv_transfer,
        "kv_transfer_bytes_per_s": disaggregated.between.bytes_per_s,
        "dispatch_s": disaggregated.between.dispatch_s,
        **_decided(disaggregated, simulation),
        **_lost(disaggregated, simulation),
    }


def _lost(disaggregated: DisaggregatedDeployment, simulation: Simulation) -> dict[str, object]:
    """Of pushed KV: requests for which a decode engine keeps blocks, to which nobody writes any more."""
    return {"lost_requests": int(simulation.arrays.handovers["lost"].sum())} if disaggregated.between.pushes else {}


def _decided(disaggregated: DisaggregatedDeployment, simulation: Simulation) -> dict[str, object]:
    """Of the requests that have come to a decode engine, the share whose prompts it computed itself."""
    if disaggregated.between.decider is None:
        return {}
    came = simulation.arrays.handovers[simulation.arrays.handovers["stage"] == 1]
    here = int((came["source"] == NONE).sum())
    return {"decider": str(disaggregated.between.decider), "local_prefill_share": here / max(len(came), 1)}


def pool_rows(disaggregated: DisaggregatedDeployment, simulation: Simulation) -> list[dict[str, object]]:
    """Each pool over the whole run: shares of time and means over its engines."""
    rows, first = [], 0
    for role, plan, count in zip((PREFILL, DECODE), disaggregated.plans, disaggregated.counts, strict=True):
        of = simulation.totals[first : first + count]
        engine_s, blocks = max(count * simulation.now_s, 1e-9), plan.engine.num_usable_blocks
        rows.append(
            {
                "role": role,
                "engines": count,
                "tp": plan.tensor_parallel_size,
                "gpus": count * plan.gpus,
                "num_gpu_blocks": plan.engine.num_gpu_blocks,
                "busy": float(of["busy_s"].sum()) / engine_s,
                "running_mean": float(of["running_s"].sum()) / engine_s,
                "waiting_mean": float(of["waiting_s"].sum()) / engine_s,
                "kv_usage_mean": float(of["used_blocks_s"].sum()) / (engine_s * blocks),
                "kv_usage_max": float(of["max_used_blocks"].max()) / blocks,
            }
        )
        first += count
    return rows


def handover_s(simulation: Simulation) -> dict[str, float | None]:
    """From the end of the prefill to the first token at the client."""
    handovers = simulation.arrays.handovers[: len(simulation.requests)]
    handed = handovers["source"] != NONE
    taken_s = simulation.requests["first_token_s"][handed] - handovers["prefilled_s"][handed]
    return summary(taken_s[np.isfinite(taken_s) & (simulation.requests["status"][handed] == layout.FINISHED)])
