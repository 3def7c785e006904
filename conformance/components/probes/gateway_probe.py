"""Let the gateway of SGLang or vLLM choose, in an interpreter that has sglang-router or vllm-router.

usage: python gateway_probe.py CASE.json > CHOICES.json

The real server runs in a process of its own, before workers that answer a request when the case says so. Its workers
are numbered in the order in which it takes them while nothing is known.
"""

import asyncio
import json
import socket
import subprocess
import sys

HOST, START_S = "127.0.0.1", 60
LAUNCH = """
import json, sys
package, given = json.load(sys.stdin)
if package == "sglang":
    from sglang_router.sglang_router_rs import PolicyType, Router
else:
    from vllm_router_rs import PolicyType, Router
Router(policy=PolicyType.CacheAware, **given).start()
"""
SETTINGS = {
    "host": HOST, "prometheus_host": HOST, "worker_startup_check_interval": 1, "health_check_interval_secs": 3600,
    "disable_retries": True, "disable_circuit_breaker": True, "max_concurrent_requests": 32768, "log_level": "error",
}  # fmt: skip


class Workers:
    """HTTP servers that say which of them a request came to, and hold it until it may end."""

    def __init__(self):
        self.arrived = asyncio.Queue()
        self.may_end = {}

    async def start(self, count):
        self.servers = [await asyncio.start_server(self._serving(worker), HOST, 0) for worker in range(count)]
        return [f"http://{HOST}:{server.sockets[0].getsockname()[1]}" for server in self.servers]

    def _serving(self, worker):
        async def serve(reader, writer):
            try:
                while True:
                    await self._answer(worker, reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError, IndexError):  # IndexError: it tries HTTP/2
                writer.close()

        return serve

    async def _answer(self, worker, reader, writer):
        path, body = await message(reader)
        answer = {"model_path": "model"}
        if path == "/v1/completions":
            row = body["seed"]
            self.arrived.put_nowait((row, worker))
            await self.may_end.setdefault(row, asyncio.Event()).wait()
        if path == "/v1/completions/render":  # vLLM's gateway asks for tokens: one for 4 characters
            answer = [{"token_ids": [ord(character) for character in body["prompt"][::4]]}]
        content = json.dumps(answer).encode()
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        await writer.drain()


async def message(reader):
    """A request's path and body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    lengths = [line.split(":")[1] for line in head if line.lower().startswith("content-length:")]
    body = await reader.readexactly(int(lengths[0])) if lengths else b""
    return head[0].split()[1], json.loads(body) if body else {}


class Gateway:
    """The real router's process."""

    def __init__(self, case, urls):
        self.port = free_port()
        settings = SETTINGS | case["parameters"] | {"worker_urls": urls, "port": self.port}
        settings["prometheus_port"] = free_port()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, "-c", LAUNCH], text=True, **pipes)
        with self.process.stdin as given:
            json.dump([case["package"], settings], given)

    async def ask(self, path, body=None):
        reader, writer = await asyncio.open_connection(HOST, self.port)
        content = b"" if body is None else json.dumps(body).encode()
        method = "GET" if body is None else "POST"
        head = f"{method} {path} HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        answer = await reader.read()
        writer.close()
        status, _, rest = answer.partition(b"\r\n")
        if status.split()[1] != b"200":
            raise ConnectionError(f"{path}: {answer[-300:]!r}")
        return rest.partition(b"\r\n\r\n")[2]

    async def wait_for(self, count):
        for _ in range(10 * START_S):
            await asyncio.sleep(0.1)
            try:
                if json.loads(await self.ask("/readiness"))["healthy_workers"] == count:
                    return
            except OSError:
                if self.process.poll() is not None:
                    break
        self.process.kill()
        sys.exit(f"the gateway did not start:\n{self.process.stderr.read()[-2000:]}")


def free_port():
    with socket.socket() as found:
        found.bind((HOST, 0))
        return found.getsockname()[1]


async def choices(case):
    workers = Workers()
    gateway = Gateway(case, await workers.start(case["engines"]))
    answers = {}

    async def send(row, prompt):
        body = {"model": "model", "prompt": prompt, "seed": row}
        answers[row] = asyncio.create_task(gateway.ask("/v1/completions", body))
        arrival = asyncio.create_task(workers.arrived.get())
        await asyncio.wait({answers[row], arrival}, return_when=asyncio.FIRST_COMPLETED)
        if not arrival.done():
            await answers[row]  # raises why it came to no worker
        return arrival.result()[1]

    async def end(row):
        workers.may_end[row].set()
        await answers.pop(row)
        del workers.may_end[row]

    try:
        await gateway.wait_for(case["engines"])
        order = [await send(-1 - place, f"{place} is its place") for place in range(case["engines"])]
        for place in range(case["engines"]):
            await end(-1 - place)
        found = []
        for row, prompt, ended in case["requests"]:
            for other in ended:
                await end(other)
            found.append(order.index(await send(row, prompt)))
        return found
    finally:
        gateway.process.kill()
        gateway.process.wait()


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        print(json.dumps(asyncio.run(choices(json.load(file)))))
