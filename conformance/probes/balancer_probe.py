"""What vLLM's own balancer of data-parallel engines chooses. Run by an interpreter that has vLLM."""

import asyncio
import json
import sys
from collections import Counter
from types import SimpleNamespace

import vllm
from vllm.v1.engine.core_client import DPLBAsyncMPClient


class Client:
    """One API server's client, without the processes behind it."""

    def __init__(self, case):
        self.client = object.__new__(DPLBAsyncMPClient)
        self.client.client_count = 1
        self.client.reqs_in_flight = {}
        self.client.streaming_reqs = set()
        self.client.engine_inflight = Counter()
        self.client.core_engines = [number.to_bytes(2, "little") for number in range(case["num_engines"])]
        self.client.eng_start_index = 0
        self.report([[0, 0, 0.0]] * case["num_engines"])
        self.num_sent = 0

    def report(self, counts):
        self.client.lb_engines = [list(each) for each in counts]

    def end(self, request):
        ended = SimpleNamespace(finished_requests={str(request)})
        asyncio.run(DPLBAsyncMPClient.process_engine_outputs(self.client, ended))

    def send(self):
        request = SimpleNamespace(
            request_id=str(self.num_sent), data_parallel_rank=None, pooling_params=None, resumable=False
        )
        self.num_sent += 1
        return int.from_bytes(self.client.get_core_engine_for_request(request), "little")

    def chosen(self, operations):
        found = []
        for operation in operations:
            if "report" in operation:
                self.report(operation["report"])
            elif "end" in operation:
                self.end(operation["end"])
            else:
                found.append(self.send())
        return found


def main():
    print(json.dumps({"vllm_version": vllm.__version__}), flush=True)
    with open(sys.argv[1]) as cases:
        for line in cases:
            case = json.loads(line)
            answer = {"name": case["name"], "chosen": Client(case).chosen(case["operations"])}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
