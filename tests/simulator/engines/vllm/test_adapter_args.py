"""vLLM's LoRA arguments: defaults, what is refused, and how such a server is started."""

from dataclasses import replace
from typing import Any

import pytest

from files.errors import HeadcountError
from kvcache.models.catalog import find_gpu, load_model
from simulator.deployment import resolve
from simulator.engines.vllm.adapters import Adapters
from simulator.engines.vllm.arguments import EngineArgs
from simulator.fleet.fleet import Fleet, Pool
from simulator.live import LiveFleet
from tests.simulator.latency.physical_times import step_times

LLAMA, H100 = load_model("llama-3.1-8b"), find_gpu("h100-sxm")


@pytest.mark.parametrize(
    ("given", "slots", "in_memory"),
    [
        ({"adapters": 20}, 20, 20),
        ({"adapters": 100}, 32, 100),
        ({"adapters": 20, "enable_lora": True}, 1, 1),  # vLLM's own defaults
        ({"adapters": 20, "enable_lora": True, "max_loras": 4}, 4, 4),
        ({"adapters": 20, "max_loras": 4}, 4, 20),
        ({"adapters": 2, "max_loras": 8}, 8, 8),
    ],
)
def test_slots_are_vllm_s_default_where_its_flag_is_given_and_else_enough(
    given: dict[str, object], slots: int, in_memory: int
) -> None:
    filled = EngineArgs(**given).filled(LLAMA, H100)  # type: ignore[arg-type]
    assert (filled.max_loras, filled.max_cpu_loras, filled.enable_lora) == (slots, in_memory, True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_loras": 4}, "--max-loras needs --adapters"),
        ({"enable_lora": True}, "--enable-lora needs --adapters"),
        ({"adapter_skew": 0.5}, "--adapter-skew needs --adapters"),
        ({"adapters": 4, "max_lora_rank": 7}, "max_lora_rank is 7; vLLM takes 1, 8, 16"),
        ({"adapters": 4, "lora_dtype": "fp8"}, "no lora_dtype 'fp8'"),
        ({"adapters": 4, "enable_lora": False}, "--no-enable-lora serves no adapters"),
        ({"adapters": 4, "max_loras": 4, "max_cpu_loras": 2}, "max_cpu_loras is 2, below max_loras, 4"),
        ({"adapters": 4, "adapter_skew": 9.0}, "adapter_skew is 9; it must be from 0"),
        ({"adapters": 4, "kv_offloading_size": 4.0}, "KV outside of the GPUs"),
        ({"adapters": 4, "vllm_version": "0.31.0"}, "by the rules of vLLM 0.32 and later"),
    ],
)
def test_what_is_not_simulated_is_told_in_one_sentence(given: dict[str, object], message: str) -> None:
    with pytest.raises(HeadcountError, match=message):
        resolve(LLAMA, H100, EngineArgs(**given))  # type: ignore[arg-type]


def test_adapters_with_drafts_are_refused() -> None:
    drafts = {"method": "ngram", "num_speculative_tokens": 3, "acceptance_rate": 0.7}
    with pytest.raises(HeadcountError, match="LoRA adapters are not simulated with speculative decoding"):
        resolve(LLAMA, H100, adapters=4, speculative_config=drafts)


def test_the_serve_line_has_what_the_server_needs() -> None:
    plan = resolve(LLAMA, H100, adapters=40, max_loras=8)
    assert plan.serve_line.endswith("--max-loras 8 --enable-lora --max-cpu-loras 40 "
                                    "--lora-modules NAME=PATH ...")  # fmt: skip
    assert "lora" not in resolve(LLAMA, H100).serve_line
    assert EngineArgs(adapters=4, max_loras=2, max_num_seqs=8).without_adapters() == EngineArgs(max_num_seqs=8)


def test_pools_of_other_adapters_and_requests_that_come_later_are_refused() -> None:
    engine = resolve(LLAMA, H100, max_num_seqs=8).engine
    few, many = (Pool(engine=engine_with(engine, count), step_times=step_times()) for count in (2, 3))
    with pytest.raises(HeadcountError, match="give all the same --adapters"):
        Fleet(pools=(few, many))
    with pytest.raises(HeadcountError, match="leave --adapters out"):
        LiveFleet(Fleet(pools=(few,)), most=2)


def engine_with(engine: Any, count: int) -> Any:
    return replace(engine, adapters=Adapters(num_adapters=count))
