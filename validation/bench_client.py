"""Other projects' benchmark clients against the endpoint: `python -m validation.bench_client [--client guidellm]`.

`vllm bench serve`, `sglang.bench_serving` or GuideLLM sends 500 prompts of 512 tokens at 50 per second and asks for 64
tokens, three times to the endpoint and three times to a server that does nothing but answer at fixed times. What the
client reports of that server beyond those times is the client's own; the endpoint is compared with `headcount simulate`
on the same arrivals. `--engine sglang` starts the endpoint as SGLang's server.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.request import urlopen

import numpy as np

from calibrate.interpreters.interpreters import interpreter_for
from calibrate.interpreters.recipe import SGLANG, VLLM
from simulator.deployment import resolve
from simulator.results import request_times
from simulator.simulation import Simulation
from validation.endpoint import GPU, MODEL, PORT, delays
from validation.markdown import table
from workloads.requests import independent_requests

REQUESTS, RATE, PROMPT, OUTPUT = 500, 50, 512, 64
RUNS: Final = 3
URL: Final = f"http://127.0.0.1:{PORT}"
VOCABULARY: Final = 128_000
TTFT_S, TPOT_S = 0.06, 0.0138  # of the server that does nothing, about those of the endpoint
NAME: Final = "meta-llama/Llama-3.1-8B-Instruct"
Found = dict[str, Any]  # by the names of vLLM's client


def tokenizer_in(folder: Path) -> None:
    """Words that are one token each; so many that two prompts of the client hardly ever begin alike."""
    vocabulary = {f"w{place}": place for place in range(VOCABULARY)} | {"[UNK]": VOCABULARY}
    splits = {"type": "WhitespaceSplit"}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
    made = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": splits, "post_processor": None,
            "decoder": None, "truncation": None, "padding": None, "model": model}  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(made))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]", "model_max_length": 131072}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def vllm_bench(python: Path, folder: Path, run: int, requests: int) -> Found:
    """What vLLM's client reports, request by request."""
    options = {
        "backend": "openai", "base-url": URL, "model": NAME, "tokenizer": folder,
        "dataset-name": "random", "random-input-len": PROMPT, "random-output-len": OUTPUT, "num-prompts": requests,
        "request-rate": RATE, "seed": run, "result-dir": folder, "result-filename": "result.json",
    }  # fmt: skip
    command = [str(python), "-m", "vllm.entrypoints.cli.main", "bench", "serve", *flags(options)]
    run_client([*command, "--ignore-eos", "--save-result", "--save-detailed", "--disable-tqdm"])
    found: Found = json.loads((folder / "result.json").read_text())
    assert found["completed"] == requests and found["failed"] == 0, found["errors"]
    return found


def sglang_bench(python: Path, folder: Path, run: int, requests: int) -> Found:
    """The same by SGLang's own client, which sends to /generate and keeps no times of arrival."""
    (folder / "datasets.py").write_text("load_dataset = None\n")  # imported for data that is not asked for
    options = {
        "backend": "sglang", "base-url": URL, "model": NAME, "tokenizer": folder,
        "dataset-name": "random-ids", "random-input-len": PROMPT, "random-output-len": OUTPUT, "num-prompts": requests,
        "random-range-ratio": 1, "request-rate": RATE, "seed": run, "output-file": folder / "sglang.json",
    }  # fmt: skip
    command = [str(python), "-m", "sglang.bench_serving", *flags(options), "--disable-tqdm"]
    run_client(command, PYTHONPATH=str(folder))
    found: Found = json.loads((folder / "sglang.json").read_text().splitlines()[-1])
    assert found["completed"] == requests, found
    return found


def guidellm_bench(python: Path, folder: Path, run: int, requests: int) -> Found:
    """The same by GuideLLM, from a file of prompts: its own text would be unknown words to this tokenizer."""
    rng, data, out = np.random.default_rng(run), folder / "prompts.jsonl", folder / "guidellm.json"
    prompts = [" ".join(f"w{word}" for word in rng.integers(0, VOCABULARY, PROMPT)) for _ in range(requests)]
    data.write_text("".join(json.dumps({"prompt": each, "output_tokens_count": OUTPUT}) + "\n" for each in prompts))
    options = {
        "backend": f"kind=openai_http,target={URL},model={NAME},request_format=/v1/completions",
        "tokenizer": f"kind=huggingface_auto,model={folder}", "data": f"kind=json_file,path={data}",
        "profile": f"kind=poisson,rate={RATE}", "seed": f"kind=static,value={run}",
        "constraint": f"kind=max_requests,count={requests}", "output": f"kind=json,path={out}",
    }  # fmt: skip
    command = [str(python.with_name("guidellm")), "run", *flags(options), "--disable-console"]
    run_client(command, GUIDELLM__MAX_WORKER_PROCESSES="1")
    (benchmark,) = json.loads(out.read_text())["benchmarks"]
    sent = benchmark["requests"]["successful"]
    assert len(sent) == requests and not benchmark["requests"]["errored"], benchmark["requests"]["errored"]
    return {
        "start_times": [each["request_start_time"] for each in sent],
        "input_lens": [each["prompt_tokens"] for each in sent],
        "output_lens": [each["output_tokens"] for each in sent],
        "mean_ttft_ms": np.mean([each["time_to_first_token_ms"] for each in sent]),
        "mean_tpot_ms": np.mean([each["inter_token_latency_ms"] for each in sent]),  # a mean of each request's gaps
    }


CLIENTS: Final = {"vllm": vllm_bench, "sglang": sglang_bench, "guidellm": guidellm_bench}


def flags(options: dict[str, Any]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def run_client(command: list[str], **variables: str) -> None:
    """Without a network: the tokenizer is a folder of this machine."""
    around = {**os.environ, "HF_HUB_OFFLINE": "1", **variables}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=around)
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout)[-2000:])


@contextmanager
def running(*words: str) -> Iterator[None]:
    server = subprocess.Popen(
        [sys.executable, "-m", *words, "--port", str(PORT)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdout is not None
    server.stdout.readline()
    time.sleep(1)
    try:
        yield
    finally:
        server.terminate()
        server.wait()


def counted() -> tuple[float, float]:
    """Mean TTFT and TPOT of an SGLang endpoint as it was simulated, by its own metrics, in seconds."""
    text = urlopen(f"{URL}/metrics").read().decode()

    def mean(name: str) -> float:
        total, count = (
            sum(map(float, re.findall(rf"^sglang:{name}_seconds_{what}{{.*}} (\S+)$", text, re.MULTILINE)))
            for what in ("sum", "count")
        )
        return total / count

    return mean("time_to_first_token"), mean("request_time_per_output_token")


def simulated(found: Found, engine: str) -> tuple[float, float]:
    """Mean TTFT and TPOT of `simulate` on the arrivals that the client had, in seconds."""
    at_s = np.array(found["start_times"])
    order = np.argsort(at_s, kind="stable")
    requests = independent_requests(
        arrival_s=at_s[order] - at_s.min(),
        prompt_tokens=np.array(found["input_lens"])[order],
        output_tokens=np.array(found["output_lens"])[order],
    )
    simulation = Simulation(resolve(MODEL, GPU, engine=engine).fleet(1, "least-outstanding"), requests)
    simulation.run()
    times = request_times(simulation.requests)
    return float(np.mean(times.ttft_s)), float(np.mean(times.tpot_s))


def row(what: str, found: Found, ttft_s: float, tpot_s: float, own: str) -> tuple[str, ...]:
    ttft, tpot = found["mean_ttft_ms"], found["mean_tpot_ms"]
    expected = 1e3 * ttft_s, 1e3 * tpot_s
    first = f"{ttft:.1f}", f"{expected[0]:.1f}", f"{ttft - expected[0]:+.1f}"
    return (what, *first, f"{tpot:.2f}", f"{expected[1]:.2f}", own)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--client", choices=tuple(CLIENTS), default="vllm")
    parser.add_argument("--engine", choices=("vllm", "sglang"), default="vllm")
    parser.add_argument("--python", type=Path, help="that has the client; for vllm and sglang else the installed one")
    given = parser.parse_args()
    if given.client == "guidellm" and given.python is None:
        parser.error("--client guidellm needs --python, of an environment that has GuideLLM")
    if given.client == "sglang" and given.engine != "sglang":
        parser.error("SGLang's client sends to /generate, which --engine sglang has")
    python = given.python or interpreter_for(None, None, SGLANG if given.client == "sglang" else VLLM)
    client, rows = CLIENTS[given.client], []
    with TemporaryDirectory() as made:
        folder = Path(str(made))
        tokenizer_in(folder)
        words = ("--model", MODEL, "--gpu", GPU, "--tokenizer", f"{folder}/tokenizer.json", "--engine", given.engine)
        for run in range(RUNS):
            if given.client != "sglang":
                with running("validation.bench_client", "--serve"):
                    rows.append(row("fixed times", client(python, folder, run, REQUESTS), TTFT_S, TPOT_S, ""))
            with running("headcount", "emulate", *words):
                found = client(python, folder, run, REQUESTS)
                expected = simulated(found, given.engine) if "start_times" in found else counted()
                rows.append(row("endpoint", found, *expected, delays()))
    columns = ("server", "TTFT, ms", "expected", "more", "TPOT, ms", "expected", "its own delay")
    print(table(columns, sorted(rows)))


# -- a server that answers at fixed times, whatever comes


class Fixed(asyncio.Protocol):
    """A token after TTFT_S, then one every TPOT_S; of HTTP no more than that client needs."""

    HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)

    def __init__(self) -> None:
        self.loop, self.data = asyncio.get_running_loop(), b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, blank, body = self.data.partition(b"\r\n\r\n")
        if not blank:
            return
        length = int(found[1]) if (found := self.LENGTH.search(head)) else 0
        if len(body) < length:
            return
        self.data = body[length:]
        if b"/v1/completions" not in head.split(b"\r\n")[0]:
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")  # its health, for one
            return
        start = self.loop.time()
        self.transport.write(self.HEAD)
        for place in range(OUTPUT):
            self.loop.call_at(start + TTFT_S + place * TPOT_S, self.token, place == OUTPUT - 1)

    def token(self, is_last: bool) -> None:
        chunk = {"id": "x", "object": "text_completion", "created": 1, "model": NAME,
                 "choices": [{"index": 0, "text": " w1", "logprobs": None, "finish_reason": None}]}  # fmt: skip
        text = b"data: " + json.dumps(chunk).encode() + b"\n\n"
        if is_last:
            usage = {"choices": [], "usage": {"prompt_tokens": PROMPT, "completion_tokens": OUTPUT}}
            text += b"data: " + json.dumps(usage).encode() + b"\n\ndata: [DONE]\n\n"
        self.transport.write(f"{len(text):x}\r\n".encode() + text + b"\r\n" + (b"0\r\n\r\n" if is_last else b""))


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Fixed, "127.0.0.1", PORT)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    if "--serve" in sys.argv:
        asyncio.run(serve())
    else:
        main()
