"""Wide expert parallelism beside published deployments of DeepSeek-V3 and R1: `python -m validation.wide_ep`.

Decode: so many sequences on each GPU, with the context that they have half-way through their answers, take a step.
Prefill: a step of whole prompts. Tokens a second and GPU are compared. Nothing was fitted to these deployments.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kvcache.models.catalog import find_gpu, load_model
from simulator.engines.vllm.arguments import EngineArgs
from simulator.latency.forms.physical import latency_model
from simulator.latency.model import AverageStep, breakdown, served_model
from validation.markdown import table

BAR = 0.2
LOW_LATENCY: dict[str, Any] = {"all2all_backend": "deepep_low_latency"}
HIGH_THROUGHPUT: dict[str, Any] = {"all2all_backend": "deepep_high_throughput"}
FP4: dict[str, Any] = {"quantization": "nvfp4", "kv_cache_dtype": "fp8"}
VLLM_H200 = "vLLM on H200 (vllm.ai, 2025-12-17)"
VLLM_GB200 = "vLLM on GB200 (vllm.ai, 2026-02-03)"
SGLANG_H100 = "SGLang on H100 (lmsys.org, 2025-05-05)"
SGLANG_GB200 = "SGLang on GB200 (lmsys.org, 2025-09-25)"
DEEPSEEK = "DeepSeek on H800 (github.com/deepseek-ai, 2025-03)"


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One published throughput; `tokens_per_s` of a GPU. `batch`: sequences of a GPU, or prompts in a step."""

    deployment: str
    gpu: str
    ranks: int
    batch: int
    prompt: int
    answer: int  # 0: prompts alone
    tokens_per_s: float
    redundant: int | None = None  # experts; None: without EPLB
    overlaps: bool = False  # it computes two batches in turns, which is not simulated
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def what(self) -> str:
        phase = "decode" if self.answer else "prefill"
        return f"{phase}, {self.batch:,} × {self.prompt:,}" + (f" + {self.answer:,}" if self.answer else "")


def balanced(number: int, ranks: int) -> int:
    """So many redundant experts that ranks share them evenly with DeepSeek's 256."""
    return number + -(256 + number) % ranks


RUNGS = (
    *(
        Rung(deployment=VLLM_H200, gpu="h200-sxm", ranks=ranks, batch=256, prompt=2000, answer=2000, tokens_per_s=rate,
             redundant=balanced(32, ranks), overlaps=True, settings=LOW_LATENCY)
        for ranks, rate in ((32, 2180), (72, 2070), (96, 1975))
    ),
    *(
        Rung(deployment=VLLM_H200, gpu="h200-sxm", ranks=ranks, batch=8, prompt=2000, answer=0, tokens_per_s=rate,
             redundant=balanced(32, ranks), settings=HIGH_THROUGHPUT)
        for ranks, rate in ((8, 6500), (16, 7000), (32, 5100))
    ),
    *(
        Rung(deployment=VLLM_GB200, gpu="gb200", ranks=8, batch=batch, prompt=prompt, answer=answer, tokens_per_s=rate,
             settings=FP4)
        for batch, prompt, answer, rate in (
            (1078, 2000, 2000, 10108), (1294, 2000, 1000, 11035), (1578, 2000, 100, 11182), (2157, 1000, 1000, 12534)
        )
    ),
    Rung(deployment=VLLM_GB200, gpu="gb200", ranks=2, batch=16, prompt=2000, answer=0, tokens_per_s=26214,
         settings=FP4),
    Rung(deployment=SGLANG_H100, gpu="h100-sxm", ranks=72, batch=256, prompt=2000, answer=100, tokens_per_s=22282 / 8,
         redundant=32, overlaps=True, settings=LOW_LATENCY),
    *(
        Rung(deployment=SGLANG_H100, gpu="h100-sxm", ranks=32, batch=16384 // prompt, prompt=prompt, answer=0,
             tokens_per_s=rate / 8, redundant=32, overlaps=True, settings=HIGH_THROUGHPUT)
        for prompt, rate in ((1024, 57674), (2048, 54543), (4096, 50302))
    ),
    Rung(deployment=DEEPSEEK, gpu="h800", ranks=144, batch=128, prompt=4988, answer=2, tokens_per_s=14800 / 8,
         redundant=32, overlaps=True, settings=LOW_LATENCY),
    Rung(deployment=DEEPSEEK, gpu="h800", ranks=128, batch=128, prompt=4095, answer=2, tokens_per_s=18598 / 8,
         redundant=0, overlaps=True, settings=LOW_LATENCY),
    Rung(deployment=SGLANG_GB200, gpu="gb200", ranks=48, batch=768, prompt=2000, answer=100, tokens_per_s=9087,
         redundant=32, overlaps=True, settings=LOW_LATENCY),
    Rung(deployment=SGLANG_GB200, gpu="gb200", ranks=48, batch=1408, prompt=2000, answer=100, tokens_per_s=13386,
         redundant=32, overlaps=True, settings={**LOW_LATENCY, **FP4}),
)  # fmt: skip


def simulated(rung: Rung) -> float:
    """Tokens a second and GPU."""
    args = EngineArgs(
        data_parallel_size=rung.ranks,
        enable_expert_parallel=True,
        max_model_len=8192,
        max_num_seqs=2304,
        max_num_batched_tokens=max(2304, rung.batch * rung.prompt if not rung.answer else 0),
        enable_eplb=rung.redundant is not None,
        eplb_config={"num_redundant_experts": rung.redundant or 0},  # type: ignore[arg-type]
        **rung.settings,
    )
    model = latency_model(served_model(load_model("deepseek-ai/DeepSeek-R1"), find_gpu(rung.gpu), args))
    if rung.answer:
        context = rung.batch * (rung.prompt + rung.answer / 2)
        step = AverageStep(tokens=rung.batch, sequences=rung.batch, sampled=rung.batch, decode_context=context)
        return rung.batch / sum(breakdown(model, step).values())
    tokens = float(rung.batch * rung.prompt)
    step = AverageStep(
        tokens=tokens, sequences=rung.batch, sampled=rung.batch, prefill_tokens=tokens,
        prefill_work=tokens * rung.prompt / 2, prefill_share=1.0,
    )  # fmt: skip
    return tokens / sum(breakdown(model, step).values())


def page_table() -> str:
    """The rungs as Markdown."""
    rows = []
    for rung in RUNGS:
        ours = simulated(rung)
        error = ours / rung.tokens_per_s - 1
        rows.append(
            [
                rung.deployment, f"EP {rung.ranks}", rung.what, f"{rung.tokens_per_s:,.0f}", f"{ours:,.0f}",
                f"{100 * error:+.0f} %" + ("" if abs(error) <= BAR else " **missed**"),
            ]
        )  # fmt: skip
    head = ["deployment", "ranks", "a GPU's batch", "measured tokens/s", "simulated", "error"]
    return table(head, rows)


def wide_ep_tables() -> dict[str, Callable[[], str]]:
    """The tables of docs/measurements/expert-parallelism.md."""
    return {"wide-ep": page_table}


if __name__ == "__main__":
    print(page_table())
