"""Drives vLLM's own data-parallel engine cores in step; run by an interpreter that has vLLM.

usage: python lockstep_probe.py CASES.jsonl > STEPS.jsonl

Each rank runs vLLM's own busy loop (`DPEngineCoreProc.run_busy_loop`) over its own scheduler. What stands for the
GPUs' collectives: no rank begins its next turn of the loop before all have ended this one, and steps of one turn end
together. An empty batch takes no time.
"""

import queue
import threading
from types import SimpleNamespace

from engine_loop import Load
from scheduler_probe import Core, Engine, Step, print_cases
from vllm.v1.engine.core import DPEngineCoreProc


class Server:
    """The ranks' common clock, arrivals, and what they tell each other."""

    def __init__(self, folder, case):
        self.load, self.step_s, self.max_steps = Load(case["requests"]), case["step_s"], case["max_steps"]
        self.engines = [Engine(folder, case) for _ in range(case["ranks"])]
        self.ranks = [Rank(self, number, engine, case) for number, engine in enumerate(self.engines)]
        self.turn, self.sync = (threading.Barrier(len(self.ranks), action) for action in (self.begin, self.agree))
        self.last_end_s, self.end_s, self.num_given, self.is_over, self.failure = 0.0, None, 0, False, None
        self.num_scheduled = -1

    def begin(self):
        """All ranks have ended their turn: requests arrive, and the next one begins."""
        try:
            self._begin()
        except BaseException as failure:
            self.failure, self.is_over = failure, True

    def _begin(self):
        for rank in self.ranks:
            self.load.now_s = rank.now_s
            self.load.follow_up(rank.take_finished())
        self.load.now_s = max(rank.now_s for rank in self.ranks)
        num_scheduled = sum(len(rank.records) for rank in self.ranks)
        is_busy = any(rank.executor.in_flight for rank in self.ranks)
        is_idle = not any(rank.scheduler.has_requests() or rank.batch_queue for rank in self.ranks)
        is_stuck = not is_busy and not any(rank.has_decided for rank in self.ranks)
        given = self._give()
        while (is_idle or is_stuck) and not given:
            if not self.load.wait():
                self.is_over = True
                return
            given = self._give()
        self.is_over = num_scheduled >= len(self.ranks) * self.max_steps
        self.end_s = None
        for rank in self.ranks:
            rank.now_s, rank.has_decided = self.load.now_s, False

    def _give(self):
        """To the ranks in turn; the coordinator has all of them go on then."""
        given = False
        for arrival_s, row in self.load.due():
            self.engines[self.num_given % len(self.engines)].add(row, arrival_s)
            self.num_given, given = self.num_given + 1, True
        if given:
            for rank in self.ranks:
                rank.engines_running = True
        return given

    def step_end_s(self):
        """Of the step that ranks take in this turn."""
        if self.end_s is None:
            self.end_s = self.last_end_s = max(self.last_end_s, self.load.now_s) + self.step_s
        return self.end_s

    def agree(self):
        self.has_unfinished = any(rank.has_unfinished for rank in self.ranks)

    def all_reduce(self, rank, has_unfinished):
        rank.has_unfinished = has_unfinished
        self.sync.wait()
        return self.has_unfinished, False


class Executor:
    """Stands for a rank's workers."""

    is_sleeping = False

    def __init__(self, rank, engine):
        self.rank, self.engine, self.in_flight = rank, engine, []
        self.aborts_queue = queue.Queue()

    def execute_model(self, output, non_block=False):
        last_s = self.in_flight[-1].end_s if self.in_flight else self.rank.now_s
        end_s = self.rank.server.step_end_s() if output.num_scheduled_tokens else last_s
        self.rank.has_decided |= bool(output.num_scheduled_tokens or output.preempted_req_ids)
        self.latest = Step(output, self.engine.scheduler, end_s)
        if output.num_scheduled_tokens:
            self.in_flight.append(self.latest)
        return Output(self, self.latest)

    def sample_tokens(self, grammar_output, non_block=False):
        return Output(self, self.latest)

    def take_draft_token_ids(self):
        return self.engine.drafts(self.latest.names)

    def execute_dummy_batch(self):
        pass


class Output:
    """A step's output, which is there when the step ends."""

    def __init__(self, executor, step):
        self.executor, self.step = executor, step

    def result(self):
        executor = self.executor
        if self.step in executor.in_flight:
            executor.in_flight.remove(self.step)
            executor.rank.has_decided = True
        executor.rank.now_s = max(executor.rank.now_s, self.step.end_s)
        executor.latest = self.step
        return executor.engine.model_output(self.step)


class Rank(Core, DPEngineCoreProc):
    """One of vLLM's engine cores, without the processes around it."""

    def __init__(self, server, number, engine, case):
        executor = Executor(self, engine)
        Core.__init__(self, engine, executor)
        self.server, self.executor, self.engine_index, self.dp_rank = server, executor, number, number
        self.records, self._num_told = engine.recorder.records, {}
        self.now_s, self.has_decided, self.has_unfinished = 0.0, False, False
        self.prefill_schedule_interval = case["engine"]["prefill_schedule_interval"]
        self.dp_sync_interval, self.dp_group = 1, None
        self.step_counter = self.current_wave = 0
        self.pending_pause = self.ignore_start_dp_wave = self.engines_running = False
        self.eep_scaling_state, self.output_queue = None, queue.Queue()
        self.has_coordinator, self.publish_dp_lb_stats = True, False
        parallel = SimpleNamespace(
            sync_dp_state=lambda _, has_unfinished, pending_pause: server.all_reduce(self, has_unfinished)
        )
        self._parallel = parallel

    def take_finished(self):
        """Those that have finished since it was asked last."""
        finished = []
        for number in range(max(len(self.records) - 3, 0), len(self.records)):
            rows = self.records[number]["finished"]
            finished += rows[self._num_told.get(number, 0) :]
            self._num_told[number] = len(rows)
        return finished

    def _handle_shutdown(self):
        return not self.server.is_over

    def _process_input_queue(self):
        self.server.turn.wait()
        if self.server.is_over:
            raise SystemExit

    def _process_engine_step(self):
        """vLLM's, without its watchdog and its rest."""
        _, executed = self.step_fn()
        self.post_step(executed)
        return executed

    def _has_global_unfinished_reqs(self, local_unfinished):
        config, self.vllm_config = self.vllm_config, SimpleNamespace(parallel_config=self._parallel)
        try:
            return super()._has_global_unfinished_reqs(local_unfinished)
        finally:
            self.vllm_config = config

    def run(self):
        try:
            self.run_busy_loop()
        except SystemExit:
            pass
        except BaseException as failure:
            self.server.failure = failure
            self.server.turn.abort()
            self.server.sync.abort()


def records_of(folder, case):
    """Every rank's records, one rank after the other."""
    server = Server(folder, case)
    threads = [threading.Thread(target=rank.run) for rank in server.ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if server.failure is not None:
        raise server.failure
    return [record | {"rank": rank.dp_rank} for rank in server.ranks for record in rank.records]


if __name__ == "__main__":
    print_cases(records_of)
