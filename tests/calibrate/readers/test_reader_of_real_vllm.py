"""What the installed vLLM itself writes is read as it was meant."""

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from calibrate.check.run_figures import differences
from calibrate.readers import find_format, read_measured
from calibrate.readers.parsing.server_metrics import COUNTERS, GAUGES, HISTOGRAMS
from calibrate.readers.vllm_iterations import LINE

NUM_TOKENS, NUM_PROMPTS, FIRST_S, GAP_S = 6, 12, 0.05, 0.01


class _Server(BaseHTTPRequestHandler):
    """An OpenAI endpoint whose every fourth answer is an error; the client asks once before it measures."""

    protocol_version = "HTTP/1.1"
    count = 0

    def do_GET(self) -> None:
        self._answer(200, json.dumps({"object": "list", "data": [{"id": "tiny", "root": "tiny"}]}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/completions"):
            self._answer(404, "{}")
            return
        _Server.count += 1
        if _Server.count % 4 == 0:
            self._answer(400, "{}")
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        prompt_tokens = len(str(body["prompt"]).split())
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": NUM_TOKENS, "total_tokens": 0}
        for token in range(NUM_TOKENS):
            time.sleep(GAP_S if token else FIRST_S)
            self._event({"choices": [{"index": 0, "text": " w1"}]})
        self._event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _event(self, value: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
        self.wfile.flush()

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def tokenizer(folder: Path) -> Path:
    """One token per word, so that counts are known."""
    vocabulary = {f"w{number}": number for number in range(1000)} | {"<unk>": 1000}
    (folder / "tokenizer.json").write_text(
        json.dumps(
            {
                "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
                "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
            }
        ),
        encoding="utf-8",
    )  # fmt: skip
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "model_max_length": 2048}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("detailed", [True, False])
def test_the_result_of_its_benchmark_is_read(
    inferring_vllm_python: Path, port: int, detailed: bool, tmp_path: Path
) -> None:
    command = [
        inferring_vllm_python, "-m", "vllm.entrypoints.cli.main", "bench", "serve", "--backend", "openai", "--host",
        "127.0.0.1", "--port", port, "--model", "tiny", "--tokenizer", tokenizer(tmp_path), "--dataset-name", "random",
        "--random-input-len", 20, "--random-output-len", NUM_TOKENS, "--num-prompts", NUM_PROMPTS, "--max-concurrency",
        2, "--save-result", "--result-dir", tmp_path, "--result-filename", "result.json", "--metadata", "tp=2",
        "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,99",
        *(["--save-detailed"] if detailed else []),
    ]  # fmt: skip
    offline = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(word) for word in command], env=os.environ | offline, capture_output=True, text=True, check=False
    )
    path = tmp_path / "result.json"
    if not path.exists():
        pytest.skip(f"this vLLM's benchmark does not run: {done.stderr.strip().splitlines()[-1:]}")
    assert find_format(path) == "vllm_bench"
    (run,) = read_measured(path)
    assert dict(run.options) == {"model": "tiny", "tensor_parallel_size": 2}
    assert (run.load["concurrency"], run.load["num_requests"]) == (2, NUM_PROMPTS)
    assert dict(run.excluded) == {"failed": 3}
    assert run.aggregates["num_finished"] == NUM_PROMPTS - 3
    assert run.aggregates["ttft_s.p50"] > FIRST_S
    if not detailed:
        assert run.requests is None
        return
    table = run.requests
    assert table is not None
    assert (table["output_tokens"] == NUM_TOKENS).all()
    assert (table["prompt_tokens"] == 20).all()
    assert table["ttft_s"].min() > FIRST_S
    assert table["e2e_s"].min() > FIRST_S + GAP_S * (NUM_TOKENS - 1)  # no less than the server waits, however busy
    assert (table["e2e_s"] > table["ttft_s"]).all()
    assert table["arrival_s"].iloc[0] == 0
    assert table["arrival_s"].is_monotonic_increasing
    rates = {"duration_s", "requests_per_s", "output_tokens_per_s"}
    assert not [found for found in differences(run, 1e-9) if found.name not in rates]


@pytest.mark.slow
def test_its_loggers_have_the_names_that_are_read(inferring_vllm_python: Path) -> None:
    where = "import importlib.util; print(importlib.util.find_spec('vllm').origin)"
    origin = subprocess.run(
        [inferring_vllm_python, "-c", where], capture_output=True, text=True, check=True
    ).stdout.strip()
    source = (Path(origin).parent / "v1" / "metrics" / "loggers.py").read_text(encoding="utf-8")
    for newest, *_ in (*HISTOGRAMS.values(), *GAUGES.values()):
        assert f'"{newest}"' in source, newest
    for newest, *_ in COUNTERS.values():
        assert f'"{newest.removesuffix("_total")}"' in source, newest
    template = re.search(r'"%sIteration\(%d\).*?%s",\n', source, re.DOTALL)
    assert template is not None
    written = "".join(re.findall(r'"(.*?)"', template[0])) % (
        "Engine 000: ", 3, 1, 100, 2, 2, 4.5, "", "GPU", 12.5, ""
    )  # fmt: skip
    assert LINE.search(written)
