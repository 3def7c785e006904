"""What a deployment takes for granted is said."""

import pytest

from kvcache.catalog import find_gpu, load_model
from kvcache.memory import memory_budget
from simulator.deployment import pool_assumptions


@pytest.mark.parametrize(("model", "num_said"), [("openai/gpt-oss-20b", 1), ("llama-3.1-8b", 0)])
def test_a_hybrid_model_s_pool_is_said_to_be_simplified(model: str, num_said: int) -> None:
    said = pool_assumptions(memory_budget(load_model(model), find_gpu("h100-sxm")))
    assert len(said) == num_said
    assert all("errs towards fewer users" in source for _, _, source in said)
