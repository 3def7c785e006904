"""How tokens fall on experts, and on the tiles in which kernels compute them."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache.models.catalog import find_gpu, load_model
from kvcache.shape.layer import Experts
from simulator.engines.vllm.arguments import EngineArgs
from simulator.latency.expert_routing import assign_tokens, fullest_rank
from simulator.latency.forms import latency_model
from simulator.latency.model import COMPUTE, served_model
from tests.simulator.latency.physical_times import step_times


@given(st.integers(1, 64), st.sampled_from([8, 16, 32, 128, 384]), st.floats(0.8, 1.2))
def test_a_token_chooses_its_experts_and_more_tokens_never_fewer(topk: int, num_experts: int, exponent: float) -> None:
    mixture = cast(Experts, SimpleNamespace(num_experts=num_experts, num_experts_per_tok=min(topk, num_experts)))
    dealt, _ = assign_tokens(mixture, np.arange(1.0, 5000.0), 1, exponent)
    assert dealt.distinct[0] == pytest.approx(min(topk, num_experts))
    assert (np.diff(dealt.distinct) >= 0).all()
    assert dealt.distinct[-1] <= num_experts
    assert (dealt.tiles >= dealt.distinct - 1e-9).all()


def test_few_experts_are_chosen_more_evenly_than_many() -> None:
    """Mixtral's 8 are all used by 16 tokens; of 256, a power law leaves 56 unused by 128 tokens (kernel tables)."""
    few, many = (cast(Experts, SimpleNamespace(num_experts=n, num_experts_per_tok=k)) for n, k in ((8, 2), (256, 8)))
    assert assign_tokens(few, np.array([16.0]), 1, 1.0)[0].distinct[0] > 7.7
    assert assign_tokens(many, np.array([128.0]), 1, 1.0)[0].distinct[0] == pytest.approx(200, rel=0.05)


def test_routers_of_random_weights_choose_evenly() -> None:
    """As draws of 8 of 128 do; vLLM's own strategy for it is an environment variable."""
    rng, mixture = np.random.default_rng(0), cast(Experts, SimpleNamespace(num_experts=128, num_experts_per_tok=8))
    drawn = [len({e for _ in range(32) for e in rng.choice(128, 8, replace=False)}) for _ in range(200)]
    (even, _), (uneven, _) = (
        assign_tokens(mixture, np.array([32.0]), 1, 0.97, evenly=evenly) for evenly in (True, False)
    )
    assert even.distinct[0] == pytest.approx(np.mean(drawn), rel=0.01)
    assert uneven.distinct[0] < 0.85 * even.distinct[0]
    options: dict[str, Any] = {"environment": ("VLLM_MOE_ROUTING_SIMULATION_STRATEGY=uniform_random",)}
    assert EngineArgs(**options).ignored_environment == ()
    assert step_times("qwen3-30b-a3b", **options).decode[32] > 1.1 * step_times("qwen3-30b-a3b").decode[32]
    other = EngineArgs(environment=("VLLM_MOE_ROUTING_SIMULATION_STRATEGY=normal_routing",))
    assert not other.routes_evenly and len(other.ignored_environment) == 1
    written = (options["environment"][0].replace("uniform", "Uniform"), other.environment[0])
    assert EngineArgs(environment=written[:1]).routes_evenly and not EngineArgs(environment=written).routes_evenly


@pytest.mark.parametrize("tokens", [1, 4, 16, 64, 512])
@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("evenly", [True, False])
def test_the_fullest_rank_has_as_much_as_where_experts_are_drawn(tokens: int, ranks: int, evenly: bool) -> None:
    """Popularities of a beta distribution as `assign_tokens` has it; a token chooses experts as often."""
    rng, mixture = np.random.default_rng(1), cast(Experts, SimpleNamespace(num_experts=256, num_experts_per_tok=8))
    chosen, layers = 8 / 256, 400
    popularity = np.full((layers, 256), chosen) if evenly else rng.beta(1, 1 / chosen - 1, (layers, 256))
    loads = rng.binomial(tokens, popularity)
    by_rank = loads.reshape(layers, ranks, -1)
    reached = (by_rank > 0).sum(axis=2)
    dealt, _ = assign_tokens(mixture, np.array([float(tokens)]), 1, 1.0, evenly=evenly)
    found = fullest_rank(mixture, np.array([float(tokens)]), dealt.distinct, 1 / ranks, evenly=evenly)
    for (ours,), drawn in zip(found, (reached, by_rank.sum(axis=2)), strict=True):
        assert ours == pytest.approx(drawn.max(axis=1).mean() / drawn.mean(), rel=0.12)


def test_more_tokens_never_give_the_fullest_rank_less() -> None:
    mixture, tokens = cast(Experts, SimpleNamespace(num_experts=128, num_experts_per_tok=4)), np.arange(1.0, 3000.0)
    dealt, _ = assign_tokens(mixture, tokens, 1, 0.97)
    experts, share = fullest_rank(mixture, tokens, dealt.distinct, 1 / 8)
    assert (np.diff(experts * dealt.distinct) >= -1e-9).all() and (np.diff(share * tokens) >= 0).all()
    assert (experts * dealt.distinct / 128 <= 1 + 1e-9).all() and experts[-1] >= 1
    assert share[-1] > 1.1  # popular experts stay together, however many tokens come


def test_few_tokens_read_few_experts() -> None:
    times = step_times("qwen3-30b-a3b")
    assert times.decode[64] > 3 * times.decode[1]
    assert step_times("llama-3.1-8b").decode[64] < 1.2 * step_times("llama-3.1-8b").decode[1]


def test_under_expert_parallelism_tiles_are_larger_and_fewer() -> None:
    """B200's kernel tables of MiniMax-M2.5 in fp8, 256 → 512 tokens: 174 → 240 µs on TP 4, 175 → 192 µs on EP 4."""
    grown = {}
    for on in (False, True):
        args = {"tensor_parallel_size": 4, "quantization": "fp8", "enable_expert_parallel": on}
        model = latency_model(served_model(load_model("minimax-m2.5"), find_gpu("b200-sxm"), **args))
        of_experts = model.causes_by_tokens[COMPUTE]
        grown[on] = of_experts[512] / of_experts[256]
    assert grown[True] < 0.8 * grown[False]
