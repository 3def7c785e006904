"""Drives vLLM's own schedulers with a NIXL connector, some that prefill and some that decode, through given cases.

usage: python nixl_probe.py CASES.jsonl > STEPS.jsonl

As `scheduler_probe`, with the connector's scheduler side on every engine; it needs no `nixl`. What stands for its
worker side carries blocks over a network that takes as long as the case says: where decode engines pull
(`NixlConnector`), and where prefill engines push (`NixlPushConnector`). Sets that vLLM goes through in no fixed order
are put in order: by request. The records of a case come engine by engine, each followed by one with `"engine"`.
"""

import json
import sys
import tempfile

import scheduler_probe
import vllm
from disaggregation_loop import BusyLoop, DisaggregatedDeployment
from engine_loop import POLL_S, Load, Pipeline, name_of, row_of, token_of
from vllm.config import KVTransferConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import Request


class Engine(scheduler_probe.Engine):
    """vLLM's scheduler with a `kv_role`."""

    def __init__(self, model_folder, case):
        super().__init__(model_folder, case | {"engine": case["engine"] | {"pushes": case["pushes"]}})
        self.hasher = get_request_block_hasher(case["engine"]["block_size"], sha256)
        self.connector = self.scheduler.connector.connector_scheduler
        assert type(self.connector).__name__ == f"Nixl{'Push' if case['pushes'] else 'Pull'}ConnectorScheduler"
        self.identity = {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_engine_id": self.connector.engine_id,
            "remote_host": self.connector.side_channel_host,
            "remote_port": self.connector.side_channel_port,
            "tp_size": 1,
        }
        self.offered = {}  # what a prefill engine tells of the KV that it keeps, by row
        update = self.scheduler.update_from_output

        def update_and_listen(*arguments, **options):
            outputs = update(*arguments, **options)
            for group in outputs.values():
                for item in group.outputs:
                    if item.kv_transfer_params is not None:
                        self.offered[row_of(item.request_id)] = item.kv_transfer_params
            return outputs

        self.scheduler.update_from_output = update_and_listen

    def _config(self, model_folder, engine):
        config = super()._config(model_folder, engine)
        connector = "NixlPushConnector" if engine["pushes"] else "NixlConnector"
        config.kv_transfer_config = KVTransferConfig(kv_connector=connector, kv_role=engine["kv_role"])
        return config

    def add(self, row, arrival_s, max_tokens, kv_transfer_params):
        request = self.requests[row]
        parameters = SamplingParams(
            max_tokens=max_tokens,
            ignore_eos=True,
            temperature=0.0,
            extra_args={"kv_transfer_params": kv_transfer_params},
        )
        prompt = [token_of(request, position) for position in range(request["prompt_tokens"])]
        self.scheduler.add_request(
            Request(name_of(row), prompt, parameters, None, arrival_time=arrival_s, block_hasher=self.hasher)
        )


class Reads:
    """Stands for the network and the workers' NIXL agents: knows when each read is over, and who was told."""

    def __init__(self, engines):
        self.engines = engines
        self.reads_until_s = [0.0] * len(engines)
        self.is_read_until_s = [0.0] * len(engines)
        self.received_s = [{} for _ in engines]  # by row
        self.let_go_s = [{} for _ in engines]
        self.sources = {}  # by row

    def hold(self, engine, row, until_s):
        self.sources[row] = engine
        self.let_go_s[engine][row] = until_s

    def expect(self, row):
        self._release(row, float("inf"))

    def _release(self, row, time_s):
        """A prefill engine that still keeps the row's blocks can let them go then."""
        if row in self.let_go_s[self.sources[row]]:
            self.let_go_s[self.sources[row]][row] = time_s

    def read(self, target, row, num_blocks, now_s):
        source = self.sources[row]
        start_s = max(now_s, self.is_read_until_s[source], self.reads_until_s[target])
        block_s = self.engines[target]["post_s"] + self._slower("block_s", source, target)
        end_s = start_s + (self._slower("transfer_s", source, target) + num_blocks * block_s)
        self.is_read_until_s[source] = self.reads_until_s[target] = end_s
        self.received_s[target][row] = end_s
        self._release(row, end_s)

    def notify(self, target, row, now_s):
        self._release(row, now_s + self._slower("transfer_s", self.sources[row], target))

    def _slower(self, name, source, target):
        return max(self.engines[source][name], self.engines[target][name])

    def take(self, engine, now_s):
        """Rows received and released by now."""
        taken = []
        for times in (self.received_s[engine], self.let_go_s[engine]):
            over = sorted(row for row, end_s in times.items() if end_s <= now_s)
            for row in over:
                del times[row]
            taken.append([name_of(row) for row in over])
        return taken

    def next_s(self, engine):
        times = [*self.received_s[engine].values(), *self.let_go_s[engine].values()]
        return min(times, default=float("inf"))


class Writes(Reads):
    """The same where prefill engines push: they write what they have computed once they are asked for it."""

    def __init__(self, engines):
        super().__init__(engines)
        self.targets, self.asked, self.offered = {}, {}, set()  # by row
        self.lost = [set() for _ in engines]  # rows that wait for what never comes
        self.last_look_s = [float("-inf")] * len(engines)

    def send(self, row, source, target):
        self.sources[row], self.targets[row] = source, target

    def hold(self, engine, row, until_s):
        self.let_go_s[engine][row] = until_s

    def leave(self, row):
        if row in self.asked and row not in self.let_go_s[self.sources[row]]:
            self.lost[self.targets[row]].add(row)

    def ask(self, target, row, num_blocks, now_s):
        source = self.sources[row]
        heard_s = now_s + self._slower("transfer_s", source, target)
        self.asked[row] = num_blocks, heard_s
        if row in self.offered:
            if row in self.let_go_s[source] and heard_s < self.let_go_s[source][row]:
                self.write(row, heard_s)
            else:
                self.lost[target].add(row)

    def offer(self, row, now_s):
        self.offered.add(row)
        if row in self.asked:
            self.write(row, now_s)

    def write(self, row, now_s):
        source, target = self.sources[row], self.targets[row]
        num_blocks, heard_s = self.asked.pop(row)
        start_s = max(now_s, heard_s, self.is_read_until_s[source], self.reads_until_s[target])
        block_s = self.engines[source]["post_s"] + self._slower("block_s", source, target)
        end_s = start_s + (self._slower("transfer_s", source, target) + num_blocks * block_s)
        self.is_read_until_s[source] = self.reads_until_s[target] = self.received_s[target][row] = end_s
        self.let_go_s[source][row] = min(self.let_go_s[source][row], end_s)

    def take(self, engine, now_s, asks):
        """A message is read in the background after a step, or with one that sends some; a write from here is seen."""
        received_by_s = now_s if asks else self.last_look_s[engine]
        self.last_look_s[engine] = now_s
        taken = []
        for times, until_s in ((self.received_s[engine], received_by_s), (self.let_go_s[engine], now_s)):
            over = sorted(row for row, end_s in times.items() if end_s <= until_s)
            for row in over:
                del times[row]
            taken.append([name_of(row) for row in over])
        return taken


class Executor(scheduler_probe.Executor):
    """Calls what stands for the connector's worker side as vLLM's model runner does; sleeps while a step runs."""

    def __init__(self, engine, load, pipeline, reads, loop):
        super().__init__(engine, load, pipeline)
        self.number, self.reads, self.loop = loop.number, reads, loop

    def execute_model(self, output, non_block=False):
        now_s = self.load.now_s
        last_s = self.in_flight[-1].end_s if self.in_flight else now_s
        end_s = self.pipeline.end_s(now_s) if output.num_scheduled_tokens else max(now_s, last_s)
        self.latest = scheduler_probe.Step(output, self.engine.scheduler, end_s)
        if output.num_scheduled_tokens:
            self.in_flight.append(self.latest)
        carry = self._push if isinstance(self.reads, Writes) else self._pull
        received, released = carry(output.kv_connector_metadata, now_s)
        self.latest.connector_output = KVConnectorOutput(finished_recving=received, finished_sending=released)
        return scheduler_probe.Future(self, self.latest)

    def _pull(self, metadata, now_s):
        for name, meta in metadata.reqs_to_recv.items():
            row = row_of(name)
            assert meta.remote.request_id == name
            if meta.awaiting_kvs:
                self.reads.read(self.number, row, sum(map(len, meta.local_block_ids)), now_s)
            else:
                assert not any(meta.local_block_ids)
                self.reads.notify(self.number, row, now_s)
        return self.reads.take(self.number, now_s)

    def _push(self, metadata, now_s):
        for name, asked in metadata.push_registrations.items():
            assert metadata.reqs_to_recv[name].local_block_ids == asked["local_block_ids"]
            self.reads.ask(self.number, row_of(name), sum(map(len, asked["local_block_ids"])), now_s)
        for name, blocks in metadata.push_finished_blocks.items():
            assert name in metadata.reqs_to_send and blocks[0]
            self.reads.offer(row_of(name), now_s)
        return self.reads.take(self.number, now_s, bool(metadata.push_registrations))

    def finish(self, step):
        if step in self.in_flight or step.end_s > self.load.now_s:
            self.loop.sleep_in_step(step.end_s)
        if step in self.in_flight:
            self.in_flight.remove(step)
        self.latest = step
        output = self.engine.model_output(step)
        output.kv_connector_output = step.connector_output
        return output


class Core(scheduler_probe.SteppedCore):
    """vLLM's engine core, as a `BusyLoop` steps it."""

    def __init__(self, folder, case, loop, load, reads):
        settings = case["engines"][loop.number]
        engine = Engine(folder, case | {"engine": settings})
        super().__init__(engine, Executor(engine, load, Pipeline(settings["step_s"], 1), reads, loop))
        self.number, self.load, self.reads, self.loop = loop.number, load, reads, loop
        self.num_begun = 0
        update_state = self.engine.connector.update_state_after_alloc

        def count(request, blocks, num_external_tokens):
            self.num_begun += num_external_tokens > 0
            return update_state(request, blocks, num_external_tokens)

        self.engine.connector.update_state_after_alloc = count

    def enter(self, row, arrival_s):
        self.engine.add(row, arrival_s, 1, {"do_remote_decode": True, "do_remote_prefill": False})

    def enter_prefilled(self, row, arrival_s, source):
        if isinstance(self.reads, Writes):
            offered = source.engine.identity | {"remote_request_id": name_of(row)}
        else:
            offered = source.engine.offered[row]
            assert offered["do_remote_prefill"] and offered["transfer_mode"] == "pull"
        self.engine.add(row, arrival_s, self.engine.requests[row]["output_tokens"], offered)

    def abort(self, row):
        if self.loop.is_in_step:  # vLLM takes it out before it reads the step's output
            self.aborts_queue.put([name_of(row)])
        else:
            self.abort_requests([name_of(row)])

    @property
    def has_transfers(self):
        loading = sum(
            request.status.name == "WAITING_FOR_REMOTE_KVS" and name not in self.scheduler.finished_recving_kv_req_ids
            for name, request in self.scheduler.requests.items()
        )
        lost = len(self.reads.lost[self.number]) if isinstance(self.reads, Writes) else 0
        return self._num_kept + loading > lost

    @property
    def _num_kept(self):
        """Requests that have ended, and whose blocks are kept."""
        return len(self.scheduler.requests) - self.scheduler.get_num_unfinished_requests()

    @property
    def has_news(self):
        is_over = self.reads.next_s(self.number) <= self.load.now_s
        told = [future.step.connector_output for future, *_ in self.batch_queue or ()]
        is_told = any(output.finished_sending or output.finished_recving for output in told)
        return bool(is_over or is_told or self.executor.in_flight or self.scheduler.finished_req_ids)

    @property
    def next_transfer_s(self):
        return self.reads.next_s(self.number)


def run_case(folder, case):
    """The records of each engine."""
    load = Load(case["requests"])
    reads = (Writes if case["pushes"] else Reads)(case["engines"])
    loops = [
        BusyLoop(number, lambda loop: Core(folder, case, loop, load, reads), load, POLL_S)
        for number in range(len(case["engines"]))
    ]
    return DisaggregatedDeployment(load, loops, reads, case).run(case["max_steps"])


def main():
    with tempfile.TemporaryDirectory() as folder, open(sys.argv[1]) as cases:
        with open(f"{folder}/config.json", "w") as file:
            json.dump(scheduler_probe.TINY_MODEL, file)
        print(json.dumps({"vllm_version": vllm.__version__}), flush=True)
        for number, line in enumerate(cases):
            for engine, records in enumerate(run_case(folder, json.loads(line))):
                for record in records:
                    print(json.dumps(record))
                print(json.dumps({"engine": engine}))
            print(json.dumps({"case": number}), flush=True)


if __name__ == "__main__":
    main()
