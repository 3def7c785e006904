"""Layouts whose capacity the screening estimate is held against."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from simulator.deployment import Deployment, resolve
from simulator.study.loads import Load, TraceLoad, UserLoad
from simulator.study.slo import SLO
from workloads.distributions import Exponential, Lognormal
from workloads.load import load_preset
from workloads.populations.population import Population
from workloads.requests import independent_requests
from workloads.synthetic import single_turn_users
from workloads.traces.trace import Trace


@dataclass(frozen=True, kw_only=True)
class Question:
    """One model for one load: its layouts are compared with each other."""

    name: str
    model: str
    workload: Population | Trace
    slo: SLO
    layouts: tuple[tuple[str, int, Mapping[str, Any]], ...]  # GPU, replicas, engine arguments


@dataclass(frozen=True, kw_only=True)
class Case:
    """One layout of one question."""

    question: Question
    gpu: str
    replicas: int
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        named = ", ".join(f"{_SHORT.get(name, name)} {value}" for name, value in self.settings.items())
        return f"{self.question.name}: {self.replicas} × {self.gpu}" + (f", {named}" if named else "")

    def deployment(self) -> Deployment:
        return resolve(self.question.model, self.gpu, vllm_version=RELEASE, **self.settings)

    def load(self, deployment: Deployment) -> Load:
        workload = self.question.workload
        if isinstance(workload, Trace):
            return TraceLoad(trace=workload, think_time_s=60.0, seed=0)
        return UserLoad(population=workload, max_model_len=deployment.engine.max_model_len, seed=0)


RELEASE = "0.32.0"  # whose servers were searched
_SHORT = {
    "tensor_parallel_size": "TP",
    "pipeline_parallel_size": "PP",
    "data_parallel_size": "DP",
    "quantization": "weights",
    "kv_cache_dtype": "KV",
}


def poisson_trace() -> Trace:
    """Independent requests of lengths as in code completion: long prompts, short answers."""
    rng = np.random.default_rng(7)
    return _trace("completions", np.cumsum(rng.exponential(0.2, 20_000)), rng)


def bursty_trace() -> Trace:
    """The same in bursts: gaps with a coefficient of variation of 2, a rate that swings by half every 10 minutes."""
    rng = np.random.default_rng(8)
    at = np.cumsum(rng.gamma(0.25, 0.8, 20_000))
    swing = 300.0 / (2 * np.pi)
    return _trace("bursts", at + 0.5 * swing * np.sin(at / swing), rng)


def _trace(name: str, arrival_s: Any, rng: np.random.Generator) -> Trace:
    size = len(arrival_s)
    table = independent_requests(
        arrival_s=np.sort(arrival_s) - arrival_s.min(),
        prompt_tokens=np.clip(rng.lognormal(7.2, 0.9, size), 16, 7000).astype(int),
        output_tokens=np.clip(rng.lognormal(4.3, 0.8, size), 2, 900).astype(int),
    )
    return Trace(name=name, format="synthetic", table=table, source="drawn")


def agents() -> Population:
    """Long conversations of short pauses over a large system prompt."""
    return Population(
        name="agents",
        system_prompt_tokens=6000,
        turns=Exponential(mean_value=12),
        user_tokens=Lognormal(median=500, sigma=1.0),
        output_tokens=Lognormal(median=150, sigma=0.8),
        think_time_s=Exponential(mean_value=5),
    )


@cache
def questions() -> tuple[Question, ...]:
    chat = load_preset("chat")
    documents = single_turn_users(input_len=12_000, output_len=300, think_time_s=60.0, length_spread=0.2)
    jobs = single_turn_users(input_len=2000, output_len=500, think_time_s=0.0, length_spread=0.5)
    tp = "tensor_parallel_size"
    fp8: Mapping[str, Any] = {"quantization": "fp8"}
    return (
        Question(
            name="8B chat", model="llama-3.1-8b", workload=chat, slo=SLO(),
            layouts=(
                ("l4", 1, {"max_model_len": 16384}), ("l40s", 1, {}), ("a100-80gb", 1, {}), ("h100-sxm", 1, {}),
                ("h100-sxm", 1, {tp: 4}), ("h100-sxm", 4, {}), ("h100-sxm", 1, fp8),
                ("l4", 8, {"max_model_len": 16384}),
            ),
        ),
        Question(
            name="8B chat, tight", model="llama-3.1-8b", workload=chat,
            slo=SLO(ttft_s=0.3, tpot_s=0.015, attainment=0.99),
            layouts=(("a100-80gb", 1, {tp: 2}), ("h100-sxm", 1, {}), ("h100-sxm", 1, {tp: 2}), ("h200-sxm", 2, {})),
        ),
        Question(
            name="70B chat", model="llama-3.1-70b", workload=chat, slo=SLO(),
            layouts=(
                ("a100-80gb", 1, {tp: 8}), ("h100-sxm", 1, {tp: 4}), ("h100-sxm", 1, {tp: 8}), ("h100-sxm", 2, {tp: 4}),
                ("h100-sxm", 1, {tp: 2, **fp8}), ("h200-sxm", 1, {tp: 2, "kv_cache_dtype": "fp8"}),
                ("b200-sxm", 1, {tp: 2}), ("h100-sxm", 1, {tp: 4, "pipeline_parallel_size": 2}),
            ),
        ),
        Question(
            name="1B chat, no TTFT limit", model="llama-3.2-1b", workload=chat.with_think_time(20.0),
            slo=SLO(ttft_s=None, tpot_s=0.02),
            layouts=(("l4", 1, {}), ("a10g", 1, {}), ("rtx-4090", 1, {}), ("h100-sxm", 1, {"max_num_seqs": 128})),
        ),
        Question(
            name="30B mixture chat", model="qwen3-30b-a3b", workload=chat, slo=SLO(),
            layouts=(
                ("h100-sxm", 1, {}), ("a100-80gb", 1, {tp: 2}), ("h100-sxm", 1, {"data_parallel_size": 2}),
                ("h100-sxm", 1, fp8), ("l40s", 1, {tp: 4}),
            ),
        ),
        Question(
            name="8B documents", model="llama-3.1-8b", workload=documents, slo=SLO(ttft_s=4.0, tpot_s=0.1),
            layouts=(
                ("l40s", 1, {"max_model_len": 32768}), ("a100-80gb", 1, {"max_model_len": 32768}), ("h100-sxm", 1, {}),
                ("h100-sxm", 1, {tp: 2}), ("l4", 1, {tp: 2, "kv_cache_dtype": "fp8"}),
            ),
        ),
        Question(
            name="32B jobs without pauses", model="qwen2.5-32b", workload=jobs, slo=SLO(ttft_s=10.0, tpot_s=0.08),
            layouts=(("a100-80gb", 1, {tp: 2}), ("h100-sxm", 1, {tp: 2}), ("h100-sxm", 1, fp8), ("h200-sxm", 1, {})),
        ),
        Question(
            name="8B agents", model="llama-3.1-8b", workload=agents(), slo=SLO(ttft_s=2.0, tpot_s=0.05),
            layouts=(
                ("a100-80gb", 1, {"max_model_len": 65536}), ("h100-sxm", 1, {}), ("h100-sxm", 2, {}),
                ("l40s", 1, {"max_model_len": 32768}), ("h100-sxm", 1, {"enable_prefix_caching": False}),
            ),
        ),
        Question(
            name="14B few users", model="qwen2.5-14b", workload=chat.with_think_time(5.0),
            slo=SLO(ttft_s=1.5, tpot_s=0.04),
            layouts=(
                ("l40s", 1, {}), ("a10g", 1, {tp: 4}), ("l4", 1, {tp: 4}), ("a100-80gb", 1, {}),
                ("rtx-4090", 1, {"quantization": "awq", "max_model_len": 8192}),
            ),
        ),
        Question(
            name="27B hybrid chat", model="gemma-3-27b", workload=chat, slo=SLO(ttft_s=2.0, tpot_s=0.06),
            layouts=(("h100-sxm", 1, {}), ("a100-80gb", 1, {tp: 2}), ("l40s", 1, {tp: 4})),
        ),
        Question(
            name="8B trace", model="llama-3.1-8b", workload=poisson_trace(), slo=SLO(ttft_s=1.0, tpot_s=0.06),
            layouts=(("l40s", 1, {}), ("a100-80gb", 1, {}), ("h100-sxm", 2, {})),
        ),
        Question(
            name="8B bursty trace", model="llama-3.1-8b", workload=bursty_trace(), slo=SLO(ttft_s=1.0, tpot_s=0.06),
            layouts=(("l40s", 1, {}), ("a100-80gb", 1, {}), ("h100-sxm", 2, {})),
        ),
    )  # fmt: skip


def cases() -> Iterator[Case]:
    for question in questions():
        for gpu, replicas, settings in question.layouts:
            yield Case(question=question, gpu=gpu, replicas=replicas, settings=settings)
