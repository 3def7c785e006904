"""Drives vLLM's own scheduler with its `OffloadingConnector` through given cases; run by an interpreter with vLLM.

usage: python offloading_probe.py CASES.jsonl > STEPS.jsonl

As `scheduler_probe`, with the connector's scheduler side and its worker side, over copies that take as long as the case
says, one after the other in each direction. Two sets that vLLM goes through in no fixed order are put in order: those
that ended since the step before by request, those whose loads are over by load.
"""

import scheduler_probe
from engine_loop import name_of
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import build_offloading_config
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker import OffloadingConnectorWorker
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher
from vllm.v1.kv_offload.base import TransferResult
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec
from vllm.v1.kv_offload.factory import OffloadingSpecFactory
from vllm.v1.outputs import KVConnectorOutput

LOAD, STORE = 0, 1


class Engine(scheduler_probe.Engine):
    """vLLM's scheduler with a host tier of so many chunks."""

    def __init__(self, model_folder, case):
        super().__init__(model_folder, case)
        self.hasher = get_request_block_hasher(case["engine"]["block_size"], sha256)
        self.connector = self.scheduler.connector.connector_scheduler
        assert self.connector.manager._num_chunks == case["engine"]["host_tier"]["num_chunks"]
        connector, build = self.scheduler.connector, self.scheduler.connector.build_connector_meta

        def build_in_order(output):
            output.finished_req_ids = sorted(output.finished_req_ids)
            return build(output)

        connector.build_connector_meta = build_in_order

    def _config(self, model_folder, engine):
        config = super()._config(model_folder, engine)
        config.cache_config.prefix_cache_retention_interval = engine["prefix_cache_retention_interval"]
        # Keys and values of one head of size 1, as floats; vLLM gives a chunk the sum of all groups' blocks here.
        page = 2 * 4 * engine["block_size"] * len(engine["kv_groups"])
        aligned = -(-page // CPUOffloadingSpec.BLOCK_SIZE_ALIGNMENT) * CPUOffloadingSpec.BLOCK_SIZE_ALIGNMENT
        config.kv_transfer_config = KVTransferConfig(
            kv_connector="OffloadingConnector",
            kv_role="kv_both",
            kv_connector_extra_config={
                "cpu_bytes_to_use": aligned * engine["host_tier"]["num_chunks"],
                "eviction_policy": engine["host_tier"]["eviction_policy"],
            },
        )
        return config


class Copies:
    """Stands for the GPU's copy engines: knows when each copy is over."""

    def __init__(self, tier):
        self.tier = tier
        self.now_s = self.computed_s = self.waited_s = 0.0
        self.free_s = [0.0, 0.0]
        self.ends_s = {}  # of those that nobody asked for

    def submit_load(self, job, source, target):
        return self._submit(job, LOAD, len(target.block_ids))

    def submit_store(self, job, source, target):
        return self._submit(job, STORE, len(source.block_ids))

    def _submit(self, job, way, num_chunks):
        begin_s = max(self.free_s[way], self.now_s, self.computed_s)
        self.free_s[way] = begin_s + (self.tier["transfer_s"] + num_chunks * self.tier["chunk_s"])
        self.ends_s[job] = self.free_s[way]
        return True

    def wait(self, jobs):
        self.waited_s = max([self.waited_s, *(self.ends_s[job] for job in jobs if job in self.ends_s)])

    def get_finished(self):
        over = [job for job, end_s in self.ends_s.items() if end_s <= self.now_s]
        for job in over:
            del self.ends_s[job]
        return [TransferResult(job_id=job, success=True) for job in over]


class Executor(scheduler_probe.Executor):
    """Calls the connector's worker side as vLLM's model runner does: its copies begin when the forward pass is over."""

    def __init__(self, engine, load, pipeline, tier):
        super().__init__(engine, load, pipeline)
        kv_cache_config = engine.scheduler.kv_cache_config
        spec = OffloadingSpecFactory.create_spec(build_offloading_config(engine.config, kv_cache_config))
        self.worker = OffloadingConnectorWorker(spec, engine.config, kv_cache_config)
        self.copies = self.worker.worker = Copies(tier)
        self.loads = {}  # the latest of each request

    def execute_model(self, output, non_block=False):
        copies, asked = self.copies, output.kv_connector_metadata
        copies.now_s = copies.waited_s = max(copies.now_s, self.load.now_s)
        self.worker.handle_preemptions(asked)
        copies.now_s = copies.waited_s
        last_s = self.in_flight[-1].end_s if self.in_flight else copies.now_s
        end_s = self.pipeline.end_s(copies.now_s) if output.num_scheduled_tokens else max(copies.now_s, last_s)
        self.latest = scheduler_probe.Step(output, self.engine.scheduler, end_s)
        if output.num_scheduled_tokens:
            self.in_flight.append(self.latest)
            copies.computed_s = end_s
        self.loads |= {load.req_id: job for job, load in asked.load_jobs.items()}
        self.worker.start_kv_transfers(asked)
        self.worker.prepare_store_kv(asked)
        _, loaded = self.worker.get_finished(set())
        self.latest.connector_output = KVConnectorOutput(
            finished_recving=sorted(loaded, key=self.loads.get),
            kv_connector_worker_meta=self.worker.build_connector_worker_meta(),
        )
        return scheduler_probe.Future(self, self.latest)

    def finish(self, step):
        output = super().finish(step)
        output.kv_connector_output = step.connector_output
        return output


class Core(scheduler_probe.SteppedCore):
    """vLLM's engine core, as `run_with_transfers` steps it."""

    def enter(self, row, arrival_s):
        self.engine.add(row, arrival_s)

    def abort(self, row):
        self.abort_requests([name_of(row)])

    @property
    def has_transfers(self):
        return bool(self.engine.connector._jobs)

    @property
    def num_begun(self):
        return self.engine.connector._job_counter

    @property
    def has_news(self):
        copies = self.executor.copies
        over = self.engine.connector._jobs.keys() - {
            job for job, end_s in copies.ends_s.items() if end_s > self.executor.load.now_s
        }
        return bool(over or self.executor.in_flight or self.scheduler.finished_req_ids)

    @property
    def next_transfer_s(self):
        return min(self.executor.copies.ends_s.values(), default=float("inf"))


if __name__ == "__main__":
    scheduler_probe.print_cases_with_tier(Engine, Executor, Core)
