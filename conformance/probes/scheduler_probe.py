"""Drives vLLM's own scheduler and engine core through given cases; run by an interpreter that has vLLM.

usage: python scheduler_probe.py CASES.jsonl > STEPS.jsonl

Imports vLLM with the standard library alone, so that any release can be driven. Each line of the input is one case
(see `conformance.cases.scheduler_cases`); for each of its `schedule()` calls one line comes out, then one
with `"case"`. The steps are those of vLLM's `EngineCore.step` or `step_with_batch_queue` over an executor that knows
the tokens.
Time is constant per step: steps end, then arrivals enter by id, then the scheduler decides.
"""

import dataclasses
import json
import math
import os
import queue
import sys
import tempfile
from collections import deque

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import vllm
from case_caches import pool_of
from engine_loop import VOCABULARY, Load, Pipeline, Recorder, draft_hash, name_of, row_of, run_with_transfers, token_of
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, ParallelConfig, SchedulerConfig, VllmConfig
from vllm.config.lora import LoRAConfig
from vllm.config.speculative import SpeculativeConfig
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine.core import EngineCore
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

TINY_MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
    "vocab_size": VOCABULARY, "max_position_embeddings": 1048576, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "hidden_act": "silu", "tie_word_embeddings": True, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
OPTIONS = ("scheduler_reserve_full_isl", "watermark", "prefill_schedule_interval")  # of some releases


class Step:
    """One scheduler output on its way through the engine."""

    def __init__(self, output, scheduler, end_s):
        self.output = output
        self.end_s = end_s
        self.names = list(output.num_scheduled_tokens)
        self.chunks = {name: scheduler.requests[name].is_prefill_chunk for name in self.names}
        admitted = {new.req_id for new in output.scheduled_new_reqs}
        admitted.update(output.scheduled_cached_reqs.resumed_req_ids)
        # Requests that enter a drafting step have no drafts: vLLM pads them, and none is accepted.
        self.padded = {name for name in output.scheduled_spec_decode_tokens if name in admitted}


class Engine:
    """vLLM's scheduler, with the tokens that a model would give."""

    def __init__(self, model_folder, case):
        engine = case["engine"]
        self.asynchronous = engine["async_scheduling"]
        self.speculation = engine["speculation"]
        self.requests = case["requests"]
        self.context_ranks = case["context_ranks"]
        self.data_ranks = case.get("ranks", 1)
        self.config = self._config(model_folder, engine)
        scheduler_class = AsyncScheduler if self.asynchronous else Scheduler
        self.scheduler = scheduler_class(
            vllm_config=self.config,
            kv_cache_config=pool_of(engine, case["has_latent_attention"], self.context_ranks),
            block_size=math.lcm(*engine["group_block_sizes"]),
            **({"hash_block_size": engine["block_size"]} if engine["cache_unit"] > 1 else {}),
            log_stats=False,
            structured_output_manager=StructuredOutputManager(self.config),
        )
        if engine["encoder"]:  # as the model's processor would have it
            self.scheduler.max_num_encoder_input_tokens = engine["encoder"]["max_num_encoder_input_tokens"]
            cache_size = engine["encoder"]["encoder_cache_size"]
            self.scheduler.encoder_cache_manager = EncoderCacheManager(cache_size=cache_size)
        self.recorder = Recorder(self.scheduler)
        depth = engine["pipeline_parallel_size"] + self.asynchronous
        assert self.config.max_concurrent_batches == depth, "this release holds another number of steps in flight"
        init_none_hash(sha256)
        lookahead = getattr(self.config, "num_hash_lookahead_tokens", 0)  # releases before 0.33: hashes of blocks alone
        arguments = (engine["block_size"], sha256, *([lookahead] if lookahead else []))
        self.hasher = get_request_block_hasher(*arguments) if engine["enable_prefix_caching"] else None

    def _config(self, model_folder, engine):
        os.environ.pop("VLLM_USE_V2_MODEL_RUNNER", None)
        model = ModelConfig(
            model=model_folder,
            skip_tokenizer_init=True,
            dtype="bfloat16",
            max_model_len=engine["max_model_len"],
            seed=0,
        )
        scheduler = SchedulerConfig(
            max_num_seqs=engine["max_num_seqs"],
            max_num_batched_tokens=engine["max_num_batched_tokens"],
            max_model_len=engine["max_model_len"],
            enable_chunked_prefill=engine["enable_chunked_prefill"],
            is_encoder_decoder=False,
            async_scheduling=engine["async_scheduling"],
            policy=engine["scheduling_policy"],
            long_prefill_token_threshold=engine["long_prefill_token_threshold"],
            **{name: engine[name] for name in OPTIONS if takes(name)},
        )
        own_block = engine["block_size"] // self.context_ranks
        cache = CacheConfig(block_size=own_block, enable_prefix_caching=engine["enable_prefix_caching"])
        config = VllmConfig(
            model_config=model,
            scheduler_config=scheduler,
            cache_config=cache,
            parallel_config=ParallelConfig(),
            device_config=DeviceConfig("cpu"),
        )
        cache.num_gpu_blocks = engine["num_gpu_blocks"]
        config.parallel_config.decode_context_parallel_size = self.context_ranks
        config.parallel_config.data_parallel_size = self.data_ranks  # set now, since none are there to be checked
        if engine["pipeline_parallel_size"] > 1:  # set now, since no such cluster is there to be checked
            config.parallel_config.pipeline_parallel_size = engine["pipeline_parallel_size"]
            os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1" if engine["async_scheduling"] else "0"
        if engine["speculation"]:
            config.speculative_config = speculative_config(engine["speculation"])
            config._set_max_num_scheduled_tokens()
        if engine["adapters"]:
            config.lora_config = LoRAConfig(max_loras=engine["adapters"]["max_loras"])
        # VllmConfig adapts these to the CPU platform; the case decides.
        scheduler.async_scheduling = engine["async_scheduling"]
        scheduler.enable_chunked_prefill = engine["enable_chunked_prefill"]
        cache.enable_prefix_caching = engine["enable_prefix_caching"]
        if engine["caches_states"]:
            cache.mamba_cache_mode = "align"
        return config

    def add(self, row, arrival_s):
        request = self.requests[row]
        self.scheduler.add_request(
            Request(
                name_of(row),
                [token_of(request, position) for position in range(request["prompt_tokens"])],
                SamplingParams(max_tokens=request["output_tokens"], ignore_eos=True, temperature=0.0),
                None,
                arrival_time=arrival_s,
                priority=request["priority"],
                lora_request=lora_request(request["adapter"]),
                block_hasher=self.hasher,
                mm_features=[feature_of(image) for image in request["images"]] or None,
            )
        )

    def model_output(self, step):
        """What the model answers to a step."""
        drafts = step.output.scheduled_spec_decode_tokens
        return ModelRunnerOutput(
            req_ids=step.names,
            req_id_to_index={name: index for index, name in enumerate(step.names)},
            sampled_token_ids=[self._sample(name, step, len(drafts.get(name, ()))) for name in step.names],
        )

    def drafts(self, names):
        """What the draft model proposes next."""
        return DraftTokenIds(names, [[3] * self.speculation["num_speculative_tokens"] for _ in names])

    def _sample(self, name, step, num_drafts):
        """The next token, with those drafts before it that are right."""
        request = self.scheduler.requests.get(name)
        if request is None or step.chunks[name]:
            return []
        accepted = 0
        if name not in step.padded:
            while accepted < num_drafts and self._is_right(row_of(name), request.num_output_tokens + accepted):
                accepted += 1
        row = self.requests[row_of(name)]
        return [token_of(row, request.num_tokens + place) for place in range(1 + accepted)]

    def _is_right(self, request, position):
        return draft_hash(request, position) < round(self.speculation["acceptance_rate"] * 2**32)


class Future:
    """A step's output, which is there when the step ends."""

    def __init__(self, executor, step):
        self.executor, self.step = executor, step

    def result(self):
        return self.executor.finish(self.step)


class Executor:
    """Stands for vLLM's executor with its workers: knows the tokens, and moves the case's clock."""

    def __init__(self, engine, load, pipeline):
        self.engine, self.load, self.pipeline = engine, load, pipeline
        self.in_flight = []
        self.aborts_queue = queue.Queue()

    def execute_model(self, output, non_block=False):
        """An empty step ends with the one before it."""
        last_s = self.in_flight[-1].end_s if self.in_flight else self.load.now_s
        end_s = self.pipeline.end_s(self.load.now_s) if output.num_scheduled_tokens else last_s
        self.latest = Step(output, self.engine.scheduler, end_s)
        if output.num_scheduled_tokens:
            self.in_flight.append(self.latest)
        return Future(self, self.latest)

    def sample_tokens(self, grammar_output, non_block=False):
        return Future(self, self.latest)

    def finish(self, step):
        if step in self.in_flight:
            self.in_flight.remove(step)
        for row in self.load.cancelled_before(step.end_s):  # vLLM takes them out before it reads the step's output
            self.aborts_queue.put([name_of(row)])
        self.load.now_s = max(self.load.now_s, step.end_s)
        self.latest = step
        return self.engine.model_output(step)

    def take_draft_token_ids(self):
        return self.engine.drafts(self.latest.names)


class Core(EngineCore):
    """vLLM's engine core over a scheduler and an executor that are there already."""

    # What its steps ask for, of this release and others; no connector, no pooling, no encoder of its own process.
    is_ec_consumer, is_mm_encoder_only, is_pooling_model, log_stats, _weight_version = True, False, False, False, ""

    def __init__(self, engine, executor):
        self.vllm_config, self.scheduler, self.model_executor = engine.config, engine.scheduler, executor
        self.batch_queue_size = engine.config.max_concurrent_batches
        self.batch_queue = deque(maxlen=self.batch_queue_size) if self.batch_queue_size > 1 else None
        self.step_fn = self.step if self.batch_queue is None else self.step_with_batch_queue
        self.use_spec_decode = self.check_for_draft_tokens = engine.speculation is not None
        self.async_scheduling = engine.asynchronous
        self.aborts_queue = executor.aborts_queue

    def abort_requests(self, request_ids):
        """In the order given: vLLM goes through a set of them."""
        for name in request_ids:
            super().abort_requests([name])


class SteppedCore(Core):
    """The same for loops that step it once and ask what has happened."""

    def __init__(self, engine, executor):
        super().__init__(engine, executor)
        self.engine, self.executor, self.records = engine, executor, engine.recorder.records
        self._num_told = {}

    def advance(self):
        _, executed = self.step_fn()
        self.post_step(executed)
        return executed

    def take_finished(self):
        """Those that have finished since it was asked last."""
        finished = []
        for number in range(max(len(self.records) - 2, 0), len(self.records)):
            rows = self.records[number]["finished"]
            finished += rows[self._num_told.get(number, 0) :]
            self._num_told[number] = len(rows)
        return finished

    @property
    def has_unfinished(self):
        return self.scheduler.get_num_unfinished_requests() > 0

    @property
    def is_computing(self):
        return bool(self.executor.in_flight)


def run_engine_core(load, engine, pipeline, *, max_steps):
    """Every record of vLLM's own engine core, which is stepped as its busy loop steps it."""
    executor = Executor(engine, load, pipeline)
    core, records = Core(engine, executor), engine.recorder.records
    while len(records) < max_steps:
        for arrival_s, row in load.due():
            if arrival_s == math.inf:
                core.abort_requests([name_of(row)])
            else:
                engine.add(row, arrival_s)
        if not (core.scheduler.has_requests() or core.batch_queue):
            if not load.wait():
                break
            continue
        num_records, was_idle = len(records), not executor.in_flight
        num_finished = len(records[-1]["finished"]) if records else 0
        _, executed = core.step_fn()
        core.post_step(executed)
        latest = records[max(num_records - 1, 0) :]
        load.follow_up([row for record in latest for row in record["finished"]][num_finished:])
        is_empty = len(records) > num_records and not (records[-1]["scheduled"] or records[-1]["preempted"])
        if was_idle and is_empty and not load.wait():
            break  # nothing fits: vLLM would ask again for ever
    return records


def lora_request(adapter):
    return None if adapter is None else LoRARequest(f"adapter{adapter}", adapter + 1, f"/adapters/{adapter}")


def speculative_config(speculation):
    """vLLM's own class with its own rules, without the draft model that its constructor asks for."""
    config = object.__new__(SpeculativeConfig)
    for name, field in SpeculativeConfig.__dataclass_fields__.items():
        default = getattr(SpeculativeConfig, name, field.default)
        object.__setattr__(config, name, None if default is dataclasses.MISSING else default)
    config.method = speculation["method"]
    config.num_speculative_tokens = speculation["num_speculative_tokens"]
    config.draft_model_config = None
    return config


def feature_of(image):
    """An image in a prompt; tokens of its placeholder that hold no embedding are marks."""
    content, offset, end, first, last, _ = image
    is_embed = torch.tensor([first <= position < last for position in range(offset, end)])
    position = PlaceholderRange(offset=offset, length=end - offset, is_embed=is_embed)
    return MultiModalFeatureSpec(data=None, modality="image", identifier=f"image{content}", mm_position=position)


def takes(name):
    """Whether this release's SchedulerConfig has the option."""
    return name in getattr(SchedulerConfig, "__dataclass_fields__", {})


def print_cases(records_of):
    """Print the records of every case, `records_of(folder of a model, case)`."""
    with tempfile.TemporaryDirectory() as folder, open(sys.argv[1]) as cases:
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(TINY_MODEL, file)
        print(json.dumps({"vllm_version": vllm.__version__}), flush=True)
        for number, line in enumerate(cases):
            for record in records_of(folder, json.loads(line)):
                print(json.dumps(record))
            print(json.dumps({"case": number}), flush=True)


def print_cases_with_tier(make_engine, make_executor, make_core):
    """The same of engines that copy KV, which are stepped until their copies are over."""

    def records_of(folder, case):
        load, engine = Load(case["requests"]), make_engine(folder, case)
        executor = make_executor(engine, load, Pipeline(case["step_s"], 1), case["engine"]["host_tier"])
        return run_with_transfers(load, make_core(engine, executor), max_steps=case["max_steps"])

    print_cases(records_of)


def records_of(folder, case):
    pipeline = Pipeline(case["step_s"], case["engine"]["pipeline_parallel_size"])
    return run_engine_core(Load(case["requests"]), Engine(folder, case), pipeline, max_steps=case["max_steps"])


if __name__ == "__main__":
    print_cases(records_of)
