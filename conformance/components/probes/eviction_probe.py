"""Drives vLLM's own `CPUOffloadingManager` through given operations; run by an interpreter with vLLM.

usage: python eviction_probe.py CASES.jsonl > ANSWERS.jsonl

An answer is what an operation gave, then all chunks of each list, the least recently used first; of ARC its target too.
"""

import json
import sys
from collections import deque

import vllm
from vllm.v1.kv_offload.base import (
    LookupResult,
    ReqContext,
    get_offload_block_hash,
    get_offload_group_idx,
    make_offload_key,
)
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager


def key_of(chunk):
    content, index, group = chunk
    return make_offload_key(f"{content}:{index}".encode(), group)


def chunk_of(key):
    content, index = get_offload_block_hash(key).decode().split(":")
    return [int(content), int(index), get_offload_group_idx(key)]


class Driver:
    def __init__(self, case):
        self.manager = CPUOffloadingManager(case["num_chunks"], case["eviction_policy"], store_threshold=0)
        self.contexts = {}
        self.stores, self.loads = deque(), deque()

    def context(self, request, chunks):
        context = self.contexts.setdefault(request, ReqContext(req_id=str(request)))
        for chunk in chunks:
            context.set_offload_key_position(key_of(chunk), chunk[1] + 1)
        return context

    def load(self, request, chunks):
        """All that are there, one after the other."""
        context, keys = self.context(request, chunks), []
        for key in map(key_of, chunks):
            if self.manager.lookup(key, context) is not LookupResult.HIT:
                break
            keys.append(key)
        if keys:
            self.manager.prepare_load(keys, context)
            self.loads.append((keys, context))
        return [chunk_of(key) for key in keys]

    def offer(self, request, chunks):
        context = self.context(request, chunks)
        output = self.manager.prepare_store([key_of(chunk) for chunk in chunks], context)
        if output is None:
            return None
        if output.keys_to_store:
            self.stores.append((output.keys_to_store, context))
        return [chunk_of(key) for key in output.keys_to_store]

    def copied(self):
        if self.stores:
            self.manager.complete_store(*self.stores.popleft())

    def loaded(self):
        if self.loads:
            self.manager.complete_load(*self.loads.popleft())

    def end(self, request):
        self.manager.on_request_finished(self.contexts[request])

    def lists(self):
        policy = self.manager._policy
        if hasattr(policy, "t1"):
            return [[chunk_of(key) for key in each] for each in (policy.t1, policy.t2, policy.b1, policy.b2)] + [
                policy.target_t1_size
            ]
        return [[chunk_of(key) for key in sorted(policy.chunks, key=policy._ranks.get)]]


def main():
    print(json.dumps({"vllm_version": vllm.__version__}), flush=True)
    with open(sys.argv[1]) as cases:
        for line in cases:
            case = json.loads(line)
            driver, answers = Driver(case), []
            for operation in case["operations"]:
                do = operation.pop("do")
                answers.append([getattr(driver, do)(**operation), *driver.lists()])
            print(json.dumps({"name": case["name"], "answers": answers}), flush=True)


if __name__ == "__main__":
    main()
