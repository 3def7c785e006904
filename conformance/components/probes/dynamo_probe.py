"""Let NVIDIA Dynamo's KV router choose, in an interpreter that has ai-dynamo-runtime, pyzmq and msgpack.

usage: python dynamo_probe.py CASE.json > CHOICES.json

Its selection service is the compiled router without the servers around it. Engines tell it of their blocks over ZMQ, as
vLLM does; requests are booked on the engines that the case says. Of each choice: the engine, and every engine's tokens
of prefill and blocks of prompts if it got the request.
"""

import asyncio
import json
import os
import sys
import time

import msgpack
import zmq

MODEL, WAIT_S = "model", 20


class Engines:
    """What engines tell of the blocks they have stored."""

    def __init__(self, count):
        context = zmq.Context.instance()
        self.sockets = [context.socket(zmq.PUB) for _ in range(count)]
        self.ports = [socket.bind_to_random_port("tcp://127.0.0.1") for socket in self.sockets]
        self.sent = [0] * count

    def store(self, engine, parent, hashes, tokens, block_size):
        event = ["BlockStored", hashes, parent, tokens, block_size, None]
        batch = msgpack.packb([time.time(), [event], 0])
        self.sockets[engine].send_multipart([b"", self.sent[engine].to_bytes(8, "big"), batch])
        self.sent[engine] += 1


async def heard(service, engine, tokens, num_blocks):
    """Wait until the router knows of an engine's blocks."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        scores = await service.overlap_scores({"model_name": MODEL, "token_ids": tokens})
        if {each["worker_id"]: each["device_blocks"] for each in scores["workers"]}[engine] >= num_blocks:
            return
        await asyncio.sleep(0.0005)
    sys.exit(f"engine {engine}'s blocks were not heard of within {WAIT_S} s")


async def choices(case):
    from dynamo.llm import SelectionService  # noqa: PLC0415  reads the environment

    service, engines, block_size = SelectionService(), Engines(case["engines"]), case["block_size"]
    for engine, port in enumerate(engines.ports):
        address = {"endpoint": f"http://127.0.0.1:{port}", "kv_events_endpoint": f"tcp://127.0.0.1:{port}"}
        await service.upsert_worker({"worker_id": engine, "model_name": MODEL, "block_size": block_size} | address)
    await asyncio.sleep(1)  # subscribers connect
    found, prompts = [], {}
    for row, request in enumerate(case["requests"]):
        for other in request["prefilled"]:
            await service.prefill_complete(str(other))
        for other in request["ended"]:
            await service.free_reservation(str(other))
        for engine, other, hashes in request["stored"]:
            tokens = prompts[other][: len(hashes) * block_size]
            engines.store(engine, None, hashes, tokens, block_size)
            await heard(service, engine, tokens, len(hashes))
        prompt = prompts[row] = request["tokens"]
        asked = {"model_name": MODEL, "token_ids": prompt}
        chosen = await service.select(asked)
        loads = {each["worker_id"]: each for each in await service.potential_loads(asked)}
        found.append(
            {
                "engine": chosen["worker_id"],
                "prefill_tokens": [loads[engine]["potential_prefill_tokens"] for engine in range(case["engines"])],
                "active_requests": [loads[engine]["active_requests"] for engine in range(case["engines"])],
                "blocks": [loads[engine]["potential_decode_blocks"] for engine in range(case["engines"])],
            }
        )
        booked = await service.select_and_reserve(
            asked | {"selection_id": str(row), "allowed_worker_ids": [request["chosen"]]}
        )
        assert booked["worker_id"] == request["chosen"]
    service.shutdown()
    return found


def main():
    with open(sys.argv[1]) as file:
        case = json.load(file)
    os.environ.update({"DYN_LOG": "error"} | case["environment"])
    print(json.dumps(asyncio.run(choices(case))))


if __name__ == "__main__":
    main()
