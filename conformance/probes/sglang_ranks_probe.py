"""Drives SGLang's own schedulers of one server under attention data parallelism; run by an interpreter that has SGLang.

usage: python sglang_ranks_probe.py CASES.jsonl > BATCHES.jsonl

Each rank runs SGLang's own event loop in a thread, with SGLang's own preparation of batches that ranks run together
(`prepare_mlp_sync_batch`). What stands for its collective: rows are exchanged once every rank has come there. All
ranks begin a turn of their loops at the same time, as batches that they run together end together.
"""

import threading
from types import SimpleNamespace

import torch
from engine_loop import Load
from sglang.srt.managers.scheduler_components import dp_attn
from sglang_scheduler_probe import Loop, ends_the_server, overridden, print_cases

TP_GROUP = SimpleNamespace(cpu_group=None, device_group=None, device="cpu", active_ranks_cpu=torch.ones(64))
own = threading.local()  # .rank of a thread


class Server:
    """The ranks' common clock, arrivals and collective."""

    def __init__(self, case):
        self.load, self.max_steps = Load(case["requests"]), case["max_steps"]
        self.ranks = [Rank(self, number, case) for number in range(case["ranks"])]
        self.turn, self.gather = (threading.Barrier(len(self.ranks), action) for action in (self.begin, self.join))
        self.num_given, self.rank_of, self.rows = 0, {}, [None] * len(self.ranks)
        self.is_over, self.failure, self.crashed = False, None, False

    def begin(self):
        """A turn of all loops begins: whoever has come by now is given to the ranks in turn."""
        try:
            self._begin()
        except BaseException as failure:
            self.failure, self.is_over = failure, True

    def _begin(self):
        for rank in self.ranks:
            self.load.now_s = rank.load.now_s
            self.load.follow_up([row for row in rank.load.finished if not self.load.has_ended(row)])
            rank.load.finished = []
        self.load.now_s = max(rank.load.now_s for rank in self.ranks)
        is_idle = all(rank.is_idle for rank in self.ranks)
        given = self._give()
        while is_idle and not given:
            if not self.load.wait():
                self.is_over = True
                return
            given = self._give()
        self.is_over = sum(len(rank.records) for rank in self.ranks) >= self.max_steps * len(self.ranks)
        for rank in self.ranks:
            rank.load.now_s, rank.is_idle = self.load.now_s, False

    def _give(self):
        given = False
        for arrival_s, row in self.load.due():
            if row not in self.rank_of:
                self.rank_of[row] = self.num_given % len(self.ranks)
                self.num_given += 1
            self.ranks[self.rank_of[row]].load.inbox.append((arrival_s, row))
            given = True
        return given

    def exchange(self, rows, local_row, group):
        """SGLang's `exchange_sync_rows`."""
        self.rows[own.rank] = local_row
        self.gather.wait()
        rows.copy_(self.joined)

    def join(self):
        self.joined = torch.cat(self.rows)

    def run(self):
        dp_attn.exchange_sync_rows = self.exchange
        dp_attn.world_dp_gather_enabled = lambda: False
        dp_attn.require_mlp_tp_gather = lambda **_: True
        parallel = SimpleNamespace(
            num_dp_ranks=len(self.ranks), attn_tp_size=1, attn_cp_size=1, dwdp_size=1, tp_group=TP_GROUP
        )
        dp_attn.get_parallel = lambda: parallel
        threads = [threading.Thread(target=rank.run) for rank in self.ranks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failure is not None:
            raise self.failure
        return [record | {"rank": number} for number, rank in enumerate(self.ranks) for record in rank.records]


class RankLoad:
    """What a rank's loop sees of the load, by its own clock."""

    def __init__(self, load):
        self.now_s, self.inbox, self.finished, self.has_ended = 0.0, [], [], load.has_ended

    def due(self):
        given, self.inbox = self.inbox, []
        return given

    def follow_up(self, rows):
        self.finished += rows


class Rank(Loop):
    """One of the schedulers."""

    def __init__(self, server, number, case):
        super().__init__(case)
        self.server, self.number, self.load, self.is_idle = server, number, RankLoad(server.load), False
        self.require_mlp_sync = self.attn_dp_enabled = True
        self.dp_attn_adapter = dp_attn.SchedulerDPAttnAdapter(
            model_runner=SimpleNamespace(
                prefill_cuda_graph_runner=None, spec_algorithm=self.spec_algorithm, model_config=self.model_config
            ),
            req_to_token_pool=self.req_to_token_pool,
            token_to_kv_pool_allocator=self.token_to_kv_pool_allocator,
            tree_cache=self.tree_cache,
            offload_tags=set(),
            model_config=self.model_config,
            enable_overlap=self.enable_overlap,
            spec_algorithm=self.spec_algorithm,
            get_require_mlp_sync=lambda: True,
        )

    def ingest_requests(self, stop_at_pause=False):
        self.server.turn.wait()
        if self.server.is_over:
            raise SystemExit
        super().ingest_requests(stop_at_pause)

    def on_idle(self):
        self.is_idle = True
        if self.is_fully_idle():
            self.new_token_ratio_tracker.reset()

    def get_next_batch_to_run(self, running_batch, last_batch):
        plan = super().get_next_batch_to_run(running_batch, last_batch)
        self.gracefully_exit = False  # the ranks end together
        return plan

    def run(self):
        own.rank = self.number
        try:
            self.event_loop_overlap() if self.enable_overlap else self.event_loop_normal()
        except (SystemExit, threading.BrokenBarrierError):
            pass
        except BaseException as failure:
            if ends_the_server(failure):
                self.server.crashed = True
            else:
                self.server.failure = failure
            self.server.turn.abort()
            self.server.gather.abort()


def run(case):
    """Every rank's records, one rank after the other; whether SGLang itself gave up for want of memory."""
    with overridden(case["engine"]):
        server = Server(case)
        return server.run(), server.crashed


if __name__ == "__main__":
    print_cases(run)
