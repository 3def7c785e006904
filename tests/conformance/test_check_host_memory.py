"""Host memory holds as much KV as vLLM's own, and drops the same of it."""

import secrets
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from conformance.components.eviction import check_eviction
from conformance.components.probes import FOLDER
from conformance.probing import answers
from kvcache.models.catalog import find_gpu, load_model
from simulator.engines.memory import memory_budget

MODELS = (
    "llama-3.1-8b", "qwen3-32b", "deepseek-v2-lite", "llama-3.1-70b", "qwen2.5-0.5b", "gpt-oss-20b", "gemma-3-12b",
)  # fmt: skip


def cases() -> list[dict[str, Any]]:
    """Every model, split and format with sizes that divide evenly and some that do not."""
    found = []
    for name, tp, kv_cache_dtype, size in product(MODELS, (1, 2, 4), ("auto", "fp8"), (1.0, 7.3, 100.0, 1000.0)):
        model = load_model(name)
        if model.num_attention_heads % tp:
            continue
        budget = memory_budget(
            model, find_gpu("h100-sxm"), tensor_parallel_size=tp, kv_cache_dtype=kv_cache_dtype, kv_offloading_size=size
        )
        assert budget.host is not None
        case = {
            "name": f"{name}, TP {tp}, {kv_cache_dtype}, {size} GiB",
            "kv_offloading_size": size,
            "rank_bytes": budget.layout.block_bytes(),
            "tp": tp,
            "is_kept_once": model.is_mla and tp > 1,
        }
        found.append(case | {"ours": budget.host.num_chunks})
    return found


@pytest.mark.slow
def test_host_memory_holds_as_many_chunks_as_in_vllm(vllm_python: Path) -> None:
    asked = cases()
    theirs = list(
        answers(vllm_python, "host_memory_probe", asked, failure="vLLM's host memory could not be sized", folder=FOLDER)
    )
    assert len(theirs) > 100
    assert [case["ours"] for case in asked] == [answer["num_chunks"] for answer in theirs]


@pytest.mark.slow
def test_the_same_chunks_go_as_in_vllm_s_own_manager_under_each_policy(vllm_python: Path) -> None:
    """A new seed each time."""
    seed = secrets.randbelow(2**31)
    print(f"seed {seed}")
    found = check_eviction(vllm_python, num_cases=200, seed=seed)
    assert found.cases == 200
    assert not found.differences, (seed, found.differences[0])
    assert found.operations > 20_000
    assert found.refused > 200
    assert found.remembered > 20
