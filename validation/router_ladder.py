"""A measured ladder of load stages, replayed behind one router and another.

    python -m validation.router_ladder [--router NAME …] [--seeds N]

llm-d's guide "optimized baseline" measured it: Qwen3-32B on 8 × 2 H100, 150 prefixes of 6,000 tokens, each with 5
questions of 1,200, asked in turn again and again, 1,000 output tokens. Each stage sends at a Poisson rate, and drains
before the next. Results go to docs/measurements/results/router-ladder.json; `python -m validation.pages` then writes
the page's tables.
"""

import argparse
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from simulator.deployment import resolve
from simulator.simulation import Simulation
from validation.markdown import DOCS, table
from workloads.requests import OPEN_END, RequestTable

RESULTS = DOCS / "measurements" / "results" / "router-ladder.json"
STAGES = (  # requests/s, seconds; the first warms up. Source: llm-d guides/optimized-baseline, guide.yaml
    (15, 50), (3, 20), (10, 20), (15, 20), (20, 38), (22, 34), (25, 30), (30, 25), (35, 21), (40, 38), (43, 36),
    (46, 33), (49, 30), (52, 29), (55, 27), (57, 26), (60, 25),
)  # fmt: skip
PREFIXES, QUESTIONS, PREFIX, QUESTION, OUTPUT = 150, 5, 6_000, 1_200, 1_000
KV_TOKENS = 298_000  # of a replica, as the same deployment's logs say
STAGE_EVERY_S = 1_000.0  # longer than any stage takes; what nobody does between two changes nothing
MEASURED = {  # rate: output tokens/s, mean TTFT, its p90, of round robin and of a prefix-aware router. Source: as above
    3: ((1_797, 0.415, 0.522), (1_777, 0.133, 0.162)),
    10: ((4_215, 0.630, 1.014), (5_066, 0.125, 0.172)),
    15: ((5_381, 0.881, 1.593), (7_053, 0.122, 0.187)),
    20: ((6_205, 18.1, 35.3), (11_688, 0.174, 0.283)),
    30: ((5_702, 24.6, 46.0), (13_862, 0.117, 0.148)),
    40: ((6_336, 68.7, 126.0), (16_041, 0.153, 0.216)),
    60: ((6_551, 75.6, 139.0), (17_064, 0.154, 0.217)),
}
ROUND_ROBIN, PREFIX_AWARE = "round-robin", "llm-d:no_hit_lru_scorer=2"  # as measured: queue, KV, prefix, no-hit LRU
ROUTERS = (ROUND_ROBIN, PREFIX_AWARE, "llm-d-precise", "llm-d-optimized-baseline", "cache-aware", "dynamo-kv")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--router", action="append")
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    for router in asked.router or ROUTERS:
        rows = [climbed(router, seed) for seed in range(asked.seeds)]
        found = {key: np.mean([[row[key] for row in each] for each in rows], axis=0).tolist() for key in rows[0][0]}
        _keep(router, found)
        for stage in zip(*found.values(), strict=True):
            print(router, *(f"{name} {value:,.3g}" for name, value in zip(found, stage, strict=True)), flush=True)


def ladder(seed: int) -> tuple[RequestTable, Any]:
    """All requests, and the stage of each."""
    rng = np.random.default_rng(seed)
    arrivals, stages = [], []
    for stage, (rate, seconds) in enumerate(STAGES):
        count = rate * seconds
        arrivals.append(stage * STAGE_EVERY_S + np.cumsum(rng.exponential(1 / rate, count)))
        stages.append(np.full(count, stage))
    arrival_s, stage_of = np.concatenate(arrivals), np.concatenate(stages)
    count = len(arrival_s)
    asked = rng.permutation(PREFIXES * QUESTIONS)[np.arange(count) % (PREFIXES * QUESTIONS)]
    answers = PREFIXES * (1 + QUESTIONS) + np.arange(count)
    contents = np.stack([asked // QUESTIONS, PREFIXES + asked, answers], axis=1)
    load = RequestTable(
        arrival_s=arrival_s,
        follows=np.full(count, -1),
        think_s=np.zeros(count),
        prompt_tokens=np.full(count, PREFIX + QUESTION, np.int32),
        output_tokens=np.full(count, OUTPUT, np.int32),
        priority=np.zeros(count, np.int32),
        span_start=3 * np.arange(count),
        span_count=np.full(count, 3, np.int32),
        span_content=contents.ravel(),
        span_end=np.tile(np.array([PREFIX, PREFIX + QUESTION, OPEN_END], np.int32), count),
    )
    return load, stage_of


def climbed(router: str, seed: int) -> list[dict[str, float]]:
    """Each stage after the warm-up: output tokens/s until it has drained, TTFT of its requests."""
    plan = resolve("qwen3-32b", "h100-sxm", tensor_parallel_size=2, num_gpu_blocks_override=KV_TOKENS // 16)
    load, stage_of = ladder(seed)
    simulation = Simulation(plan.fleet(8, router), load, seed=seed)
    simulation.run()
    found = []
    for stage, (rate, _) in enumerate(STAGES[1:], 1):
        requests = simulation.requests[stage_of == stage]
        took_s = requests["finish_s"].max() - stage * STAGE_EVERY_S
        ttft_s = requests["first_token_s"] - requests["arrival_s"]
        assert took_s < STAGE_EVERY_S, "a stage has not drained before the next"
        found.append(
            {
                "rate": rate,
                "tokens_per_s": requests["output"].sum() / took_s,
                "ttft_mean_s": ttft_s.mean(),
                "ttft_p90_s": np.quantile(ttft_s, 0.9),
                "hit_share": requests["cached_tokens"].sum() / requests["prompt"].sum(),
            }
        )
    return found


def _keep(router: str, found: dict[str, list[float]]) -> None:
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    results[router] = {name: [float(f"{value:.4g}") for value in values] for name, values in found.items()}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def ladder_tables() -> dict[str, Callable[[], str]]:
    """Of docs/measurements/routers.md."""
    return {"ladder": _beside_measured, "routers": _of_all}


def _beside_measured() -> str:
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    lines = []
    for rate, measured in MEASURED.items():
        for router, (tokens_per_s, mean_s, p90_s) in zip((ROUND_ROBIN, PREFIX_AWARE), measured, strict=True):
            at = results[router]["rate"].index(rate)
            ours = [results[router][name][at] for name in ("tokens_per_s", "ttft_mean_s", "ttft_p90_s")]
            both = f"{tokens_per_s:,}", f"{ours[0]:,.0f}", f"{mean_s:.3g}", f"{ours[1]:.3g}", f"{p90_s:.3g}"
            lines.append((str(rate), f"`{router}`", *both, f"{ours[2]:.3g}"))
    times = ("mean TTFT measured, s", "simulated", "p90 TTFT measured, s", "simulated")
    return table(("requests/s", "router", "output tokens/s measured", "simulated", *times), lines)


def _of_all() -> str:
    lines = []
    for router, found in json.loads(RESULTS.read_text(encoding="utf-8")).items():
        stages = [found["rate"].index(rate) for rate in (20, 40, 60)]
        speeds = [f"{found['tokens_per_s'][at]:,.0f}" for at in stages]
        lines.append((f"`{router}`", *speeds, f"{found['ttft_p90_s'][-1]:.3g}", f"{found['hit_share'][-1]:.0%}"))
    heads = ("router", "output tokens/s at 20 requests/s", "at 40", "at 60", "p90 TTFT at 60, s", "prefix hits at 60")
    return table(heads, lines)


if __name__ == "__main__":
    main()
