"""Small models, with the splits over ranks in which their weights are compared with vLLM's."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Config = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class WeightCase:
    """One model on the first rank of one split."""

    name: str
    config: Config
    tensor_parallel_size: int = 1
    data_parallel_size: int = 1
    enable_expert_parallel: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain data, as the probe takes it."""
        return asdict(self)


MODELS = Path(__file__).parent / "weight_models.json"  # by model_type: a small config, with the class that vLLM builds
_MANY_EXPERTS = ("qwen3_moe", "qwen2_moe", "deepseek_v3", "glm4_moe", "gpt_oss", "qwen3_next", "granitemoehybrid")


def weight_cases() -> Iterator[WeightCase]:
    """Every model at TP 1, 2, 4; those with many experts also under data and expert parallelism."""
    for model_type, fields in json.loads(MODELS.read_text(encoding="utf-8")).items():
        config = {"model_type": model_type, **fields}
        for tp in (1, 2, 4):
            yield WeightCase(name=f"{model_type} TP {tp}", config=config, tensor_parallel_size=tp)
        if model_type not in _MANY_EXPERTS:
            continue
        for tp, dp, experts in ((2, 1, True), (1, 2, True), (2, 2, True), (2, 2, False)):
            yield WeightCase(
                name=f"{model_type} TP {tp} DP {dp}{' EP' if experts else ''}",
                config=config,
                tensor_parallel_size=tp,
                data_parallel_size=dp,
                enable_expert_parallel=experts,
            )
