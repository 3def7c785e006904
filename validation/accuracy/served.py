"""Loads of our own H100, replayed.

A chat load: 450 users in a closed loop, with prefix caching and a cold cache; no constant is fitted to it. It is
simulated as its users would send, and with the requests that were answered, at the times when they were sent. And
prompts that were sent alone, which constants are fitted to.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calibrate.check.replay import replay
from calibrate.measured_run import REQUEST_COLUMNS, MeasuredRun
from kvcache.models.catalog import find_gpu
from simulator.deployment import resolve
from simulator.engines.vllm.arguments import EngineArgs
from simulator.latency.forms import latency_model
from simulator.latency.gpu_constants import constants_for
from simulator.latency.step_time import TOKEN_ID_S, FloatArray
from simulator.results import RequestTimes, request_times
from simulator.simulation import Simulation
from validation.constants.cases import Case
from validation.measured.served import FOLDER, SERVER, lone_prompts, without_text
from workloads.load import load_workload
from workloads.requests import RequestTable
from workloads.traces.trace import Trace

TRACE, ANSWERED = "chat_450_users_trace.jsonl", "chat_450_users.jsonl"
BLOCK = 16  # tokens of a block id
SENT_S, ENDED_S = 110.0, 124.0  # the client sent for so long, and left out what had not ended by then
# Requests of the last minute took at most 30 s. A first request that was due this long before the end and has no line
# was lost on its way, and its session with it: two of 278. One has 10,560 new tokens, which stop every answer for
# 0.2 s or more; of the answers beside it, three had no such gap.
ANSWERED_IN_S = 45.0
NEVER_S = 1e6  # after the end
TTFT_LIMIT_S, TPOT_LIMIT_S = 1.0, 0.05
NAMES = {"ttft_p50": 50, "ttft_p95": 95, "tpot_p50": 50, "tpot_p95": 95}


def chat(data: Path) -> dict[str, Any]:
    """Percentiles and attainment, measured and simulated under the shipped constants; none is fitted to this run."""
    measured = _figures(*_measured(data))
    simulated = {"simulated": _figures(*_simulated(data)), "as_sent": _figures(*_as_sent(data))}
    errors = {
        which: {name: 100 * (found[name] / measured[name] - 1) for name in NAMES} for which, found in simulated.items()
    }
    return {"measured": measured, **simulated, "error_percent": errors}


def lone(data: Path) -> dict[str, Any]:
    """Errors in % of prompts that were sent alone, by format and length; how far their repeats lie apart.

    Token by token, with the time for which the detokenizer held the first one back: beyond 1,024 prompt tokens it would
    make the others look faster than a step.
    """
    rows = []
    for run in lone_prompts(data):
        case, requests = Case(run), run.requests
        simulated_s = np.exp(case.simulator()(constants_for(find_gpu(case.gpu))))
        assert requests is not None
        prompt, output = (int(requests[name].iloc[0]) for name in ("prompt_tokens", "output_tokens"))
        ttft_s, e2e_s = requests["ttft_s"], requests["e2e_s"]
        tpot_s = (e2e_s - ttft_s + prompt * TOKEN_ID_S).median() / (output - 1)
        ttft, tpot = 100 * (simulated_s / (ttft_s.median(), tpot_s) - 1)
        rows.append(
            {
                "kind": "fp8 weights and cache" if case.quantization else "16 bits",
                "prompt": prompt,
                "output": output,
                "ttft": round(float(ttft), 1),
                "ttft_s": [float(ttft_s.min()), float(ttft_s.max())],
                "tpot": round(float(tpot), 1),
            }
        )
    return {"rows": rows}


def _answered(data: Path) -> pd.DataFrame:
    return pd.read_json(data / FOLDER / ANSWERED, lines=True).sort_values("sent_s", ignore_index=True)


def _measured(data: Path) -> tuple[FloatArray, FloatArray]:
    rows = _answered(data)
    ttft_s, e2e_s, output = (rows[name].to_numpy(float) for name in ("ttft", "e2e", "out"))
    tpot_s = np.full(len(rows), np.nan)
    np.divide(e2e_s - ttft_s, output - 1, out=tpot_s, where=output > 1)
    return ttft_s, tpot_s


def _simulated(data: Path) -> tuple[FloatArray, FloatArray]:
    trace = load_workload(data / FOLDER / TRACE, trace_block_size=BLOCK)
    assert isinstance(trace, Trace)
    gpu = find_gpu(SERVER["gpu"])
    deployment = resolve(SERVER["model"], gpu.name, EngineArgs(vllm_version=SERVER["vllm_version"]))
    latency = latency_model(deployment.served, constants=without_text(constants_for(gpu)))
    fleet, sent = replace(deployment, latency=latency).fleet(1, None), _received(trace.table, _answered(data))

    def served(table: RequestTable) -> RequestTimes:
        simulation = Simulation(fleet, table)
        simulation.run(ENDED_S)
        return request_times(simulation.requests)

    is_late, is_next = ~(served(sent).arrival_s < SENT_S), sent.follows >= 0  # late: due when the client sends no more
    arrival_s = np.where(is_late & ~is_next, NEVER_S, sent.arrival_s)
    times = served(replace(sent, arrival_s=arrival_s, think_s=np.where(is_late & is_next, NEVER_S, sent.think_s)))
    answered = times.where(np.isfinite(times.e2e_s) & (times.arrival_s < SENT_S))
    return answered.ttft_s, answered.tpot_s


def _received(table: RequestTable, answered: pd.DataFrame) -> RequestTable:
    """Without the sessions whose first request was lost before the server."""
    has_line = np.isin(np.arange(table.num_requests), answered["row"])
    lost = (table.arrival_s < ENDED_S - ANSWERED_IN_S) & ~has_line
    return replace(table, arrival_s=np.where(lost, NEVER_S, table.arrival_s))


def _as_sent(data: Path) -> tuple[FloatArray, FloatArray]:
    """At the measured times, as `headcount calibrate check --workload` replays a client's requests."""
    columns = {
        "arrival_s": "sent_s",
        "prompt_tokens": "input",
        "output_tokens": "out",
        "ttft_s": "ttft",
        "e2e_s": "e2e",
    }
    rows = _answered(data)
    requests = pd.DataFrame({name: rows.get(columns.get(name), np.nan) for name in REQUEST_COLUMNS}, index=rows.index)
    run = MeasuredRun(source=data / FOLDER / ANSWERED, tool="own client", options=SERVER, requests=requests)
    sent = {"workload": str(data / FOLDER / TRACE), "trace_block_size": BLOCK}
    times = replay(run, sent).simulate(without_text(constants_for(find_gpu(SERVER["gpu"])))).times
    return times.ttft_s, times.tpot_s


def _figures(ttft_s: FloatArray, tpot_s: FloatArray) -> dict[str, float]:
    seconds = {"ttft": ttft_s, "tpot": tpot_s}
    found = {name: float(np.nanpercentile(seconds[name[:4]], at)) for name, at in NAMES.items()}
    meets = (ttft_s <= TTFT_LIMIT_S) & ~(tpot_s > TPOT_LIMIT_S)  # one token has no TPOT, and meets any limit
    return found | {"requests": len(ttft_s), "attainment": float(meets.mean())}
