"""Drives vLLM's own scheduler through given cases; run by an interpreter that has vLLM.

usage: python scheduler_probe.py CASES.jsonl > STEPS.jsonl

Imports vLLM with the standard library alone, so that any release can be driven. Each line of the input is one case
(see `calibrate.scheduler_cases`); for each of its `schedule()` calls one line comes out, then one with `"case"`.
Time is constant per step: steps end, then arrivals enter by id, then the scheduler decides.
"""

import heapq
import json
import os
import sys
import tempfile

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import vllm
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, ParallelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
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


class Engine:
    """vLLM's scheduler with the engine loop around it, the model replaced by `token_at`."""

    def __init__(self, model_folder, case):
        engine = case["engine"]
        self.depth = 2 if engine["async_scheduling"] else 1
        self.step_s = case["step_s"]
        self.requests = case["requests"]
        self.in_flight = []
        self.gpu_free_s = 0.0
        self.num_steps = 0
        config = self._config(model_folder, engine)
        spec = FullAttentionSpec(block_size=engine["block_size"], num_kv_heads=1, head_size=1, dtype=torch.float32)
        pool = KVCacheConfig(
            num_blocks=engine["num_gpu_blocks"],
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        )
        scheduler_class = AsyncScheduler if engine["async_scheduling"] else Scheduler
        self.scheduler = scheduler_class(
            vllm_config=config,
            kv_cache_config=pool,
            block_size=engine["block_size"],
            log_stats=False,
            structured_output_manager=StructuredOutputManager(config),
        )
        init_none_hash(sha256)
        self.hasher = (
            get_request_block_hasher(engine["block_size"], sha256) if engine["enable_prefix_caching"] else None
        )

    @staticmethod
    def _config(model_folder, engine):
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
        """Fill the pipeline; yields one record per `schedule()` call."""
        while len(self.in_flight) < self.depth and self.scheduler.get_num_unfinished_requests():
            output = self.scheduler.schedule()
            self.num_steps += 1
            yield self._record(output)
            if not output.num_scheduled_tokens:
                if self.in_flight or not output.preempted_req_ids:
                    return
                continue
            chunks = {name: self.scheduler.requests[name].is_prefill_chunk for name in output.num_scheduled_tokens}
            self.gpu_free_s = max(self.gpu_free_s, now_s) + self.step_s
            self.in_flight.append((output, self.gpu_free_s, chunks))

    def _record(self, output):
        return {
            "step": self.num_steps,
            "scheduled": {int(name): tokens for name, tokens in output.num_scheduled_tokens.items()},
            "new": {int(new.req_id): new.num_computed_tokens for new in output.scheduled_new_reqs},
            "resumed": sorted(int(name) for name in output.scheduled_cached_reqs.resumed_req_ids),
            "preempted": sorted(int(name) for name in output.preempted_req_ids or ()),
            "free_blocks": self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            "running": len(self.scheduler.running),
            "waiting": len(self.scheduler.waiting),
            "finished": [],
        }

    def complete(self):
        """Process the oldest step's output. Returns when it ended, and who finished."""
        output, now_s, chunks = self.in_flight.pop(0)
        names = list(output.num_scheduled_tokens)
        sampled = []
        for name in names:
            request = self.scheduler.requests[name]
            row = self.requests[int(name)]
            sampled.append([] if chunks[name] else [self._token(row, request.num_tokens)])
        outputs = self.scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: index for index, name in enumerate(names)},
                sampled_token_ids=sampled,
            ),
        )
        ended = [item for group in outputs.values() for item in group.outputs if item.finish_reason is not None]
        return now_s, [int(item.request_id) for item in ended]

    @staticmethod
    def _token(request, position):
        return token_at(next(content for content, end in request["spans"] if position < end), position)


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
