"""Runs loads through a real vLLM engine with every step told; needs an interpreter with vLLM.

usage: python record_probe.py JOB.json < LOADS.jsonl > STEPS.jsonl

The job names a folder with a model's `config.json`, whether it was made for this run (then the model's class is added
to the file where it is missing), and the engine's arguments; the engine is vLLM's own, in this
process, with random weights unless the job says otherwise. The first line out tells what it runs as. Then each line in
is a load, and each line out a step of it, written as it ends; a line with `"finished"` closes a load, one with
`"failed"` says why it could not be run.

A load is a list of phases: keep so many of the requests, set the step's token budget and the longest chunk, add
prompts of random tokens, step until they are computed and then `steps` times more. No prompt is like another.

Routers of random weights are drawn anew, so that all experts are chosen about equally often. As vLLM draws them, all
tokens choose the same experts where the router has a bias, or scores in 16 bits.

A step's time is what the engine core's step took where steps follow each other; where one is scheduled while another
runs it is the gap between two calls of `update_from_output`, and null where nothing ran before or requests came or
went meanwhile. Nor has a phase's first step a time there: adding its requests takes the host longer than the step
before takes the GPU, so a part of it is over when that one's output is read.
"""

import dataclasses
import gc
import json
import os
import platform
import random
import sys
import time

os.environ |= {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    **os.environ,
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine core in this process, where it can be reached
}

import msgspec
import torch
import vllm
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms import current_platform
from vllm.sampling_params import SamplingParams
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.llm_engine import LLMEngine

VLLM_NAMES = {"scheduling_policy": "policy", "kv_cache_dtype": "cache_dtype"}  # as vLLM's configs have them
SETTINGS = (
    "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "enable_expert_parallel", "dtype",
    "quantization", "kv_cache_dtype", "max_model_len", "max_num_seqs", "max_num_batched_tokens",
    "gpu_memory_utilization", "block_size", "enforce_eager", "enable_prefix_caching", "enable_chunked_prefill",
    "async_scheduling", "scheduling_policy", "long_prefill_token_threshold", "num_gpu_blocks_override",
)  # fmt: skip
ROUTERS = {"gate", "router"}  # as vLLM's models name them, or what holds their weights
DUMMY_WEIGHT = 1e-3 / 3**0.5  # root mean square of vLLM's random weights, those of norms too
LOGITS = 0.05  # so small that no softmax saturates, so large that 16 bits tell them apart
MAX_IDLE_CALLS = 100  # of the engine's step without a token, while requests wait


class CannotRunError(Exception):
    """The load's requests do not fit the engine."""


class Recorder:
    """vLLM's engine core, with what its scheduler decides and how long it takes."""

    def __init__(self, job):
        self.engine = start_engine(job)
        self.chooses_evenly = is_random(job) and sum(self.engine.collective_rpc(spread_routers)) > 0
        self.client = self.engine.engine_core
        self.core = self.client.engine_core
        self.scheduler = self.core.scheduler
        self.is_queued = getattr(self.core, "batch_queue", None) is not None
        self.temperature = job["temperature"]
        self.budget = self.scheduler.max_num_scheduled_tokens
        self.threshold = self.scheduler.scheduler_config.long_prefill_token_threshold
        self.is_cpu = current_platform.is_cpu()
        self.clock_name = "thread_cpu" if self.is_cpu and os.environ["OMP_NUM_THREADS"] == "1" else "wall"
        self.clock = time.thread_time if self.clock_name == "thread_cpu" else time.perf_counter
        self.in_flight = []  # steps scheduled with tokens, not yet updated
        self.ended = []  # steps updated, not yet written
        self.last_update_s = None  # by the clock; None where what lies between is no step
        self.stale = 0  # steps in flight that an earlier phase scheduled
        self.prompt_tokens = {}  # of the live requests, oldest first
        self.num_requests = 0
        self._listen()

    def _listen(self):
        schedule, update_from_output = self.scheduler.schedule, self.scheduler.update_from_output

        def listening_schedule(*arguments, **options):
            unix_s, begin_s = time.time(), self.clock()
            output = schedule(*arguments, **options)
            if output.total_num_scheduled_tokens:
                step = {"unix_s": unix_s, "schedule_s": self.clock() - begin_s, "output": output}
                step["follows"] = bool(self.in_flight)
                step["unsampled"] = self._unsampled(output)
                self.in_flight.append(step)
            return output

        def listening_update(output, *arguments, **options):
            outputs = update_from_output(output, *arguments, **options)
            now_s, is_stale = self.clock(), self.stale > 0
            if self.in_flight and self.in_flight[0]["output"] is output:
                step = self.in_flight.pop(0)
                is_timed = step.pop("follows") and self.last_update_s is not None
                step["cycle_s"] = now_s - self.last_update_s if is_timed else None
                self.ended.append(step)
                self.stale -= is_stale
            self.last_update_s = None if is_stale else now_s
            return outputs

        self.scheduler.schedule, self.scheduler.update_from_output = listening_schedule, listening_update

    def _unsampled(self, output):
        """Requests whose chunk leaves some of their tokens uncomputed; a decode never does."""
        known = self.scheduler.requests
        return [
            name
            for name, tokens in output.num_scheduled_tokens.items()
            if tokens > 1 and known[name].num_computed_tokens < known[name].num_tokens
        ]

    def about(self):
        """What runs here, with what settings."""
        config = self.engine.vllm_config
        places = (config.model_config, config.cache_config, config.scheduler_config, config.parallel_config)
        settings = {}
        for name in SETTINGS:
            found = [place for place in places if hasattr(place, VLLM_NAMES.get(name, name))]
            if found:
                settings[name] = plain(getattr(found[0], VLLM_NAMES.get(name, name)))
        return {
            "vllm_version": vllm.__version__,
            "torch_version": torch.__version__,
            "python_version": platform.python_version(),
            "device": "cpu" if self.is_cpu else current_platform.device_type,
            "device_name": processor_name() if self.is_cpu else current_platform.get_device_name(),
            "num_cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "omp_num_threads": os.environ["OMP_NUM_THREADS"],
            "clock": self.clock_name,
            "overlapped": self.is_queued,
            "num_gpu_blocks": config.cache_config.num_gpu_blocks,
            "vocab_size": config.model_config.get_vocab_size(),
            "settings": settings,
            "windows": self._windows(),
            **({"experts": "evenly"} if self.chooses_evenly else {}),
        }

    def _windows(self):
        """The sliding window of each layer group with its number of layers; None without one."""
        groups = self.scheduler.kv_cache_config.kv_cache_groups
        return [[getattr(group.kv_cache_spec, "sliding_window", None), len(group.layer_names)] for group in groups]

    def run(self, load):
        """A load's steps as they end."""
        rng = random.Random(load["seed"])
        try:
            for number, phase in enumerate(load["phases"]):
                for step in self._run_phase(phase, rng):
                    yield {"phase": number, **step}
        finally:
            self._end()

    def _run_phase(self, phase, rng):
        self._abort_beyond(phase["keep"])
        self.scheduler.max_num_scheduled_tokens = min(phase["budget"] or self.budget, self.budget)
        self.scheduler.scheduler_config.long_prefill_token_threshold = phase["chunk"] or self.threshold
        added = [self._add(length, rng) for length in phase["add"]]
        self.last_update_s, self.stale = None, len(self.in_flight)
        idle_calls = 0
        left = phase["steps"]
        while added or left > 0:
            scheduled = False
            for step in self._step():
                scheduled = True
                yield step
            idle_calls = 0 if scheduled or self.in_flight else idle_calls + 1
            if idle_calls > MAX_IDLE_CALLS or not self.prompt_tokens:
                raise CannotRunError(f"{len(self.scheduler.waiting)} requests wait and nothing runs")
            if not added:
                left -= 1
            added = [name for name in added if not self._is_computed(name)]

    def _is_computed(self, name):
        request = self.scheduler.requests.get(name)
        return request is None or request.num_computed_tokens >= self.prompt_tokens[name]

    def _step(self):
        """One call of the engine core's step; the steps that ended in it."""
        begin_s, begin_wall_s = self.clock(), time.perf_counter()
        outputs = self.client.get_output()
        cycle_s, wall_s = self.clock() - begin_s, time.perf_counter() - begin_wall_s
        for item in outputs.outputs:
            if item.finish_reason is not None:
                self.prompt_tokens.pop(item.request_id, None)
        ended, self.ended = self.ended, []
        for step in ended:
            if not self.is_queued:
                step["cycle_s"], step["wall_s"] = cycle_s, wall_s
            yield composed(step)

    def _add(self, length, rng):
        name = str(self.num_requests)
        self.num_requests += 1
        vocabulary = self.engine.vllm_config.model_config.get_vocab_size()
        fields = {
            "request_id": name,
            "prompt_token_ids": rng.choices(range(min(3, vocabulary - 1), vocabulary), k=length),
            "sampling_params": SamplingParams(
                max_tokens=self.engine.vllm_config.model_config.max_model_len - length,
                temperature=self.temperature,
                ignore_eos=True,
                detokenize=False,
            ),
            "arrival_time": time.time(),
        }
        required = [field.name for field in msgspec.structs.fields(EngineCoreRequest) if field.required]
        self.client.add_request(EngineCoreRequest(**{**dict.fromkeys(required), **fields}))
        self.prompt_tokens[name] = length
        return name

    def _abort_beyond(self, keep):
        if keep is not None and keep < len(self.prompt_tokens):
            gone = list(self.prompt_tokens)[keep:]
            self.client.abort_requests(gone)
            for name in gone:
                del self.prompt_tokens[name]

    def _end(self):
        """Nothing is left of a load."""
        self._abort_beyond(0)
        self.scheduler.max_num_scheduled_tokens = self.budget
        self.scheduler.scheduler_config.long_prefill_token_threshold = self.threshold
        for _ in range(MAX_IDLE_CALLS):
            if not self.in_flight and not self.scheduler.has_requests():
                break
            self.client.get_output()
        self.in_flight, self.ended, self.last_update_s, self.stale = [], [], None, 0


def start_engine(job):
    """vLLM's engine; the job's arguments win over what is set here."""
    arguments = {
        "load_format": "dummy", "skip_tokenizer_init": True, "disable_log_stats": True, "seed": 0,
    }  # fmt: skip
    if current_platform.is_cpu():
        arguments["enforce_eager"] = True  # graphs are CUDA's
    arguments |= job["engine"]
    known = {field.name for field in dataclasses.fields(EngineArgs)}
    unknown = sorted(set(arguments) - known)
    if unknown:
        raise SystemExit(f"vLLM {vllm.__version__} has no engine argument {', '.join(unknown)}")
    if job.get("is_own_folder", True):
        name_architecture(job["model_folder"])
    engine = LLMEngine.from_engine_args(EngineArgs(model=job["model_folder"], **arguments))
    gc.collect()
    gc.freeze()  # as vLLM's own engine process does
    return engine


def is_random(job):
    """Whether the weights are."""
    return job["engine"].get("load_format", "dummy") == "dummy"


def spread_routers(worker):
    """Redraw this rank's routers, alike on every rank, for logits of about LOGITS; zero all biases.

    Returns the number of routers.
    """
    model = worker.get_model()
    norm = 1.0 if any("GemmaRMSNorm" in type(module).__name__ for module in model.modules()) else DUMMY_WEIGHT
    count = 0
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if weight is None or not {*name.split(".")[-2:]} & ROUTERS:
            continue
        is_packed = weight.numel() == 0  # on a CPU, for its kernel, which alone holds it
        shape = (module.output_size, module.input_size) if is_packed else weight.shape
        if len(shape) != 2:
            continue
        drawn = torch.randn(shape, generator=torch.Generator().manual_seed(count))
        drawn *= LOGITS / (norm * shape[1] ** 0.5)
        if is_packed:
            module.weight = torch.nn.Parameter(drawn.to(weight.dtype), requires_grad=False)
            module.quant_method.process_weights_after_loading(module)
        else:
            weight.data.copy_(drawn)
        count += 1
    for name, parameter in model.named_parameters():
        if count and name.endswith("bias"):  # of any layer: it would make all tokens alike
            parameter.data.zero_()
    return count


def name_architecture(folder):
    """Complete a `config.json` that names its model type alone by the class that transformers has for it."""
    path = os.path.join(folder, "config.json")
    with open(path) as file:
        config = json.load(file)
    if "architectures" in config:
        return
    from transformers.models.auto import modeling_auto as known  # noqa: PLC0415  vLLM's own need

    for mapping in (known.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, known.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES):
        if config["model_type"] in mapping:
            with open(path, "w") as file:
                json.dump({**config, "architectures": [mapping[config["model_type"]]]}, file)
            return
    raise SystemExit(f"config.json names no architectures, and transformers no class for '{config['model_type']}'")


def composed(step):
    """A step as it is written: who computed which positions."""
    output = step.pop("output")
    starts = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
    cached = output.scheduled_cached_reqs
    starts.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    scheduled = output.num_scheduled_tokens
    return {
        **step,
        "requests": [int(name) for name in scheduled],
        "computed": [starts[name] for name in scheduled],
        "scheduled": list(scheduled.values()),
        "unsampled": [int(name) for name in step["unsampled"]],
    }


def processor_name():
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def plain(value):
    """What JSON can hold."""
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def own_output():
    """What was standard output, for the records alone: vLLM's log and its workers' prints go to standard error."""
    sys.stdout.flush()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return out


def write(out, record):
    out.write(json.dumps(record) + "\n")
    out.flush()


def main():
    out = own_output()
    with open(sys.argv[1]) as file:
        job = json.load(file)
    recorder = Recorder(job)
    write(out, {"started": recorder.about()})
    for line in sys.stdin:
        load = json.loads(line)
        count = 0
        try:
            for step in recorder.run(load):
                count += 1
                write(out, {"step": count, **step})
        except CannotRunError as error:
            write(out, {"failed": load["name"], "reason": str(error)})
            continue
        write(out, {"finished": load["name"], "steps": count})


if __name__ == "__main__":
    main()
