"""Drives vLLM's own scheduler with its `MooncakeStoreConnector` through given cases; run by an interpreter with vLLM.

usage: python mooncake_probe.py CASES.jsonl > STEPS.jsonl

As `scheduler_probe`, with the connector's scheduler side. Its worker and the store are stood in for: a set of hashes
without end, and two threads, which take what they are asked for in turn. Loads begin when their step was launched,
stores when it is over. What is there already is not stored again; what a preempted request has in the queue is dropped.
"""

import os

import scheduler_probe
from engine_loop import name_of
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store import scheduler as store_scheduler
from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.coordinator import ExternalCachedBlockPool
from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.data import (
    MooncakeLookupResult,
    MooncakeStoreWorkerMetadata,
)
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher
from vllm.v1.outputs import KVConnectorOutput


class LookupClient:
    """Answers at once, as vLLM's worker does (`worker.py`: `lookup`)."""

    store = coordinator = None  # of the engine that is made

    def __init__(self, _):
        self.known = self.store
        self.settle = None

    def lookup(self, _, num_tokens, block_hashes, non_block):
        assert not non_block
        self.settle()
        hits = self._hits(block_hashes, num_tokens)
        return MooncakeLookupResult(hits if hits < num_tokens else self._hits(block_hashes, num_tokens - 1))

    def _hits(self, block_hashes, num_tokens):
        coordinator = self.coordinator
        pool = ExternalCachedBlockPool(coordinator.hash_block_size, {(0, bytes(key)) for key in self.known})
        length = coordinator.align_lookup_length(num_tokens)
        return coordinator.find_longest_cache_hit(block_hashes, length, pool)[1] if length > 0 else 0

    def discard(self, _):
        """Nothing is under way."""


class Engine(scheduler_probe.Engine):
    """vLLM's scheduler with a store."""

    def __init__(self, model_folder, case):
        self.store = LookupClient.store = set()
        super().__init__(model_folder, case)
        self.hasher = get_request_block_hasher(case["engine"]["block_size"], sha256)
        self.connector = self.scheduler.connector.connector_scheduler
        self.connector.client.coordinator = self.connector._store_coord

    def _config(self, model_folder, engine):
        config = super()._config(model_folder, engine)
        os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1"  # as on GPUs
        config.kv_transfer_config = KVTransferConfig(kv_connector="MooncakeStoreConnector", kv_role="kv_both")
        return config


class Job:
    """A load, or a store of all that a request has filled."""

    def __init__(self, request, asked_s, computed_s, num_chunks=0):
        self.request, self.asked_s, self.computed_s, self.num_chunks = request, asked_s, computed_s, num_chunks
        self.is_dropped = self.is_begun = False
        self.begin_s = self.end_s = asked_s
        self.new = []


class Copies:
    """Stands for the worker's two threads."""

    def __init__(self, tier, block_size, store):
        self.tier, self.block_size, self.store = tier, block_size, store
        self.loads, self.stores = [], []  # not told
        self.loading = set()  # whose loads the scheduler does not know to be over
        self.load_free_s = self.store_free_s = self.now_s = 0.0
        self.num_begun = 0

    def copy_s(self, num_chunks):
        return self.tier["transfer_s"] + num_chunks * self.tier["chunk_s"]

    def submit(self, asked, end_s):
        for request in asked.requests:
            if request.load_spec is not None and request.load_spec.can_load:
                spec = request.load_spec
                count = (spec.kvpool_cached_tokens - spec.vllm_cached_tokens) // self.block_size
                job = Job(request, self.now_s, self.now_s, count)
                job.end_s = self.load_free_s = max(self.load_free_s, self.now_s) + self.copy_s(count)
                self.loads.append(job)
                self.loading.add(request.req_id)
                self.num_begun += 1
        for request in asked.requests:
            if request.can_save:
                self.stores.append(Job(request, self.now_s, end_s))
                self.num_begun += 1

    def drop(self, names):
        """What preempted requests have in the queue and was not begun."""
        for job in self.stores:
            job.is_dropped |= job.request.req_id in names and not job.is_begun
        self.plan()

    def plan(self):
        """When each store begins and ends, and what it copies; those that have begun stay as they are."""
        free_s, there = self.store_free_s, set(self.store)
        for job in self.stores:
            if job.is_begun:
                there.update(job.new)
                free_s = job.end_s
                continue
            job.begin_s = max(free_s, job.asked_s)
            keys = job.request.block_hashes[: job.request.token_len_chunk // self.block_size]
            job.new = [] if job.is_dropped else [key for key in keys if key not in there]
            job.end_s = job.begin_s
            if job.new:
                job.end_s = max(job.begin_s, job.computed_s) + self.copy_s(len(job.new))
            job.is_begun = job.begin_s <= self.now_s
            there.update(job.new)
            free_s = job.end_s

    def settle(self):
        """What is stored by now is there."""
        self.plan()
        self.store.update(key for job in self.stores if job.end_s <= self.now_s for key in job.new)

    def told(self):
        """Loads and stores that are over by now."""
        loads = [job for job in self.loads if job.end_s <= self.now_s]
        stores = [job for job in self.stores if job.end_s <= self.now_s]
        self.loads = [job for job in self.loads if job.end_s > self.now_s]
        self.stores = [job for job in self.stores if job.end_s > self.now_s]
        for job in stores:
            self.store.update(job.new)
            self.store_free_s = job.end_s
        return loads, stores

    def ends_s(self):
        return [job.end_s for job in [*self.loads, *self.stores]]


class Executor(scheduler_probe.Executor):
    """Calls what stands for the connector's worker side as vLLM's model runner calls it."""

    def __init__(self, engine, load, pipeline, tier):
        super().__init__(engine, load, pipeline)
        self.copies = Copies(tier, engine.config.cache_config.block_size, engine.store)
        engine.connector.client.settle = self.settle

    def settle(self):
        self.copies.now_s = max(self.copies.now_s, self.load.now_s)
        self.copies.settle()

    def execute_model(self, output, non_block=False):
        future = super().execute_model(output)
        copies, asked, step = self.copies, output.kv_connector_metadata, self.latest
        copies.now_s = max(copies.now_s, self.load.now_s)
        copies.settle()
        copies.submit(asked, step.end_s)
        copies.plan()
        copies.drop(asked.preempted_req_ids)
        loads, stores = copies.told()
        saves = {job.request.store_job_id: 1 for job in stores}
        step.connector_output = KVConnectorOutput(
            finished_recving=[job.request.req_id for job in loads],
            kv_connector_worker_meta=MooncakeStoreWorkerMetadata(saves) if saves else None,
        )
        return future

    def finish(self, step):
        output = super().finish(step)
        output.kv_connector_output = step.connector_output
        self.copies.loading.difference_update(step.connector_output.finished_recving)
        return output


class Core(scheduler_probe.SteppedCore):
    """vLLM's engine core, as `run_with_transfers` steps it."""

    def enter(self, row, arrival_s):
        self.engine.add(row, arrival_s)

    def abort(self, row):
        self.abort_requests([name_of(row)])

    @property
    def has_transfers(self):
        return bool(self.engine.connector._pinned_saves or self.executor.copies.loading)

    @property
    def num_begun(self):
        return self.executor.copies.num_begun

    @property
    def has_news(self):
        copies, now_s = self.executor.copies, self.executor.load.now_s
        loads = {job.request.req_id for job in copies.loads if job.end_s > now_s}
        stores = {job.request.store_job_id for job in copies.stores if job.end_s > now_s}
        is_over = copies.loading - loads or self.engine.connector._pinned_saves.keys() - stores
        return bool(is_over or self.executor.in_flight or self.scheduler.finished_req_ids)

    @property
    def next_transfer_s(self):
        return min(self.executor.copies.ends_s(), default=float("inf"))


if __name__ == "__main__":
    store_scheduler.LookupKeyClient = LookupClient
    scheduler_probe.print_cases_with_tier(Engine, Executor, Core)
