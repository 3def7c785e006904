"""The API server as a bottleneck: named where it binds, silent where it does not, gone with more of them."""

import json
from pathlib import Path

import pytest

import headcount as hc
from headcount.diagnostics import Facts, find_diagnostics
from simulator.deployment import resolve
from simulator.study.bottleneck import STREAMED_TOKENS_PER_S
from tests.headcount.queries.test_tenants import Run

SERVER = ("simulate", "--model", "llama-3.1-8b", "--gpu", "h100-sxm")


@pytest.fixture
def shared_prefix(tmp_path: Path) -> Path:
    """40 requests/s of 16,500 tokens, of which all but 116 are one prefix."""
    rows = (
        {"timestamp": 25 * n, "input_length": 16_500, "output_length": 4, "hash_ids": [*range(32), 1000 + n]}
        for n in range(400)
    )
    path = tmp_path / "shared.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def test_a_queue_at_the_api_server_is_named_and_leaves_with_more_of_them(headcount: Run, shared_prefix: Path) -> None:
    """One process takes 17 such prompts a second, however many of their tokens are cached."""
    load = (*SERVER, "--workload", shared_prefix)
    one, four = (headcount(*load, *more, "--json") for more in ((), ("--api-server-count", "4")))
    found, better = json.loads(one.out), json.loads(four.out)
    assert found["prefix_hit_rate"] > 0.98
    assert found["ttft_s"]["mean"] > 5
    assert found["api_server_mean"] > 0.9 * (found["in_flight_mean"] - found["running_mean"])
    assert [note["code"] for note in found["diagnostics"]].count("api-servers-bind") == 1
    assert better["ttft_s"]["mean"] < 0.3
    assert "api-servers-bind" not in {note["code"] for note in better["diagnostics"]}
    shown = headcount(*load)
    assert "API server " in next(line for line in shown.out.splitlines() if "in flight" in line)
    assert "the API server is the bottleneck" in shown.err
    assert "raise --api-server-count" in shown.err


def test_an_idle_api_server_is_not_named(headcount: Run) -> None:
    shown = headcount(*SERVER, "--input-len", "100", "--output-len", "20", "--rate", "2", "--num-requests", "40")
    assert "API server" not in shown.out + shown.err


def test_more_tokens_than_an_api_server_was_measured_to_stream_are_a_diagnostic() -> None:
    few, many = ("4 GPUs", STREAMED_TOKENS_PER_S), ("8 GPUs", STREAMED_TOKENS_PER_S + 400.0)
    (note,) = find_diagnostics(Facts(streamed=[few, many]))
    assert note.code == "streamed-beyond-measured"
    assert note.text.startswith("8 GPUs: each API server would stream 8,000 tokens/s; one was measured to stream 7,600")


def test_what_helps_against_an_api_server_is_of_the_engine() -> None:
    plans = [resolve("llama-3.1-8b", "h100-sxm", engine=engine) for engine in ("vllm", "sglang")]
    vllm, sglang = find_diagnostics(Facts(api_servers_bind=[("1 GPU", plan) for plan in plans]))
    assert "277,008 prompt tokens/s" in vllm.text
    assert "raise --api-server-count" in vllm.text
    assert "--api-server-count" not in sglang.text


def test_token_ids_are_forwarded_between_pools_alone(headcount: Run) -> None:
    changing = headcount(*SERVER, "--users", "5", "--forward-token-ids", "--event", "crash@1min", "--duration", "2min")
    assert (changing.code, "--forward-token-ids goes with one load" in changing.err) == (2, True)
    alone = headcount(*SERVER, "--rate", "1", "--forward-token-ids")
    assert (alone.code, "--forward-token-ids needs two pools" in alone.err) == (2, True)
    pushed = headcount(
        *SERVER, "--rate", "1", "--forward-token-ids", "--pools", "prefill=1,decode=1", "--kv-transfer", "push"
    )
    assert (pushed.code, "--kv-transfer push" in pushed.err) == (2, True)


@pytest.mark.slow
def test_capacity_names_the_api_server_and_users_do_not_fall_with_more_of_them() -> None:
    """A system prompt of 64K tokens is cached, and tokenized for each message."""
    rows = [
        hc.capacity(
            "llama-3.1-8b", "h200-sxm", gpus=[1], api_server_count=count, traffic={"system-prompt": "64K"},
            ttft_s=0.5, tpot_s=1.0, replications=2, precision=0.9, store=False,
        ).best
        for count in (1, 2, 4)
    ]  # fmt: skip
    assert rows[0].binding == "TTFT: API server"
    assert rows[0].users < 0.8 * rows[1].users
    assert rows[1].users <= 1.05 * rows[2].users
    assert rows[2].binding != "TTFT: API server"


@pytest.mark.parametrize(
    ("gpu", "eager", "is_named"), [("a100-80gb", True, True), ("a100-80gb", False, False), ("l4", True, False)]
)
def test_a_host_that_launches_slower_than_the_gpu_computes_is_named(gpu: str, *, eager: bool, is_named: bool) -> None:
    """33 ms of launches for a step of 8 sequences that an A100 computes in 12, and an L4 in 60."""
    load = {"input_len": 256, "output_len": 32, "concurrency": 8, "num_requests": 16}
    found = hc.simulate("qwen3-8b", gpu, **load, max_model_len=2048, enforce_eager=eager)
    notes = [note.text for note in found.diagnostics if note.code == "host-binds"]
    assert ["33 ms to launch" in note for note in notes] == [True] * is_named
