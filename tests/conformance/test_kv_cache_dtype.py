"""What `--kv-cache-dtype auto` stands for, beside vLLM's own functions and attention layers."""

import json
from pathlib import Path

import pytest

from conformance.components.kv_cache import PROBE
from conformance.components.probes import FOLDER
from conformance.probing import answers as probed
from tests.kvcache.formats.kv_cache_configs import CASES

ASKED = ("auto", "bfloat16", "fp8", "fp8_e4m3")


@pytest.mark.slow
def test_vllm_makes_the_same_of_every_checkpoint(vllm_python: Path) -> None:
    cases = [
        {"name": json.dumps(config), "quantization_config": config, "latent": is_latent, "kv_cache_dtype": asked}
        for config, _, _ in CASES
        for is_latent in (False, True)
        for asked in ASKED
    ]
    answers = list(probed(vllm_python, PROBE, cases, failure="vLLM could not be run", folder=FOLDER))
    auto = {json.dumps(config): (plain, latent) for config, plain, latent in CASES}
    refused = 0
    for case, answer in zip(cases, answers, strict=True):
        expected = auto[str(case["name"])][bool(case["latent"])]
        if expected is None:
            refused += 1
            assert "refused" in answer, case
        else:
            asked = case["kv_cache_dtype"]
            assert answer.get("kv_cache_dtype") == (expected if asked == "auto" else asked), case
    assert refused == len(ASKED) * sum(plain is None for _, plain, _ in CASES) > 0
