"""Speaks as `record_probe` does, without vLLM: steps take what `STEP_S` says, give or take some of it.

What goes wrong is asked for by files in the folder named in FAKE_ENGINE: `die` (after so many steps, once), `refuse`
(loads whose name begins so), `version`; `pid` is where it leaves its own process's number.
"""

import json
import os
import random
import sys
import time
from pathlib import Path

WISHES = Path(os.environ["FAKE_ENGINE"])
OUT = sys.stdout
LIMITS = {"max_num_seqs": 16, "max_num_batched_tokens": 256, "max_model_len": 1024, "block_size": 16}
STEP_S = {"constant": 4e-3, "tokens": 2e-5, "sequences": 5e-5, "context": 1e-7, "work": 1e-8}


def wish(name):
    path = WISHES / name
    return path.read_text() if path.exists() else None


def write(record):
    print(json.dumps(record), file=OUT, flush=True)


def steps_of(load):
    alive, names = [], 0
    for number, phase in enumerate(load["phases"]):
        alive = alive[: phase["keep"]]
        added = [[names + place, tokens, 0] for place, tokens in enumerate(phase["add"])]
        alive, names, left = alive + added, names + len(added), phase["steps"]
        while left > 0 or any(computed < prompt for _, prompt, computed in added):
            left -= all(computed >= prompt for _, prompt, computed in added)
            yield number, step(alive, phase)


def step(alive, phase):
    budget = min(phase["budget"] or 10**9, LIMITS["max_num_batched_tokens"])
    chunk = phase["chunk"] if phase["chunk"] and len(alive) > 1 else budget
    found = {"requests": [], "computed": [], "scheduled": [], "unsampled": []}
    for request in alive[: LIMITS["max_num_seqs"]]:
        name, prompt, computed = request
        tokens = min(max(prompt, computed + 1) - computed, chunk, budget)
        if tokens == 0:
            break
        budget -= tokens
        request[2] += tokens
        found["requests"].append(name)
        found["computed"].append(computed)
        found["scheduled"].append(tokens)
        if request[2] < prompt:
            found["unsampled"].append(name)
    return found


def seconds(found, rng):
    batch = list(zip(found["computed"], found["scheduled"], strict=True))
    context = sum(start + 1 for start, tokens in batch if tokens == 1)
    work = sum(tokens * (2 * start + tokens) / 2 for start, tokens in batch if tokens > 1)
    sums = {"constant": 1, "tokens": sum(found["scheduled"]), "sequences": len(batch), "context": context, "work": work}
    return sum(STEP_S[name] * value for name, value in sums.items()) * rng.uniform(0.97, 1.03)


def main():
    print("a warning of some library, not JSON", file=OUT)
    job = json.loads(Path(sys.argv[1]).read_text())
    assert json.loads((Path(job["model_folder"]) / "config.json").read_text())["model_type"]
    (WISHES / "pid").write_text(str(os.getpid()))
    (WISHES / "loads").open("a").write("start\n")
    if wish("no_start"):
        sys.exit("the engine: no such argument")
    about = {
        "vllm_version": wish("version") or "0.32.0", "device": "cpu", "device_name": "fake", "clock": "thread_cpu",
        "num_gpu_blocks": 1000, "settings": {**LIMITS, "tensor_parallel_size": 1, "quantization": None},
        "windows": [[None, 2]],
    }  # fmt: skip
    write({"started": about})
    for line in sys.stdin:
        load = json.loads(line)
        if (refused := wish("refuse")) and load["name"].startswith(refused):
            write({"failed": load["name"], "reason": "3 requests wait and nothing runs"})
            continue
        (WISHES / "loads").open("a").write(load["name"] + "\n")
        run(load)


def run(load):
    rng = random.Random(load["seed"])
    count = 0
    for phase, found in steps_of(load):
        count += 1
        if load["name"] != "warm-up" and (left := wish("die")) is not None:
            if int(left) <= 0:
                (WISHES / "die").unlink()
                OUT.write('{"step": 1, "pha')
                OUT.flush()
                sys.exit("the engine: killed")
            (WISHES / "die").write_text(str(int(left) - 1))
        cycle_s = seconds(found, rng)
        record = {"phase": phase, "unix_s": time.time(), "schedule_s": 1e-4, "cycle_s": cycle_s, "wall_s": cycle_s}
        write({"step": count, **record, **found})
    write({"finished": load["name"], "steps": count})


if __name__ == "__main__":
    main()
