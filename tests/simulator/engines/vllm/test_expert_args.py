"""vLLM's arguments of expert parallelism over data-parallel ranks."""

from typing import Any

import pytest

from files.errors import HeadcountError
from kvcache.models.catalog import find_gpu, load_model
from simulator.engines.argument import command_line
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.engine import EngineConfig

MODEL, GPU = load_model("deepseek-ai/DeepSeek-R1"), find_gpu("h200")
RANKS: dict[str, Any] = {"data_parallel_size": 72, "enable_expert_parallel": True}


def test_low_latency_takes_few_tokens_a_step_by_default() -> None:
    args = EngineArgs(**RANKS, all2all_backend="deepep_low_latency").filled(MODEL, GPU)
    assert (args.max_num_batched_tokens, args.max_num_seqs) == (256, 256)
    assert EngineArgs(**RANKS).filled(MODEL, GPU).max_num_batched_tokens == 8192
    alone = EngineArgs(all2all_backend="deepep_low_latency").filled(MODEL, GPU)
    assert alone.max_num_batched_tokens == 8192


def test_high_throughput_rules_out_cuda_graphs() -> None:
    assert not EngineArgs(**RANKS, all2all_backend="deepep_high_throughput").has_cuda_graphs
    assert EngineArgs(**RANKS).has_cuda_graphs


def test_redundant_experts_are_read_and_written_as_vllm_does() -> None:
    text = '{"num_redundant_experts": 32, "window_size": 100}'
    args = EngineArgs(**RANKS, enable_eplb=True, eplb_config=text)  # type: ignore[arg-type]
    assert args.num_redundant_experts == 32
    words = command_line(args)
    assert words[words.index("--eplb-config") + 1] == '{"num_redundant_experts": 32}'


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"all2all_backend": "deepep"}, "no all2all_backend 'deepep'"),
        ({**RANKS, "eplb_config": {"num_redundant_experts": 32}}, "needs --enable-eplb"),
        ({**RANKS, "enable_eplb": True, "eplb_config": {"num_redundant": 32}}, "num_redundant"),
        ({**RANKS, "enable_eplb": True}, r"give --eplb-config '{\"num_redundant_experts\": 32}'"),
        ({"enable_eplb": True}, "needs a MoE model, --enable-expert-parallel and more than one GPU"),
        ({"prefill_schedule_interval": 0}, "prefill_schedule_interval is 0"),
    ],
)
def test_what_vllm_would_refuse_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(HeadcountError, match=message):
        EngineArgs(**settings).filled(MODEL, GPU)


def test_prompts_at_intervals_are_refused_with_another_engine_s_kv() -> None:
    with pytest.raises(HeadcountError, match="prefill_schedule_interval is not simulated with KV outside"):
        EngineConfig(
            num_gpu_blocks=10, max_model_len=100, max_num_seqs=2, max_num_batched_tokens=100, kv_role="kv_both",
            prefill_schedule_interval=2,
        )  # fmt: skip
