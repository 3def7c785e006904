"""The endpoint beside `headcount simulate`, on the same arrivals: `python -m validation.endpoint`.

Starts `headcount emulate`, sends requests as a Poisson process and 500 at once, and simulates the times at which they
were sent. The client is small, so that it takes little of the machine. Both need a core of their own.
"""

import asyncio
import gc
import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from urllib.request import urlopen

import numpy as np

from simulator.deployment import resolve
from simulator.results import request_times
from simulator.simulation import Simulation
from validation.markdown import table
from workloads.requests import independent_requests

MODEL, GPU, PORT = "llama-3.1-8b", "h100-sxm", 8179
PROMPT_TOKENS = 512
TEXT = re.compile(rb'"text":"([^"]*)"')


@dataclass
class Sent:
    """One request, on the client's clock."""

    at_s: float
    token_s: list[float] = field(default_factory=list)

    @property
    def tpot_s(self) -> float:
        return (self.token_s[-1] - self.token_s[0]) / (len(self.token_s) - 1)


async def send(at_s: float, body: bytes) -> Sent:
    """Send at a time of the loop. A word of four characters is a token; a late chunk holds several."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(at_s - loop.time())
    sent = Sent(loop.time())
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close"
    writer.write(f"{head}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    data = b""
    while more := await reader.read(65536):
        whole, found, data = (data + more).rpartition(b"\n")  # a read may end within a line
        sent.token_s += [loop.time()] * (sum(map(len, TEXT.findall(whole + found))) // 4)
    writer.close()
    return sent


async def load(arrivals_s: np.ndarray, output_tokens: int) -> list[Sent]:
    gc.collect()
    gc.freeze()  # a client that looks through its memory measures its own pause
    rng, start_s = np.random.default_rng(1), asyncio.get_running_loop().time() + 0.5
    asked = {"max_tokens": output_tokens, "ignore_eos": True, "stream": True}
    bodies = [
        json.dumps({**asked, "prompt": rng.integers(0, 100_000, PROMPT_TOKENS).tolist()}).encode() for _ in arrivals_s
    ]
    return await asyncio.gather(*map(send, (start_s + arrivals_s).tolist(), bodies))


def compared(sent: list[Sent], output_tokens: int) -> list[tuple[str, str, str]]:
    """Mean latencies of the endpoint's client and of a simulation of the same arrivals, in ms."""
    at_s = np.sort([each.at_s for each in sent])
    requests = independent_requests(
        arrival_s=at_s - at_s[0],
        prompt_tokens=np.full(len(sent), PROMPT_TOKENS),
        output_tokens=np.full(len(sent), output_tokens),
    )
    simulation = Simulation(resolve(MODEL, GPU).fleet(1, "least-outstanding"), requests)
    simulation.run()
    times = request_times(simulation.requests)
    ttft_s = [each.token_s[0] - each.at_s for each in sent]
    rows = (("TTFT", ttft_s, times.ttft_s), ("TPOT", [each.tpot_s for each in sent], times.tpot_s))
    return [(name, f"{1e3 * np.mean(ours):.1f}", f"{1e3 * np.mean(theirs):.1f}") for name, ours, theirs in rows]


def serve() -> subprocess.Popen[str]:
    """A server that is ready."""
    command = [sys.executable, "-m", "headcount", "emulate", "--model", MODEL, "--gpu", GPU, "--port", str(PORT)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    server.stdout.readline()
    time.sleep(1)
    return server


def delays() -> str:
    """What the endpoint says of itself."""
    text = urlopen(f"http://127.0.0.1:{PORT}/metrics").read().decode()
    found = re.findall(r'added_delay_seconds{quantile="([\d.]+)"} (\S+)', text)
    return ", ".join(f"p{100 * float(share):.0f} {1e3 * float(value):.1f} ms" for share, value in found)


def main() -> None:
    poisson = np.cumsum(np.random.default_rng(0).exponential(1 / 50, 500))
    rows = []
    for what, arrivals_s, output_tokens in (("50 requests/s", poisson, 64), ("500 at once", np.zeros(500), 64)):
        server = serve()
        try:
            sent = asyncio.run(load(arrivals_s, output_tokens))
            assert all(len(each.token_s) == output_tokens for each in sent), "a token is missing"
            rows += [(what, *row, delays()) for row in compared(sent, output_tokens)]
        finally:
            server.terminate()
            server.wait()
    print(table(("load", "", "endpoint, ms", "simulate, ms", "added delay"), rows))


if __name__ == "__main__":
    main()
