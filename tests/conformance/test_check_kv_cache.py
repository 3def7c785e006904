"""Our KV caches are compared with vLLM's, and a difference would be seen."""

import secrets
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance.components import kv_cache as checker
from conformance.components.cases.kv_cache_cases import KVCacheCase, random_case
from conformance.components.kv_cache import (
    COMPARED,
    KVCacheComparison,
    catalog_cases,
    check_kv_cache,
    compare,
    our_layout,
    random_cases,
)
from kvcache.layout.kv_content import KV_CACHE_DTYPES
from kvcache.models.catalog import load_model
from kvcache.shape.layer import KINDS
from tests.kvcache.hybrid_models import CONFIGS, architecture

GIB = 2**30
NUM_RANDOM = 3000
SOME_MODELS = ("gemma-3-12b", "gpt-oss", "Scout", "DeepSeek-V2-Lite", "falcon-7b", "Qwen3-4B", "phi-2")


def small_case(**changes: Any) -> KVCacheCase:
    settings: dict[str, Any] = {"name": "small", "max_model_len": 8192, "available_bytes": (4 * GIB,)}
    return KVCacheCase(architecture=load_model("gemma-3-4b"), **{**settings, **changes})


def hybrid_cases(name: str, sizes: tuple[int, ...], **settings: Any) -> list[KVCacheCase]:
    return [
        KVCacheCase(
            name=f"{name}, TP {tp}, {'' if caching else 'no '}prefix caching",
            architecture=architecture(name),
            config=CONFIGS[name],
            tensor_parallel_size=tp,
            enable_prefix_caching=caching,
            max_model_len=8192,
            available_bytes=(60 * GIB,),
            **settings,
        )
        for tp in sizes
        for caching in (True, False)
    ]


def probed(case: KVCacheCase) -> dict[str, Any]:
    """What the probe would say if vLLM agreed with us."""
    return {"name": case.name, "vllm_version": "0.32.0", **our_layout(case)}


def compared(case: KVCacheCase, theirs: dict[str, Any]) -> KVCacheComparison:
    found = KVCacheComparison()
    compare(found, case, theirs)
    return found


def test_a_case_is_decided_by_its_seed_and_number_alone() -> None:
    assert random_case(3, 5) == random_case(3, 5) != random_case(3, 6)


@pytest.mark.slow
def test_random_cases_reach_every_kind_of_layer_and_setting() -> None:
    cases = random_cases(0, 1500)
    kinds = Counter(case.architecture.state_space.kind for case in cases if case.architecture.state_space)
    assert set(kinds) == set(KINDS)
    packed = {dtype for dtype in KV_CACHE_DTYPES if dtype.endswith("_ds_mla")}  # no model has kernels for them
    assert {case.kv_cache_dtype for case in cases} >= set(KV_CACHE_DTYPES) - packed - {"float16"}
    assert (
        sum(any(layer.attention and layer.attention.kv_owner for layer in case.architecture.layers) for case in cases)
        > 50
    )
    assert sum(bool(case.architecture.attention and case.architecture.attention.chunked) for case in cases) > 50
    assert sum(case.pipeline_parallel_size > 1 for case in cases) > 300
    refused = Counter("refused" in our_layout(case) for case in cases)
    assert refused[True] < 0.1 * len(cases)


@pytest.mark.slow
def test_tokens_in_flight_without_asynchronous_scheduling_are_told_apart() -> None:
    """The probe computes them by vLLM's own rule, so a rule of ours that forgot the option would be seen."""
    cases = [case for case in random_cases(0, 200) if "refused" not in our_layout(case)]
    assert 0.3 < sum(case.async_scheduling for case in cases) / len(cases) < 0.9
    other = [replace(case, async_scheduling=not case.async_scheduling) for case in cases]
    assert sum(our_layout(one) != our_layout(two) for one, two in zip(cases, other, strict=True)) >= 20


def test_layouts_that_agree_are_no_difference() -> None:
    case = small_case()
    found = compared(case, probed(case))
    assert (found.equal, found.differences, dict(found.kinds)) == (1, [], {"full + window": 1})


@pytest.mark.parametrize("field", COMPARED)
def test_a_planted_difference_is_found_in_its_field(field: str) -> None:
    case = small_case()
    theirs = deepcopy(probed(case))
    if field == "groups":
        theirs["groups"][0]["blocks_per_request"] += 1
    elif field == "mamba_cache_mode":
        theirs[field] = "align"
    else:
        theirs[field] = [2 * each for each in theirs[field]] if field == "page_size_bytes" else theirs[field] + 1
    found = compared(case, theirs)
    assert found.equal == 0
    assert [list(difference.fields) for difference in found.differences] == [[field]]


def test_two_layers_that_change_places_are_a_difference() -> None:
    case = small_case()
    theirs = deepcopy(probed(case))
    first, second = theirs["groups"][0]["layers"], theirs["groups"][1]["layers"]
    first[0], second[0] = second[0], first[0]
    assert list(compared(case, theirs).differences[0].fields) == ["groups"]


def test_what_one_of_them_refuses_is_a_difference() -> None:
    case = small_case()
    assert list(compared(case, {**probed(case), "refused": "AssertionError: no"}).differences[0].fields) == ["refused"]
    tight = small_case(available_bytes=(1,))
    assert our_layout(tight) == {"refused": "too large"}
    too_large = {"name": "small", "vllm_version": "0.32.0", "refused": "ValueError: To serve at least one request with"}
    assert compared(tight, too_large).too_large == 1
    assert compared(case, too_large).differences
    split = small_case(tensor_parallel_size=3, available_bytes=(1,))
    assert compared(split, {**too_large, "refused": "AssertionError: 4 heads"}).refused == 1


def test_a_model_that_vllm_cannot_build_is_listed_with_the_reason() -> None:
    case = hybrid_cases("LiquidAI/LFM2-1.2B", (1,))[0]
    theirs = {"name": case.name, "vllm_version": "0.32.0", "refused": "KeyError: 'lfm9'"}
    found = compared(case, theirs)
    assert (found.not_built, found.equal, found.differences) == ({case.name: "KeyError: 'lfm9'"}, 0, [])


def test_an_answer_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = random_cases(0, 3)

    def all_but_one(*_: Any, **__: Any) -> Iterator[dict[str, Any]]:
        yield from [probed(case) for case in cases][:-1]

    monkeypatch.setattr(checker, "answers", all_but_one)
    with pytest.raises(ValueError, match="zip"):
        check_kv_cache(Path("unused"), cases)


def test_an_interpreter_without_vllm_is_one_clear_error(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 'ModuleNotFoundError: No module named vllm' >&2\nexit 1\n", encoding="utf-8")
    fake.chmod(0o755)
    with pytest.raises(ValueError, match=r"vLLM could not be run by .*python: ModuleNotFoundError"):
        check_kv_cache(fake, random_cases(0, 1))


def test_catalog_models_are_compared_wherever_their_heads_divide() -> None:
    cases = catalog_cases((1, 3, 8))
    assert {case.tensor_parallel_size for case in cases if "phi-4" in case.name} == {1}  # 10 KV heads
    assert len(cases) > 100
    assert all(case.config is not None for case in cases)


@pytest.mark.slow
def test_random_mixes_of_layers_have_vllms_kv_cache(vllm_python: Path) -> None:
    """A new seed each time, so that every run looks at cases that nobody has seen."""
    seed = secrets.randbelow(2**31)
    print(f"seed {seed}")
    found = check_kv_cache(vllm_python, random_cases(seed, NUM_RANDOM))
    assert found.differences == [], seed
    assert found.equal == NUM_RANDOM
    assert sum(found.kinds.values()) > 0.9 * NUM_RANDOM
    assert len(found.kinds) >= 8


@pytest.mark.slow
def test_models_that_vllm_builds_have_its_kv_cache(vllm_python: Path) -> None:
    cases = [case for case in catalog_cases((1, 8)) if any(name in case.name for name in SOME_MODELS)]
    found = check_kv_cache(vllm_python, cases)
    assert (found.differences, found.not_built) == ([], {})
    assert found.equal == len(cases) >= 12


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CONFIGS))
def test_hybrid_models_that_vllm_builds_have_its_kv_cache(vllm_python: Path, name: str) -> None:
    sizes = (1, 4) if architecture(name).num_attention_heads % 4 == 0 else (1, 2)
    cases = hybrid_cases(name, sizes)
    if not architecture(name).is_mla:
        cases += [replace(case, kv_cache_dtype="fp8", name=f"{case.name}, fp8") for case in cases[:1]]
    found = check_kv_cache(vllm_python, cases)
    assert (found.differences, found.not_built) == ([], {})
    assert found.equal == len(cases)


@pytest.mark.slow
def test_pipeline_stages_that_vllm_builds_have_its_kv_cache(vllm_python: Path) -> None:
    names = ("Qwen/Qwen3-Next-80B-A3B-Instruct", "google/gemma-4-31b-it")
    cases = [
        replace(case, pipeline_parallel_size=2, available_bytes=(40 * GIB, 35 * GIB), name=f"{case.name}, PP 2")
        for name in names
        for case in hybrid_cases(name, (2,))
    ]
    found = check_kv_cache(vllm_python, cases)
    assert (found.differences, found.not_built, found.equal) == ([], {}, len(cases))
