"""How far steps that draft are from published TPOTs: EAGLE heads of Llama-3.1-8B on one H100, one client.

Source: vllm issue 20780 of July 2025, MT-Bench. The release is not recorded: 0.9.2 was current. Prompts of 80 and
answers of 212 tokens, the means of such runs (vllm pull requests 16035, 25917).
"""

from pathlib import Path
from typing import Any

from kvcache.models.catalog import find_gpu, load_model
from simulator.deployment import resolve
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.speculation import SpeculativeConfig
from simulator.results import whole_run
from simulator.simulation import Simulation
from workloads.synthetic import closed_load

PROMPT, ANSWER, REQUESTS = 80, 212, 40
PLAIN_MS = 7.07
PUBLISHED_MS = {  # by method, for 2 to 7 drafts
    "eagle": (4.37, 4.29, 4.48, 4.71, 4.94, 5.20),
    "eagle3": (4.32, 4.09, 4.05, 4.13, 4.20, 4.29),
}


def drafts(_: Path) -> dict[str, Any]:
    """Each published TPOT beside the simulated one, and which number of drafts is best."""
    rows = [_row("none", 0, PLAIN_MS)]
    rows += [_row(name, count, ms) for name, found in PUBLISHED_MS.items() for count, ms in enumerate(found, 2)]
    drafted = rows[1:]
    best = {
        name: {
            which: min((row for row in drafted if row["method"] == name), key=lambda row: row[f"{which}_ms"])["drafts"]
            for which in ("measured", "simulated")
        }
        for name in PUBLISHED_MS
    }
    return {"rows": rows, "best": best, "worst": max(abs(row["error"]) for row in drafted)}


def _row(name: str, count: int, measured_ms: float) -> dict[str, Any]:
    ms = tpot_ms(name, count)
    return {
        "method": name, "drafts": count, "measured_ms": measured_ms, "simulated_ms": ms,
        "error": 100 * (ms / measured_ms - 1),
    }  # fmt: skip


def tpot_ms(name: str, count: int) -> float:
    """Simulated mean TPOT with so many drafts of that method, none with 0."""
    config = {"method": name, "num_speculative_tokens": count, "acceptance": f"{name}-llama-3.1-8b-mtbench"}
    speculation = SpeculativeConfig().read(config) if count else None
    args = EngineArgs(vllm_version="0.9.2", speculation=speculation)
    deployment = resolve(load_model("llama-3.1-8b"), find_gpu("h100-sxm"), args)
    table = closed_load(concurrency=1, num_requests=REQUESTS, input_len=PROMPT, output_len=ANSWER, length_spread=1.0)
    simulation = Simulation(deployment.fleet(1, "round-robin"), table)
    simulation.run()
    return 1e3 * float(whole_run(simulation).times.tpot_s.mean())
