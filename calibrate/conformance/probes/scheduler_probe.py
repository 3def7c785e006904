"""Drives vLLM's own scheduler through given cases; run by an interpreter that has vLLM.

usage: python scheduler_probe.py CASES.jsonl > STEPS.jsonl

Imports vLLM with the standard library alone, so that any release can be driven. Each line of the input is one case
(see `calibrate.conformance.cases.scheduler_cases`); for each of its `schedule()` calls one line comes out, then one
with `"case"`.
Time is constant per step: steps end, then arrivals enter by id, then the scheduler decides.
"""

import dataclasses
import heapq
import json
import math
import os
import sys
import tempfile

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import vllm
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, ParallelConfig, SchedulerConfig, VllmConfig
from vllm.config.speculative import SpeculativeConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

VOCABULARY = 32000
TINY_MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
    "vocab_size": VOCABULARY, "max_position_embeddings": 1048576, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "hidden_act": "silu", "tie_word_embeddings": True, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def token_at(content, position):
    """A token that depends on its content and position alone; ids 0 to 2 are special."""
    return 3 + (content * 7919 + position * 104729 + 13) % (VOCABULARY - 3)


def draft_hash(request, position):
    """Which drafts are right, as `simulator.engines.vllm.speculation` has it: an even spread over [0, 2**32)."""
    mixed = (request * 0x1E3779B1 + position * 0x25EBCA6B + 0x3C6EF372) & 0xFFFFFFFF
    mixed ^= mixed >> 16
    mixed = (mixed * 0x7FEB352D) & 0xFFFFFFFF
    mixed ^= mixed >> 15
    mixed = (mixed * 0x2C1B3C6D) & 0xFFFFFFFF
    return mixed ^ (mixed >> 16)


class Step:
    """One scheduler output on its way through the engine."""

    def __init__(self, output, end_s, scheduler):
        self.output = output
        self.end_s = end_s
        self.names = list(output.num_scheduled_tokens)
        self.chunks = {name: scheduler.requests[name].is_prefill_chunk for name in self.names}
        admitted = {new.req_id for new in output.scheduled_new_reqs}
        admitted.update(output.scheduled_cached_reqs.resumed_req_ids)
        # Requests that enter a drafting step have no drafts: vLLM pads them, and none is accepted.
        self.padded = {name for name in output.scheduled_spec_decode_tokens if name in admitted}


class Engine:
    """vLLM's scheduler with the engine loop around it, the model replaced by `token_at`."""

    def __init__(self, model_folder, case):
        engine = case["engine"]
        self.stages = engine["pipeline_parallel_size"]
        self.depth = self.stages + engine["async_scheduling"]
        self.asynchronous = engine["async_scheduling"]
        self.speculation = engine["speculation"]
        self.step_s = case["step_s"]
        self.requests = case["requests"]
        self.in_flight = []
        self.admitted = set()
        self.stage_free_s = 0.0
        self.last_end_s = 0.0
        self.num_steps = 0
        config = self._config(model_folder, engine)
        scheduler_class = AsyncScheduler if engine["async_scheduling"] else Scheduler
        self.scheduler = scheduler_class(
            vllm_config=config,
            kv_cache_config=self._pool(engine, case["has_latent_attention"]),
            block_size=math.lcm(*engine["group_block_sizes"]),
            log_stats=False,
            structured_output_manager=StructuredOutputManager(config),
        )
        assert config.max_concurrent_batches == self.depth, "this release holds another number of steps in flight"
        init_none_hash(sha256)
        self.hasher = (
            get_request_block_hasher(engine["block_size"], sha256) if engine["enable_prefix_caching"] else None
        )

    @staticmethod
    def _pool(engine, has_latent_attention):
        groups = []
        sizes = engine["group_block_sizes"]
        for number, (group, block_size) in enumerate(zip(engine["kv_groups"], sizes, strict=True)):
            shape = {"block_size": block_size, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
            if group["is_state"]:
                spec = MambaSpec(block_size=block_size, shapes=((1,),), dtypes=(torch.float32,))
            elif group["window"] is None:
                spec = MLAAttentionSpec(**shape) if has_latent_attention else FullAttentionSpec(**shape)
            elif group["chunked"]:
                spec = ChunkedLocalAttentionSpec(**shape, attention_chunk_size=group["window"])
            else:
                spec = SlidingWindowSpec(**shape, sliding_window=group["window"])
            groups.append(KVCacheGroupSpec([f"layer{number}"], spec))
        interval = engine["prefix_cache_retention_interval"]
        settings = {}
        if "prefix_cache_retention_interval" in KVCacheConfig.__dataclass_fields__:
            settings["prefix_cache_retention_interval"] = interval
        os.environ.pop("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", None)
        slides = any(group["window"] is not None and not group["chunked"] for group in engine["kv_groups"])
        if not settings and interval is not None and slides:  # releases before 0.30; they refuse it without a window
            os.environ["VLLM_PREFIX_CACHE_RETENTION_INTERVAL"] = str(interval)
        return KVCacheConfig(
            num_blocks=engine["num_gpu_blocks"], kv_cache_tensors=[], kv_cache_groups=groups, **settings
        )

    @staticmethod
    def _config(model_folder, engine):
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
            **{name: engine[name] for name in ("scheduler_reserve_full_isl", "watermark") if takes(name)},
        )
        cache = CacheConfig(block_size=engine["block_size"], enable_prefix_caching=engine["enable_prefix_caching"])
        config = VllmConfig(
            model_config=model,
            scheduler_config=scheduler,
            cache_config=cache,
            parallel_config=ParallelConfig(),
            device_config=DeviceConfig("cpu"),
        )
        cache.num_gpu_blocks = engine["num_gpu_blocks"]
        if engine["pipeline_parallel_size"] > 1:  # set now, since no such cluster is there to be checked
            config.parallel_config.pipeline_parallel_size = engine["pipeline_parallel_size"]
            os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1" if engine["async_scheduling"] else "0"
        if engine["speculation"]:
            config.speculative_config = speculative_config(engine["speculation"])
            config._set_max_num_scheduled_tokens()
        # VllmConfig adapts these to the CPU platform; the case decides.
        scheduler.async_scheduling = engine["async_scheduling"]
        scheduler.enable_chunked_prefill = engine["enable_chunked_prefill"]
        cache.enable_prefix_caching = engine["enable_prefix_caching"]
        return config

    def add(self, row, now_s):
        request = self.requests[row]
        prompt = [self._token(request, position) for position in range(request["prompt_tokens"])]
        self.scheduler.add_request(
            Request(
                f"{row:08d}",
                prompt,
                SamplingParams(max_tokens=request["output_tokens"], ignore_eos=True, temperature=0.0),
                None,
                arrival_time=now_s,
                priority=request["priority"],
                block_hasher=self.hasher,
            )
        )

    def decide(self, now_s):
        """Fill vLLM's batch queue; yields one record per `schedule()` call."""
        while len(self.in_flight) < self.depth and self.scheduler.get_num_unfinished_requests():
            output = self.scheduler.schedule()
            self.num_steps += 1
            yield self._record(output)
            if output.num_scheduled_tokens:
                self.in_flight.append(Step(output, self._end_s(now_s), self.scheduler))
            elif self.in_flight:  # an empty step waits in the queue too, and takes no time
                self.in_flight.append(Step(output, self.in_flight[-1].end_s, self.scheduler))
            elif not output.preempted_req_ids:
                return

    def _end_s(self, now_s):
        """A pipeline stage takes the next step while the following stages still work on this one."""
        stage_s = self.step_s / self.stages
        start_s = max(self.stage_free_s, now_s)
        self.stage_free_s = start_s + stage_s
        self.last_end_s = max(start_s + self.step_s, self.last_end_s + stage_s)
        return self.last_end_s

    def _record(self, output):
        entered = {int(new.req_id): new.num_computed_tokens for new in output.scheduled_new_reqs}
        resumed = {int(name) for name in output.scheduled_cached_reqs.resumed_req_ids}
        resumed.update(name for name in entered if name in self.admitted)  # the newer model runner calls them new
        new = {name: computed for name, computed in entered.items() if name not in self.admitted}
        self.admitted.update(new)
        return {
            "step": self.num_steps,
            "scheduled": {int(name): tokens for name, tokens in output.num_scheduled_tokens.items()},
            "new": new,
            "resumed": sorted(resumed),
            "preempted": sorted(int(name) for name in output.preempted_req_ids or ()),
            "free_blocks": self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            "running": len(self.scheduler.running),
            "waiting": self.scheduler.get_request_counts()[1],
            "finished": [],
        }

    def complete(self):
        """Process the oldest step's output, with the empty ones behind it. Returns when it ended, and who finished."""
        step = self.in_flight.pop(0)
        finished = self._update(step)
        while self.in_flight and not self.in_flight[0].names:
            self._update(self.in_flight.pop(0))
        return step.end_s, finished

    def _update(self, step):
        drafts = step.output.scheduled_spec_decode_tokens
        sampled = [self._sample(name, step, len(drafts.get(name, ()))) for name in step.names]
        outputs = self.scheduler.update_from_output(
            step.output,
            ModelRunnerOutput(
                req_ids=step.names,
                req_id_to_index={name: index for index, name in enumerate(step.names)},
                sampled_token_ids=sampled,
            ),
        )
        if self.speculation and not self.asynchronous:
            proposed = [[3] * self.speculation["num_speculative_tokens"] for _ in step.names]
            self.scheduler.update_draft_token_ids(DraftTokenIds(step.names, proposed))
        ended = [item for group in outputs.values() for item in group.outputs if item.finish_reason is not None]
        return [int(item.request_id) for item in ended]

    def _sample(self, name, step, num_drafts):
        """The next token, with those drafts before it that are right."""
        request = self.scheduler.requests.get(name)
        if request is None or step.chunks[name]:
            return []
        accepted = 0
        if name not in step.padded:
            while accepted < num_drafts and self._is_right(int(name), request.num_output_tokens + accepted):
                accepted += 1
        row = self.requests[int(name)]
        return [self._token(row, request.num_tokens + place) for place in range(1 + accepted)]

    def _is_right(self, request, position):
        return draft_hash(request, position) < round(self.speculation["acceptance_rate"] * 2**32)

    @staticmethod
    def _token(request, position):
        return token_at(next(content for content, end in request["spans"] if position < end), position)


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


def takes(name):
    """Whether this release's SchedulerConfig has the option."""
    return name in getattr(SchedulerConfig, "__dataclass_fields__", {})


def run(model_folder, case):
    """One case; yields the records in order."""
    engine = Engine(model_folder, case)
    follow_ups = {request["follows"]: row for row, request in enumerate(case["requests"]) if request["follows"] >= 0}
    arrivals = [(request["arrival_s"], row) for row, request in enumerate(case["requests"]) if request["follows"] < 0]
    heapq.heapify(arrivals)
    now_s = 0.0
    last = None
    while arrivals or engine.in_flight or engine.scheduler.get_num_unfinished_requests():
        if engine.num_steps >= case["max_steps"]:
            break
        while arrivals and arrivals[0][0] <= now_s:
            arrival_s, row = heapq.heappop(arrivals)
            engine.add(row, arrival_s)
        for record in engine.decide(now_s):
            if last is not None:
                yield last
            last = record
        if engine.in_flight:
            now_s, finished = engine.complete()
            last["finished"] += finished
            for row in finished:
                if row in follow_ups:
                    follower = follow_ups[row]
                    heapq.heappush(arrivals, (now_s + case["requests"][follower]["think_s"], follower))
        elif arrivals:
            now_s = arrivals[0][0]
        else:
            break  # nothing in flight, nothing fits: vLLM would wait for ever
    if last is not None:
        yield last


def main():
    with tempfile.TemporaryDirectory() as folder, open(sys.argv[1]) as cases:
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(TINY_MODEL, file)
        print(json.dumps({"vllm_version": vllm.__version__}), flush=True)
        for number, line in enumerate(cases):
            for record in run(folder, json.loads(line)):
                print(json.dumps(record))
            print(json.dumps({"case": number}), flush=True)


if __name__ == "__main__":
    main()
