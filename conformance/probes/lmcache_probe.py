"""Drives vLLM's own scheduler with LMCache's own connector through given cases; run by an interpreter with vLLM.

usage: [LMCACHE_SOURCE=FOLDER] python lmcache_probe.py CASES.jsonl > STEPS.jsonl

FOLDER holds the package `lmcache`, such as an unpacked wheel, where it is not installed. The connector, its lookup
client, the host memory with its LRU and the base class of both are LMCache's; the rest of it, which copies, logs and
talks to other processes, is stood in for. A step's copies are made when it is over.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import threading
from collections import OrderedDict
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock

import scheduler_probe
from engine_loop import name_of
from vllm.config import KVTransferConfig
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher

OWN = {  # what is LMCache's own here
    "lmcache.integration.vllm.vllm_v1_adapter", "lmcache.v1.lookup_client.lmcache_lookup_client",
    "lmcache.v1.lookup_client.abstract_client", "lmcache.v1.storage_backend.local_cpu_backend",
    "lmcache.v1.storage_backend.abstract_backend", "lmcache.v1.storage_backend.cache_policy.lru",
    "lmcache.v1.storage_backend.cache_policy.base_policy",
}  # fmt: skip


class StandIn(ModuleType):
    """A module of LMCache's that decides nothing here."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds LMCache's own modules in its folder, and stands in for the others."""

    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] != "lmcache":
            return None
        if name in OWN:
            file = os.path.join(self.folder, *name.split(".")) + ".py"
            return importlib.util.spec_from_file_location(name, file)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return StandIn(spec.name)

    def exec_module(self, module):
        if module.__name__ == "lmcache.utils":
            module._lmcache_nvtx_annotate = lambda function: function
            module.cdiv = lambda dividend, divisor: -(-dividend // divisor)
            module.CacheEngineKey = type("CacheEngineKey", (), {})
        if module.__name__ == "lmcache.integration.vllm.utils":
            module.extract_mm_features = lambda *_, **__: ([], [])
            module.extract_request_configs_from_sampling_params = lambda _: None


def source():
    """The folder of LMCache's package: given, or where this interpreter has it."""
    if folder := os.environ.get("LMCACHE_SOURCE"):
        return folder
    found = importlib.util.find_spec("lmcache")
    if found is None or found.origin is None:
        sys.exit("LMCache is not there; set LMCACHE_SOURCE to a folder with its package, such as an unpacked wheel")
    return os.path.dirname(os.path.dirname(found.origin))


sys.meta_path.insert(0, Finder(source()))
# By its whole name: as a name of its package, which is stood in for, it would be a stand-in.
vllm_v1_adapter = importlib.import_module("lmcache.integration.vllm.vllm_v1_adapter")
from lmcache.v1.lookup_client.lmcache_lookup_client import LMCacheLookupClient  # noqa: E402  found from here on
from lmcache.v1.storage_backend.cache_policy.lru import LRUCachePolicy  # noqa: E402  found from here on
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend  # noqa: E402  found from here on


class Memory:
    """One chunk of host memory."""

    def __init__(self, allocator):
        self.allocator, self.pins, self.references = allocator, 0, 1

    def pin(self):
        self.pins += 1

    def unpin(self):
        self.pins -= 1

    def ref_count_up(self):
        self.references += 1

    def ref_count_down(self):
        self.references -= 1
        self.allocator.num_free += self.references == 0

    @property
    def is_pinned(self):
        return self.pins > 0

    @property
    def can_evict(self):
        return self.pins == 0 and self.references == 1


class Allocator:
    """As many chunks as there are."""

    def __init__(self, num_chunks):
        self.num_free = num_chunks

    def allocate(self, *_):
        if self.num_free == 0:
            return None
        self.num_free -= 1
        return Memory(self)


class Backend(LocalCPUBackend):
    """LMCache's host memory, without its processes."""

    def __init__(self, num_chunks):
        self.cache_policy = LRUCachePolicy()
        self.hot_cache = self.cache_policy.init_mutable_mapping()
        assert isinstance(self.hot_cache, OrderedDict)
        self.keys_in_request, self.cpu_lock, self.use_hot = [], threading.RLock(), True
        self.memory_allocator, self.batched_msg_sender = Allocator(num_chunks), None
        self.layerwise, self.stats_monitor = False, MagicMock()


class CacheEngine:
    """What LMCache's engine asks of its host memory (`v1/cache_engine.py`: `lookup`, `retrieve`, `store`)."""

    storage_manager = None  # the scheduler's side has none

    def __init__(self, num_chunks, chunk_size):
        self.backend, self.chunk_size, self.lookup_pins = Backend(num_chunks), chunk_size, {}

    def keys(self, tokens):
        ends = range(self.chunk_size, len(tokens) + 1, self.chunk_size)
        return [sha256(tuple(tokens[:end])) for end in ends]

    def process_tokens(self, tokens, make_key):
        """As LMCache's token database."""
        for number, key in enumerate(self.keys(tokens)):
            yield number * self.chunk_size, (number + 1) * self.chunk_size, key

    def lookup(self, keys, lookup_id):
        num_hits = self.backend.batched_contains(keys, True)
        if num_hits:
            self.lookup_pins[lookup_id] = keys[:num_hits]
        self.backend.touch_cache()
        return num_hits * self.chunk_size

    def lookup_unpin(self, lookup_id):
        for key in self.lookup_pins.pop(lookup_id, ()):
            self.backend.unpin(key)

    def retrieve(self, tokens, mask, *, req_id, **_):
        assert all(key in self.backend.hot_cache for key in self.keys(tokens)), req_id
        return mask

    def store(self, tokens, *, mask, **_):
        first = int((~mask).sum()) // self.chunk_size
        keys, memories = self.keys(tokens)[first:], []
        for _key in keys:
            memory = self.backend.allocate(None, None, fmt=1, busy_loop=False)
            if memory is None:
                break
            memories.append(memory)
        self.backend.batched_submit_put_task(keys, memories)
        for memory in memories:
            memory.ref_count_down()


class Connector(vllm_v1_adapter.LMCacheConnectorV1Impl):
    """LMCache's connector, whose scheduler's and worker's sides are one object here."""

    cache = None  # of the engine that is made

    def __init__(self, config, _, parent):
        cache = self.cache
        self.config = SimpleNamespace(
            chunk_size=cache.chunk_size, enable_async_loading=False, use_layerwise=False, enable_blending=False,
            save_unfull_chunk=False, save_decode_cache=False, min_retrieve_tokens=0, priority_limit=None,
            get_extra_config_value=lambda _, default=None: default,
        )  # fmt: skip
        client = object.__new__(LMCacheLookupClient)
        client.reqs_status, client.enable_blending, client.token_database = {}, False, cache
        client.transport = SimpleNamespace(
            world_size=1, send_and_recv_all=lambda asked: [cache.lookup(asked[0], asked[2]).to_bytes(8, "big")]
        )
        self._manager = SimpleNamespace(lmcache_engine=cache, lookup_client=client)
        self._parent, self.kv_role, self.device = parent, "kv_both", "cpu"
        for role in ("WORKER", "SCHEDULER"):
            self._init_connector_state(SimpleNamespace(name=role), config, self.config)
        self._unfinished_requests, self.use_layerwise, self.enable_blending = {}, False, False
        self.kv_caches = {"layer": None}


class Engine(scheduler_probe.Engine):
    """vLLM's scheduler with LMCache."""

    def __init__(self, model_folder, case):
        engine = case["engine"]
        tier, block_size = engine["host_tier"], engine["block_size"]
        self.cache = Connector.cache = CacheEngine(tier["num_chunks"], tier["blocks_per_chunk"] * block_size)
        super().__init__(model_folder, case)
        if self.hasher is None:
            self.hasher = get_request_block_hasher(block_size, sha256)
        self.connector = self.scheduler.connector._lmcache_engine

    def _config(self, model_folder, engine):
        config = super()._config(model_folder, engine)
        os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1"  # as on GPUs
        config.scheduler_config.disable_hybrid_kv_cache_manager = True  # as vLLM does for LMCache
        config.kv_transfer_config = KVTransferConfig(kv_connector="LMCacheConnectorV1", kv_role="kv_both")
        return config


class Executor(scheduler_probe.Executor):
    """Calls the connector's worker side, by which a step becomes longer."""

    def __init__(self, engine, load, pipeline, tier):
        super().__init__(engine, load, pipeline)
        self.tier = tier

    def execute_model(self, output, non_block=False):
        self.copies_s = self.planned_s(output.kv_connector_metadata.requests)
        last_s = self.in_flight[-1].end_s if self.in_flight else self.load.now_s
        has_work = bool(output.num_scheduled_tokens)
        end_s = self.pipeline.end_s(self.load.now_s, self.copies_s) if has_work else last_s
        self.latest = scheduler_probe.Step(output, self.engine.scheduler, end_s)
        if has_work:
            self.in_flight.append(self.latest)
        return scheduler_probe.Future(self, self.latest)

    def planned_s(self, asked):
        """How long the copies of a step take, by what the connector asked for."""
        chunk, total_s = self.engine.cache.chunk_size, 0.0
        for request in asked:
            load, save = request.load_spec, request.save_spec
            if load is not None and load.can_load:
                count = load.lmcache_cached_tokens // chunk - load.vllm_cached_tokens // chunk
                total_s += self.tier["transfer_s"] + count * self.tier["chunk_s"]
            if save is not None and save.can_save:
                count = (len(request.token_ids) - save.skip_leading_tokens) // chunk
                total_s += self.tier["transfer_s"] + count * self.tier["chunk_s"] if count > 0 else 0.0
        return total_s

    def finish(self, step):
        connector = self.engine.connector
        connector._parent._connector_metadata = step.output.kv_connector_metadata
        connector.start_load_kv(SimpleNamespace(attn_metadata=True))
        connector.wait_for_save()
        return super().finish(step)


class Core(scheduler_probe.SteppedCore):
    """vLLM's engine core, as `run_with_transfers` steps it."""

    has_transfers, num_begun, next_transfer_s = False, 0, float("inf")

    def enter(self, row, arrival_s):
        self.engine.add(row, arrival_s)

    def abort(self, row):
        self.abort_requests([name_of(row)])

    def abort_requests(self, request_ids):
        """What was pinned for one that was not admitted is let go now; LMCache's monitor does it five minutes later."""
        looked_up = self.engine.connector.lookup_client.reqs_status
        super().abort_requests(request_ids)
        for name in request_ids:
            if looked_up.pop(name, None) is not None:
                self.engine.cache.lookup_unpin(name)

    @property
    def has_news(self):
        return bool(self.executor.in_flight or self.scheduler.finished_req_ids)


if __name__ == "__main__":
    vllm_v1_adapter.LMCacheConnectorV1Impl = Connector  # vLLM's own connector takes it from there
    vllm_v1_adapter.get_pp_group = lambda: SimpleNamespace(is_last_rank=True)
    scheduler_probe.print_cases_with_tier(Engine, Executor, Core)
