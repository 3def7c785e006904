"""What speculative decoding costs in time and memory, and what it gains."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcache.models.catalog import find_gpu, load_model
from kvcache.models.drafters import find_drafter
from kvcache.parallelism import Parallelism
from simulator.engines.memory import memory_budget
from simulator.engines.vllm.acceptance import conditional, published_rates
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.speculation import Speculation, SpeculativeConfig, accepted_drafts
from simulator.latency.forms import latency_model
from simulator.latency.model import served_model
from simulator.latency.step_time import BatchSums

MODEL, GPU = "llama-3.1-8b", "h100-sxm"
DRAFTERS = {
    "eagle": ("eagle", None),
    "eagle3": ("eagle", None),
    "mtp": ("eagle", None),
    "draft_model": ("draft_model", "llama-3.2-1b-instruct"),
    "ngram": ("ngram", None),
}


def speculation(name: str = "eagle3", drafts: int = 3, rate: Any = 0.7, **given: Any) -> Speculation:
    method, model = DRAFTERS[name]
    return Speculation(
        method=method, name=name, model=model, num_speculative_tokens=drafts, acceptance_rate=rate, **given
    )


def decode_s(drafts: Speculation | None, sequences: int = 8, context: int = 1000, **given: Any) -> float:
    """A step of so many decodes, with their drafts."""
    args = EngineArgs(speculation=drafts, **given)
    model = latency_model(served_model(load_model(MODEL), find_gpu(GPU), args))
    sums = BatchSums()
    for _ in range(sequences):
        sums.add(start=context, end=context + args.decode_width, is_sampled=True, is_decode=True, window=1)
    return model.step_times.step_s(sums)


def token_s(drafts: Speculation | None, **given: Any) -> float:
    return decode_s(drafts, **given) / (drafts.tokens_per_step if drafts else 1)


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("vllm_version", ["0.13.0", "0.20.0", "0.32.0"])
def test_drafts_that_are_never_accepted_cost_more_than_none(name: str, vllm_version: str) -> None:
    assert token_s(speculation(name, rate=0.0), vllm_version=vllm_version) > token_s(None, vllm_version=vllm_version)


@pytest.mark.parametrize("name", DRAFTERS)
def test_k_drafts_make_tokens_come_at_most_k_and_one_times_as_fast(name: str) -> None:
    for drafts in (1, 4):
        assert token_s(speculation(name, drafts, 1.0)) > token_s(None) / (1 + drafts)


def test_the_more_drafts_are_accepted_the_sooner_tokens_come() -> None:
    by_rate = [token_s(speculation(rate=rate)) for rate in (0.0, 0.3, 0.6, 0.9, 1.0)]
    assert all(more < less for less, more in pairwise(by_rate))


@pytest.mark.parametrize("sequences", [1, 8, 200])
def test_another_draft_lengthens_a_step(sequences: int) -> None:
    steps = [decode_s(speculation(drafts=drafts), sequences) for drafts in (1, 2, 4, 7)]
    assert all(longer > shorter for shorter, longer in pairwise(steps))


def test_drafting_gains_less_as_the_batch_grows() -> None:
    """A small batch waits for weights, in whose shadow drafts are verified; a large one computes."""
    few, many = (token_s(None, sequences=n) / token_s(speculation(), sequences=n) for n in (1, 256))
    assert few > 1.5 * many


def test_drafting_in_parallel_takes_one_pass() -> None:
    in_turn, at_once = (speculation(drafts=7, parallel_drafting=is_parallel) for is_parallel in (False, True))
    none = decode_s(None, sequences=1)
    assert decode_s(at_once, sequences=1) - none < (decode_s(in_turn, sequences=1) - none) / 2


def test_a_larger_drafter_takes_longer() -> None:
    small, head = decode_s(speculation("draft_model")), decode_s(speculation("eagle3"))
    assert decode_s(None) < head < small


def test_launching_passes_takes_its_time_where_the_host_waits_for_tokens() -> None:
    """Before 0.14 drafting began when the host knew a step's tokens; later the host is ahead of a small model's GPU."""
    more = {
        version: decode_s(speculation(drafts=4), vllm_version=version) - decode_s(None, vllm_version=version)
        for version in ("0.13.0", "0.20.0")
    }
    assert more["0.13.0"] > more["0.20.0"] + 2e-3


def test_whole_passes_are_replayed_since_the_release_that_runs_the_model_so() -> None:
    """Model Runner V2: of dense models since 0.25.1, of mixtures since 0.29; on the host a pass is one launch then."""
    for model, version, is_replayed in (
        (MODEL, "0.25.0", False), (MODEL, "0.25.1", True), ("deepseek-v3", "0.28.0", False),
        ("deepseek-v3", "0.29.0", True),
    ):  # fmt: skip
        hosts = [
            latency_model(
                served_model(load_model(model), find_gpu("h200-sxm"), speculation=drafts, vllm_version=version)
            ).step_times.host_base_s
            for drafts in (None, speculation("eagle3"))
        ]
        assert (hosts[0] == hosts[1]) is is_replayed


def test_a_head_holds_the_weights_that_are_published() -> None:
    """The EAGLE-3 head of Llama-3.1-8B is a file of 0.85 GB in 16 bits, DeepSeek-V3's module has 11.5 B parameters."""
    for model, kind, parameters in ((MODEL, "eagle3", 0.425e9), ("deepseek-v3", "mtp", 11.5e9)):
        drafter = find_drafter(load_model(model), kind)
        assert drafter is not None
        assert sum(tensor.elements for tensor in drafter.tensors(Parallelism())) == pytest.approx(parameters, rel=0.02)


@pytest.mark.parametrize("name", ["eagle", "eagle3", "mtp", "draft_model"])
def test_a_drafter_takes_its_weights_and_its_layers_of_the_kv_cache(name: str) -> None:
    without, budget = (
        memory_budget(load_model(MODEL), find_gpu(GPU), speculation=drafts) for drafts in (None, speculation(name))
    )
    drafter = find_drafter(load_model(MODEL), name, DRAFTERS[name][1])
    assert drafter is not None
    held = sum(2 * tensor.elements for tensor in drafter.tensors(Parallelism()))
    assert budget.weights_bytes - without.weights_bytes == pytest.approx(held, rel=0.02)
    heads = {"draft_model": 16 * 8 * 64}.get(name, 8 * 128)  # layers × heads × width
    assert budget.kv_bytes_per_token - without.kv_bytes_per_token == 2 * 2 * heads
    assert budget.available_kv_bytes < without.available_kv_bytes - 0.98 * held
    assert budget.num_gpu_blocks < without.num_gpu_blocks
    assert "drafter's memory" in {row for row, _, _ in budget.assumptions}


def test_a_head_whose_config_is_at_hand_is_not_assumed(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    layer = {"num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "draft_vocab_size": 64000}
    config.write_text(
        json.dumps(
            layer
            | {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 2, "vocab_size": 128256}
            | {"max_position_embeddings": 2048, "torch_dtype": "bfloat16"}
        )
    )
    assumed, read = (find_drafter(load_model(MODEL), "eagle3", model) for model in (None, str(config)))
    assert assumed is not None
    assert read is not None
    assert (assumed.arch.vocab_size, read.arch.vocab_size) == (32000, 64000)
    assert (len(assumed.arch.layers), len(read.arch.layers)) == (1, 2)


def test_n_grams_take_no_memory() -> None:
    plain, drafted = (
        memory_budget(load_model(MODEL), find_gpu(GPU), speculation=drafts).num_gpu_blocks
        for drafts in (None, speculation("ngram"))
    )
    assert plain == drafted


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_logged_shares_are_products_of_the_rates(rates: list[float]) -> None:
    shares, product = [], 1.0
    for rate in rates:
        product *= rate
        shares.append(product)
    drafted = Speculation(method="ngram", num_speculative_tokens=len(rates), acceptance_rate=tuple(conditional(shares)))
    assert drafted.tokens_per_step == pytest.approx(1 + sum(shares))


@settings(max_examples=30)
@given(st.lists(st.sampled_from([0.0, 0.3, 0.8, 1.0]), min_size=1, max_size=4))
def test_so_many_drafts_are_accepted_as_their_rates_say(rates: list[float]) -> None:
    accepted = [accepted_drafts(request, 10, rates) for request in range(4000)]
    expected = Speculation(method="ngram", num_speculative_tokens=len(rates), acceptance_rate=tuple(rates))
    assert 1 + sum(accepted) / len(accepted) == pytest.approx(expected.tokens_per_step, abs=0.1)


def test_published_rates_are_rates_with_a_source() -> None:
    for found in published_rates().values():
        assert all(0 < rate <= 1 for rate in found.acceptance_rate)
        assert found.source


@pytest.mark.parametrize(
    ("model", "method"),
    [("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "eagle3"), ("yuhuili/EAGLE-LLaMA3-Instruct-8B", "eagle"),
     ("[ngram]", "ngram"), ("Qwen/Qwen3-0.6B", "draft_model")],
)  # fmt: skip
def test_without_a_method_vllm_takes_that_of_the_drafter_s_name(model: str, method: str) -> None:
    given = {"model": model, "num_speculative_tokens": 3, "acceptance_rate": 0.5}
    found = SpeculativeConfig().read(given)
    assert found == SpeculativeConfig().read({**given, "method": method})
    assert found.name == method
