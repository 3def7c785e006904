"""What SGLang's own scheduler decides on made-up loads, batch by batch. Run by an interpreter that has SGLang.

Its event loops, scheduler, policies, radix tree and allocators are SGLang's; the model, the clock, and who sends
requests are ours.
"""

import gc
import json
import math
import random
import sys
from collections import deque
from contextlib import contextmanager
from traceback import extract_tb
from types import SimpleNamespace

import sglang
import torch
from engine_loop import Load, draft_hash, row_of
from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.managers import scheduler as scheduler_module
from sglang.srt.managers.io_struct import AbortReq
from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.managers.schedule_policy import SchedulePolicy
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.managers.scheduler_components.batch_result_processor import SchedulerBatchResultProcessor
from sglang.srt.managers.scheduler_components.new_token_ratio_tracker import NewTokenRatioTracker
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.mem_cache import allocation
from sglang.srt.mem_cache.allocation_sizing import get_req_to_token_extra_context_len
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang_parts import make_allocator, make_rows, make_tree, settings, token_at, tokens_of

scheduler_module.resolve_forward_inputs = lambda batch, future_map: None  # no model reads them
allocation.get_last_loc = allocation.get_last_loc_torch  # a GPU has kernels for this …
torch.Tensor.pin_memory = lambda tensor, *_: tensor  # there is no GPU to copy to

OFF = (
    "_engine_paused",
    "_sched_idled",
"attn_dp_enabled", "enable_continuous_input_polling", "enable_fpm", "enable_hierarchical_cache",
    "enable_hicache_storage", "enable_hisparse", "enable_lmcache", "enable_lora", "enable_overlap_mlx", "enable_pdmux",
    "enable_priority_preemption", "enable_priority_scheduling", "enable_skip_finishing_decode",
    "enable_unified_cache_external_linker", "enable_unified_memory", "abort_on_priority_when_disabled",
    "gracefully_exit", "require_mlp_sync",
)  # fmt: skip
NONE = (
    "_pending_chunked_abort_req", "chunked_req", "mm_receiver", "decode_offload_manager", "dllm_config", "draft_worker",
    "dynamic_chunk_sizer", "forward_sleep_time", "future_map", "hisparse_coordinator", "last_batch", "lora_drainer",
    "max_new_tokens_limit", "max_queued_requests", "min_free_slots_delayer", "prefill_delayer",
    "scheduler_stage_metrics", "scripted_scheduler_hook", "truncation_align_size",
)  # fmt: skip
ZERO = (
    "_prefill_decode_interval_remaining", "forward_ct", "max_prefill_bs", "prefill_decode_interval",
    "prefill_decode_interval_min_bs", "priority_scheduling_preemption_threshold", "processed_tokens_counter",
)  # fmt: skip
SILENT = (
    "_apply_war_barrier", "_copy_auxiliary_output_to_cpu", "_maybe_clear_mm_inputs", "_record_step_counters",
    "_relay_forward_payload",
    "launch_batch_sample_if_needed", "maybe_send_health_check_signal", "publish_load_snapshot",
    "update_cache_from_scheduler",
)  # fmt: skip


def write_places(rows, table, starts, ends, places, _):
    """Give each request's row the places that its next tokens take."""
    given = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        table[row, start:end] = places[given : given + end - start].to(table.dtype)
        given += end - start


allocation.assign_req_to_token_pool_func = write_places  # … and for this


def algorithm_of(speculation):
    """SGLang's name of what drafts; None: nothing does."""
    return speculation and {"eagle": "EAGLE", "draft_model": "STANDALONE"}[speculation["method"]]


def width_of(speculation):
    """Tokens that are verified of a request: of a chain, one more than its drafts."""
    return speculation["num_draft_tokens"] or 1 + speculation["num_speculative_tokens"]


class Nobody:
    """Listens to every call, and answers none."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


class Model:
    """Answers with the tokens that each request's content has next, of which drafts foresee some."""

    def __init__(self, contents, speculation):
        self.contents, self.speculation = contents, speculation
        self.num_outputs = {}  # of each request, those of batches that are not processed yet among them

    def forward_batch_generation(self, batch, **_):
        if self.speculation:
            return self.with_drafts(batch)
        tokens = [self.next_token(row_of(req.rid), req.kv.kv_committed_len) for req in batch.reqs]
        return GenerationBatchResult(logits_output=None, next_token_ids=torch.tensor(tokens, dtype=torch.int64))

    def with_drafts(self, batch):
        """A prefill, or one token of each mixed decode; else what is verified, padded to the width of the drafts."""
        if batch.forward_mode.is_extend():
            tokens = []
            for req in batch.reqs:
                row, known = row_of(req.rid), len(req.origin_input_ids)
                done = self.num_outputs[row] if req in (batch.decoding_reqs or ()) else len(req.output_ids)
                tokens.append(self.next_token(row, known + done))
                self.num_outputs[row] = done + 1
            return GenerationBatchResult(next_token_ids=torch.tensor(tokens, dtype=torch.int64))
        width = width_of(self.speculation)
        tokens, lengths = [], []
        for req in batch.reqs:
            row, known = row_of(req.rid), len(req.origin_input_ids)
            first = known + self.num_outputs[row]
            num_known = self.contents[row][-1][1] - first  # tokens up to where its content ends
            lengths.append(max(1, min(1 + self.num_accepted(row, self.num_outputs[row]), num_known)))
            tokens += [self.next_token(row, first + place) for place in range(width)]
            self.num_outputs[row] += lengths[-1]
        return GenerationBatchResult(
            next_token_ids=torch.tensor(tokens, dtype=torch.int64),
            accept_lens=torch.tensor(lengths, dtype=torch.int64),
            speculative_num_draft_tokens=width,
        )

    def num_accepted(self, row, num_outputs):
        """Drafts up to the first that is wrong."""
        rate, steps = self.speculation["acceptance_rate"], self.speculation["num_speculative_tokens"]
        count = min(steps, width_of(self.speculation) - 1)
        wrong = (place for place in range(count) if draft_hash(row, num_outputs + place) >= round(rate * 2**32))
        return next(wrong, count)

    def on_verify_complete_cpu(self, *_, **__):
        pass

    def next_token(self, row, position):
        return token_at(next((content for content, end in self.contents[row] if position < end), 0), position)


class Loop(Scheduler):
    """SGLang's scheduler on a case's load, with every decision recorded."""

    def __init__(self, case):
        engine = case["engine"]
        self.case, self.load, self.records = case, Load(case["requests"]), []
        self.gpu_free_s, self.ends = 0.0, deque()
        for names, value in ((OFF, False), (NONE, None), (ZERO, 0)):
            for name in names:
                setattr(self, name, value)
        for name in SILENT:
            setattr(self, name, lambda *_, **__: None)
        self.enable_overlap = not engine["disable_overlap_schedule"]
        self.is_generation = True
        self.disaggregation_mode = DisaggregationMode.NULL
        self.spec_algorithm = SpeculativeAlgorithm.from_string(algorithm_of(engine["speculation"]))
        self.page_size, self.chunked_prefill_size = engine["page_size"], engine["chunked_prefill_size"]
        self.max_prefill_tokens, self.max_running_requests = (
            engine["max_prefill_tokens"],
            engine["max_running_requests"],
        )
        self.is_mixed_chunk = engine["enable_mixed_chunk"] and self.chunked_prefill_size is not None
        self.max_total_num_tokens, self.kv_shard_widening = engine["max_total_num_tokens"], 1
        self.max_req_len = min(engine["context_len"], engine["max_total_num_tokens"]) - 1
        self.waiting_queue, self.result_queue = [], deque()
        self.running_batch = ScheduleBatch(reqs=[], batch_is_full=False)
        self._make_pools(engine)
        self._make_stand_ins(case)
        self.policy = SchedulePolicy(engine["schedule_policy"], self.tree_cache, False, False, False)
        self.new_token_ratio_tracker = NewTokenRatioTracker.from_config()
        self.batch_result_processor = self._result_processor()

    def _make_pools(self, engine):
        self.sliding_window_size = engine["sliding_window_size"]
        self.is_hybrid_swa = self.sliding_window_size is not None
        window_tokens = engine["swa_max_total_num_tokens"] if self.is_hybrid_swa else None
        self.token_to_kv_pool_allocator = make_allocator(
            engine["max_total_num_tokens"], engine["page_size"], window_tokens
        )
        self.req_to_token_pool = make_rows(
            engine["max_running_requests"], engine["context_len"] + 4 + get_req_to_token_extra_context_len(), engine
        )
        self.tree_cache = make_tree(engine, self.token_to_kv_pool_allocator, self.req_to_token_pool)
        self.device = "cpu"

    def _make_stand_ins(self, case):
        """What SGLang asks of its workers, its other engines and its observers."""
        for name in ("load_publisher", "metrics_collector", "metrics_reporter", "output_streamer", "profiler_manager"):
            setattr(self, name, Nobody())
        self.metrics_reporter.enable_metrics = False
        self.metrics_reporter.num_generated_tokens = self.metrics_reporter.forward_ct_decode = 0
        self.load_inquirer = SimpleNamespace(_get_num_pending_tokens=lambda **_: 0, get_loads=None)
        self.model_config = SimpleNamespace(
            is_encoder_decoder=False,
            vocab_size=1,
            self_opened_think_start_ids=None,
            think_end_ids=None,
            hf_text_config=SimpleNamespace(mamba_chunk_size=case["engine"]["mamba_chunk_size"]),
        )
        runner = SimpleNamespace(prefill_aware_swa=False, attn_backend=None)
        self.tp_worker = SimpleNamespace(model_runner=runner)
        self.model_worker = Model([request["spans"] for request in case["requests"]], case["engine"]["speculation"])
        self.pp_group, self.device_module = SimpleNamespace(is_last_rank=True), SimpleNamespace(Event=Nobody)
        if case["engine"]["speculation"]:
            self.future_map = Nobody()
        self.grammar_manager = SimpleNamespace(
            has_waiting_grammars=lambda: False, grammar_queue=(), abort_requests=lambda _: None
        )
        self.dllm_manager = SimpleNamespace(any_staging_reqs=lambda: False)
        self.beam_coordinator = SimpleNamespace(
            pending_member_rows=lambda batch: 0, commit_decode=lambda batch: set(), retire_group=lambda req: None
        )
        self.dp_attn_adapter = SimpleNamespace(
            maybe_prepare_mlp_sync_batch=lambda batch, need_sync=None: batch, maybe_convert_decode_to_extend=lambda b: b
        )
        self.ngram_embedding_manager = SimpleNamespace(prepare_for_forward=lambda batch, chunked_req=None: batch)

    def _result_processor(self):
        own = ("logprob_result_processor", "abort_request")
        names = (name for name in SchedulerBatchResultProcessor.__dataclass_fields__ if name not in own)
        return SchedulerBatchResultProcessor(**{name: getattr(self, name) for name in names}, **dict.fromkeys(own))

    # -- what the loop asks for

    def ingest_requests(self, stop_at_pause=False):
        for arrival_s, row in self.load.due():
            if arrival_s == math.inf:
                self.abort_request(AbortReq(rid=f"{row:08d}"))
                continue
            request = self.case["requests"][row]
            num_prompt_tokens, stops = request["prompt_tokens"], request["num_tokens_to_stop"]
            sampling = SamplingParams(
                max_new_tokens=request["max_new_tokens"],
                ignore_eos=request["ignore_eos"],
                stop_token_ids=stops and [self.model_worker.next_token(row, num_prompt_tokens + stops - 1)],
            )
            sampling.normalize(None)
            tokens = tokens_of(request["spans"], num_prompt_tokens)
            req = Req(f"{row:08d}", "", tokens, sampling, routing_key=request["routing_key"] or None)
            req.logprob_start_len = -1  # as of requests that ask for none
            self.init_req_max_new_tokens(req)
            self._add_request_to_queue(req)

    def run_batch(self, batch, pp_proxy_tensors=None):
        self.gpu_free_s = max(self.gpu_free_s, self.load.now_s) + self.case["step_s"]
        self.ends.append(self.gpu_free_s)
        overlap, self.enable_overlap = self.enable_overlap, False  # the streams of a GPU
        try:
            return super().run_batch(batch, pp_proxy_tensors)
        finally:
            self.enable_overlap = overlap

    def process_batch_result(self, batch, result):
        self.load.now_s = max(self.load.now_s, self.ends.popleft())
        running = [req for req in batch.reqs if not req.finished()]
        super().process_batch_result(batch, result)
        finished = [row_of(req.rid) for req in running if req.finished()]
        if finished:
            self.records[-1]["finished"] += finished
        self.load.follow_up([row for row in finished if not self.load.has_ended(row)])

    def on_idle(self):
        if self.is_fully_idle():
            self.new_token_ratio_tracker.reset()
        if not self.load.wait():
            self.gracefully_exit = True

    # -- what is recorded

    def get_next_batch_to_run(self, running_batch, last_batch):
        self.retracted, self.aborted = [], []
        plan = super().get_next_batch_to_run(running_batch, last_batch)
        batch = plan.batch_to_run
        batch = batch if batch and batch.reqs else None  # one that a rank runs since others have work is empty
        if batch or self.retracted or self.aborted:
            self.records.append(self._record(batch, plan.running_batch))
            self.gracefully_exit = len(self.records) >= self.case["max_steps"]
        return plan

    def _record(self, batch, running_batch):
        mode = batch.forward_mode.name.lower() if batch else "decode"
        rows = [row_of(req.rid) for req in batch.reqs] if batch else []
        tokens, prefixes = [1] * len(rows), []
        if mode != "decode":
            num_extending = len(rows) - len(batch.decoding_reqs or ())
            tokens, prefixes = batch.extend_lens, batch.prefix_lens[:num_extending]
        return {
            "mode": mode,
            "scheduled": list(zip(rows, tokens, strict=True)),
            "prefixes": list(zip(rows, prefixes, strict=False)),
            "retracted": self.retracted,
            "aborted": [*self.aborted],
            "running": len(running_batch.reqs),
            "waiting": len(self.waiting_queue),
            **self._sizes(),
            "ratio": self.new_token_ratio_tracker.current,
            "finished": [],
        }

    def _sizes(self):
        pools, tree = self.token_to_kv_pool_allocator, self.tree_cache
        is_one, has_states = not self.is_hybrid_swa, tree.supports_mamba()
        return {
            "free": pools.available_size() if is_one else pools.full_available_size(),
            "evictable": tree.evictable_size(),
            "free_in_windows": 0 if is_one else pools.swa_available_size(),
            "evictable_in_windows": 0 if is_one else tree.swa_evictable_size(),
            "free_states": self.req_to_token_pool.mamba_allocator.available_size() if has_states else 0,
            "evictable_states": tree.mamba_evictable_size() if has_states else 0,
        }

    def _add_request_to_queue(self, req, is_retracted=False):
        if is_retracted:
            self.retracted.append(row_of(req.rid))
        super()._add_request_to_queue(req, is_retracted)

    def send_abort_output(self, abort_req, req):
        self.aborted.append(row_of(req.rid))


def drafting(speculation):
    """SGLang's settings of drafts."""
    if not speculation:
        return {}
    return {
        "speculative_algorithm": algorithm_of(speculation),
        "speculative_num_steps": speculation["num_speculative_tokens"],
        "speculative_eagle_topk": speculation["topk"],
        "speculative_num_draft_tokens": width_of(speculation),
    }


@contextmanager
def overridden(engine):
    """SGLang's own settings are those of a case."""
    random.seed(engine["random_seed"])
    names = ("page_size", "chunked_prefill_size", "max_prefill_tokens", "schedule_policy", "schedule_conservativeness")
    override = settings(
        **{name: engine[name] for name in names},
        radix_eviction_policy=engine["radix_eviction_policy"],
        max_running_requests=engine["max_running_requests"],
        pp_max_micro_batch_size=engine["max_running_requests"],
        enable_mixed_chunk=engine["enable_mixed_chunk"],
        disable_radix_cache=engine["disable_radix_cache"],
        mamba_radix_cache_strategy=engine["mamba_radix_cache_strategy"] if engine["max_mamba_cache_size"] else "auto",
        mamba_track_interval=engine["mamba_track_interval"],
        _mamba_cache_chunk_size=max(engine["mamba_chunk_size"], engine["page_size"]),
        **drafting(engine["speculation"]),
    )
    try:
        yield
    finally:
        override.restore()


def ends_the_server(error):
    """Whether SGLang itself ended so: without memory for a prefill, or with a page that was freed twice."""
    return "out of memory" in str(error).lower() or extract_tb(error.__traceback__)[-1].name == "free_group_end"


def run(case):
    """Every record of a case; whether SGLang itself gave up for want of memory."""
    with overridden(case["engine"]):
        loop = Loop(case)
        try:
            loop.event_loop_overlap() if loop.enable_overlap else loop.event_loop_normal()
        except (RuntimeError, AssertionError) as error:
            if not ends_the_server(error):
                raise
            return loop.records, True
    return loop.records, False


def print_cases(records_of):
    """The records of each of the cases that a file holds."""
    gc.freeze()  # what SGLang imports, which would be looked through again and again
    print(json.dumps({"sglang_version": sglang.__version__}), flush=True)
    with open(sys.argv[1]) as cases:
        for line in cases:
            case = json.loads(line)
            records, crashed = records_of(case)
            print(json.dumps({"name": case["name"], "crashed": crashed, "records": records}), flush=True)


if __name__ == "__main__":
    print_cases(run)
