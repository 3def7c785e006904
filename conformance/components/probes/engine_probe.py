"""Runs real inference of a tiny model on the CPU, with every scheduling decision told; needs an interpreter with vLLM.

usage: python engine_probe.py CASE.json > STEPS.jsonl

The engine is vLLM's own `LLMEngine` in this process, the model has random weights. The first line out tells vLLM's
version with the settings and the layer groups that the engine formed; then comes one line per `schedule()` call, in
the words of `engine_loop`, and a line with `"case"` at the end. The clock is the case's: a step takes `step_s`,
arrivals enter between steps, so no wall clock decides anything.
"""

import dataclasses
import json
import os
import sys
import tempfile

os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine core in this process, where its scheduler can be reached
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import vllm
from engine_loop import Load, Recorder, name_of, row_of, token_of
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.v1.engine.llm_engine import LLMEngine

ENGINE_ARGUMENTS = {field.name for field in dataclasses.fields(EngineArgs)}
VLLM_NAMES = {"scheduling_policy": "policy"}  # as SchedulerConfig has it


class Engine:
    """vLLM's engine with a real model, which keeps what its scheduler decides."""

    def __init__(self, model_folder, case):
        self.requests = case["requests"]
        self.tokens = {}  # of each request: its prompt, then what the model answered
        arguments = EngineArgs(
            model=model_folder,
            load_format="dummy",
            skip_tokenizer_init=True,
            enforce_eager=True,
            dtype="bfloat16",
            seed=0,
            disable_log_stats=True,
            num_gpu_blocks_override=case["engine"]["num_gpu_blocks"],
            **{name: value for name, value in case["engine"].items() if name in ENGINE_ARGUMENTS},
        )
        self.engine = LLMEngine.from_engine_args(arguments)
        self.scheduler = self.engine.engine_core.engine_core.scheduler
        self.recorder = Recorder(self.scheduler)
        self._listen()

    def _listen(self):
        """Keep the tokens that come of the live scheduler's decisions."""
        update_from_output = self.scheduler.update_from_output

        def listening_update(*arguments, **options):
            outputs = update_from_output(*arguments, **options)
            for item in (item for group in outputs.values() for item in group.outputs):
                self.tokens[row_of(item.request_id)] += item.new_token_ids
            return outputs

        self.scheduler.update_from_output = listening_update

    def settings(self, names):
        """What the engine really runs with, of the case's names that this release knows."""
        config = self.engine.vllm_config
        places = (config.model_config, config.cache_config, config.scheduler_config, config.parallel_config)
        known = {name: [place for place in places if hasattr(place, VLLM_NAMES.get(name, name))] for name in names}
        return {name: getattr(found[0], VLLM_NAMES.get(name, name)) for name, found in known.items() if found}

    def groups(self):
        """The layers that share block tables, as vLLM grouped them."""
        return [
            {
                "spec": type(group.kv_cache_spec).__name__,
                "layers": len(group.layer_names),
                "block_size": group.kv_cache_spec.block_size,
                "page_size_bytes": group.kv_cache_spec.page_size_bytes,
                "sliding_window": getattr(group.kv_cache_spec, "sliding_window", None),
            }
            for group in self.scheduler.kv_cache_config.kv_cache_groups
        ]

    def add(self, row, arrival_s):
        request = self.requests[row]
        prompt = self._prompt(request)
        self.tokens[row] = list(prompt)
        self.engine.add_request(
            name_of(row),
            {"prompt_token_ids": prompt},
            SamplingParams(max_tokens=request["output_tokens"], ignore_eos=True, temperature=0.0, detokenize=False),
            arrival_time=arrival_s,
            priority=request["priority"],
        )

    def _prompt(self, request):
        """The turn before with the model's own answer, as far as there is one; then tokens by content."""
        said = self.tokens[request["follows"]] if request["follows"] >= 0 else []
        length = request["prompt_tokens"]
        return said[:length] + [token_of(request, position) for position in range(len(said), length)]


def run(engine, load, step_s):
    """One step after the other, arrivals between them; yields the records in order."""
    records = engine.recorder.records
    while True:
        for arrival_s, row in load.due():
            engine.add(row, arrival_s)
        if not engine.scheduler.get_num_unfinished_requests():
            if not load.wait():
                return
            continue
        engine.engine.step()
        yield records[-1]
        if records[-1]["scheduled"]:
            load.now_s += step_s
        elif not records[-1]["preempted"]:
            return  # nothing fits: vLLM would wait for ever
        load.follow_up(records[-1]["finished"])


def main():
    with open(sys.argv[1]) as file:
        case = json.load(file)
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(case["model"], file)
        engine = Engine(folder, case)
    first = {
        "vllm_version": vllm.__version__,
        "settings": engine.settings(case["engine"]),
        "kv_cache_groups": engine.groups(),
    }
    print(json.dumps(first), flush=True)
    for record in run(engine, Load(case["requests"]), case["step_s"]):
        print(json.dumps(record))
    print(json.dumps({"case": 0}), flush=True)


if __name__ == "__main__":
    main()
