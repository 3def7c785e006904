"""Other projects' benchmark clients run against the endpoint without an error."""

import os
from pathlib import Path

import pytest

from headcount.endpoint.serving import Served, endpoint
from headcount.inputs.engine import EngineInput
from tests.headcount.endpoint.test_endpoint import metrics, running
from validation import bench_client

pytestmark = pytest.mark.slow
REQUESTS, STEP_S = 8, 0.01
CONSTANT = {"latency_model": "constant", "step_s": STEP_S}


@pytest.fixture(scope="session")
def guidellm_python() -> Path:
    given = os.environ.get("HEADCOUNT_GUIDELLM_PYTHON")
    if not given:
        pytest.skip("HEADCOUNT_GUIDELLM_PYTHON names no Python that has GuideLLM")
    return Path(given)


@pytest.mark.parametrize(
    ("client", "engine"),
    [("vllm", "vllm"), ("vllm", "sglang"), ("sglang", "sglang"), ("guidellm", "vllm"), ("guidellm", "sglang")],
)
def test_a_client_gets_every_token_and_no_error(
    client: str, engine: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    python: Path = request.getfixturevalue(f"{client}_python")
    bench_client.tokenizer_in(tmp_path)
    served = Served(tokenizer=tmp_path / "tokenizer.json")
    made, _ = endpoint(
        bench_client.MODEL, bench_client.GPU, served, EngineInput(arguments={**CONSTANT, "engine": engine})
    )
    with running(made) as port:
        monkeypatch.setattr(bench_client, "URL", f"http://127.0.0.1:{port}")
        found = bench_client.CLIENTS[client](python, tmp_path, 0, REQUESTS)
        counts = metrics(port)
    # Clients may send one request more before, with a shorter answer, to see that the server is there.
    assert counts[f"{engine}:prompt_tokens_total"] / bench_client.PROMPT in (REQUESTS, REQUESTS + 1)
    assert REQUESTS <= counts[f"{engine}:generation_tokens_total"] / bench_client.OUTPUT <= REQUESTS + 1
    assert (
        found["mean_ttft_ms"] + (bench_client.OUTPUT - 1) * found["mean_tpot_ms"] >= 1e3 * bench_client.OUTPUT * STEP_S
    )
