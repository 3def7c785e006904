"""Plans whose manifests are looked at, and what an engine measures."""

import re
from typing import Any

from fastapi.testclient import TestClient

import headcount as hc
from headcount.endpoint.app import make_app
from headcount.endpoint.serving import Served, endpoint
from headcount.inputs.engine import EngineInput
from headcount.queries.plan import PlanResult

PLANS: list[dict[str, Any]] = [
    {"model": "llama-3.1-8b", "router": "least-outstanding"},
    {"model": "llama-3.1-8b", "spare": 1, "router": "session-affinity"},
    {"model": "llama-3.1-8b", "spare": 2, "tensor_parallel_size": 2, "max_model_len": 16384},
    {"model": "llama-3.1-8b", "users": 50, "max_num_batched_tokens": 4096, "max_num_seqs": 64},
    {"model": "llama-3.3-70b", "quantization": "fp8", "kv_cache_dtype": "fp8", "tensor_parallel_size": 4},
    {"model": "qwen3-32b", "gpu": "h200-sxm", "gpu_memory_utilization": 0.85, "enforce_eager": True},
    {"model": "gpt-oss-120b", "spare": 1, "vllm_version": "0.30.0", "enable_expert_parallel": True},
    {"model": "qwen3-8b", "gpu": "mi300x", "price": 3.0, "enable_prefix_caching": False},
    {"model": "llama-3.1-8b", "engine": "sglang", "spare": 1},
    {"model": "qwen3-8b", "engine": "sglang", "tensor_parallel_size": 2, "mem_fraction_static": 0.8},
    {"model": "llama-3.1-8b", "environment": ("NCCL_P2P_DISABLE=1", "HF_TOKEN=hf_secret", "VLLM_API_KEY=secret")},
]


def planned(asked: dict[str, Any]) -> PlanResult:
    given = {"gpu": "h100-sxm", "users": 500, "tensor_parallel_size": 1, "ttft_s": 2.0, "tpot_s": 0.5, **asked}
    if given["model"] in ("gpt-oss-120b",):
        given["tensor_parallel_size"] = 2
    return hc.plan(given.pop("model"), **given)


def served_metrics(engine: str) -> set[str]:
    """The series that an emulated server has."""
    given = {"latency_model": "constant", "step_s": 0.01} | ({"engine": engine} if engine == "sglang" else {})
    made, _ = endpoint("llama-3.1-8b", "h100-sxm", Served(), EngineInput(arguments=given))
    with TestClient(make_app(made), base_url="http://127.0.0.1") as client:
        lines = client.get("/metrics").text.splitlines()
    return {re.split(r"[{ ]", line)[0] for line in lines if not line.startswith("#")}
