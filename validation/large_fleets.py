"""How far off the law of large fleets is: whole simulations beside it.

    python -m validation.large_fleets [--case NAME] [--gpus 16,64,256]

Each case is simulated whole at every number of GPUs; results go to docs/measurements/results/large-fleets.json, those
of other cases and numbers stay. `python -m validation.pages` then writes the page's table.
"""

import argparse
import json
from collections.abc import Callable
from typing import Any

from files.limits import limits_raised
from kvcache.models.catalog import find_gpu, load_model
from simulator.deployment import Deployment, resolve
from simulator.engines.vllm.arguments import EngineArgs
from simulator.study.capacity import find_capacity
from simulator.study.fleets.layouts import FleetQuestion, Layout, Offer
from simulator.study.fleets.screening import estimated_users
from simulator.study.fleets.sizing import kept, most_together
from simulator.study.loads import Load
from simulator.study.points import Evaluator
from validation.markdown import DOCS, table
from workloads.load import load_preset

RESULTS = DOCS / "measurements" / "results" / "large-fleets.json"
CASES = {
    "8B": ("llama-3.1-8b", 1, "least-outstanding"),
    "8B, affinity": ("llama-3.1-8b", 1, "session-affinity"),
    "70B": ("llama-3.1-70b", 4, "least-outstanding"),
    "70B, affinity": ("llama-3.1-70b", 4, "session-affinity"),
}
GPU = "h100-sxm"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--gpus", default="4,8,16,32,64,256")
    parser.add_argument("--replications", type=int, default=48)
    asked = parser.parse_args()
    with limits_raised(requests=1e8):
        for name in asked.case or CASES:
            for gpus in map(int, asked.gpus.split(",")):
                found = whole(name, gpus, asked.replications)
                print(name, found, flush=True)
                _keep(name, found)


def whole(name: str, gpus: int, replications: int) -> dict[str, float]:
    """Users of one server in a fleet that is simulated whole, and the estimate."""
    plan, question, load = _case(name)
    servers = gpus // plan.gpus
    layout = _layout(plan, question)
    estimate, _ = estimated_users(layout, servers, question, load)
    evaluator = Evaluator(fleet=plan.fleet(servers, layout.router), load=load, slo=question.slo)
    capacity = find_capacity(evaluator, estimate * 1.1, precision=0.007, max_replications=replications)
    return {
        "servers": servers,
        "users_each": capacity.mean / servers,
        "precision": capacity.half_width,
        "estimate_each": estimate / servers,
    }


def _case(name: str) -> tuple[Deployment, FleetQuestion, Load]:
    model, tp, router = CASES[name]
    plan = resolve(model, GPU, tensor_parallel_size=tp)
    question = FleetQuestion(
        architecture=load_model(model), offers=(_offer(),), variants=(EngineArgs(tensor_parallel_size=tp),),
        workload=load_preset("chat"), think_time_s=84.0, users=1.0, router=router,
    )  # fmt: skip
    return plan, question, question.load(_layout(plan, question))


def _offer() -> Offer:
    gpu = find_gpu(GPU)
    return Offer(gpu=gpu, usd_per_hour=gpu.usd_per_hour or 1.0)


def _layout(plan: Deployment, question: FleetQuestion) -> Layout:
    assert question.router is not None, "each case names its router"
    return Layout(offer=_offer(), plan=plan, args=plan.given, router=question.router)


def _keep(name: str, found: dict[str, float]) -> None:
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    rows = [row for row in results.get(name, []) if row["servers"] != found["servers"]]
    results[name] = sorted([*rows, found], key=lambda row: row["servers"])
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def law_error(rows: list[dict[str, Any]], servers: int) -> tuple[int, float]:
    """Servers that a plan simulates together, and the law's users over those of the whole simulation, less 1."""
    by_servers = {row["servers"]: row for row in rows}

    def each(number: int) -> float:
        return float(by_servers[number]["estimate_each"])

    row = by_servers[servers]
    most = max(number for number in by_servers if number <= most_together(each, row["users_each"]))
    most = min(most, servers)
    return most, by_servers[most]["users_each"] * kept(each, most, servers) / row["users_each"] - 1


def large_fleet_tables() -> dict[str, Callable[[], str]]:
    """Of docs/measurements/large-fleets.md."""
    return {"law": _law}


def _law() -> str:
    lines = []
    for name, rows in json.loads(RESULTS.read_text(encoding="utf-8")).items():
        model, tp, router = CASES[name]
        for row in rows:
            most, error = law_error(rows, row["servers"])
            law = ("", "") if most == row["servers"] else (str(most), f"{error:+.1%}")
            gpus, known = row["servers"] * tp, f"{row['users_each']:.0f} ± {row['precision']:.0%}"
            lines.append((f"{model}, TP {tp}", router, str(gpus), str(row["servers"]), known, *law))
    heads = ("model", "router", "GPUs", "servers", "users each, simulated whole", "law from", "law's error")
    return table(heads, lines)


if __name__ == "__main__":
    main()
