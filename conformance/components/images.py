"""Our tokens of images compared with those of transformers' and vLLM's own processors."""

from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from conformance.components.probes import FOLDER
from conformance.probing import Record, answers
from files.errors import HeadcountError
from kvcache.models.catalog import load_model
from kvcache.shape.images import ImageRule

MODELS = {
    "glm4v": "zai-org/GLM-4.1V-9B-Thinking",
    "internvl_chat": "OpenGVLab/InternVL3_5-8B",
    "kimi_vl": "moonshotai/Kimi-VL-A3B-Instruct",
    "llama4": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "mistral3": "mistralai/Mistral-Small-3.1-24B-Instruct-2503",
    "qwen2_5_vl": "Qwen/Qwen2.5-VL-7B-Instruct",
    "qwen3_vl": "Qwen/Qwen3-VL-8B-Instruct",
}  # by the outer `model_type`; images of one size alone become as many tokens in others


@dataclass(kw_only=True)
class ImageComparison:
    """What was compared; `differences` holds name → (ours, theirs), embeddings and length of the placeholder."""

    vllm_version: str = ""
    equal: int = 0
    refused_by_both: int = 0
    differences: dict[str, tuple[object, object]] = field(default_factory=dict)


def image_cases(seed: int, count: int) -> list[Record]:
    """So many random sizes for each of MODELS, from icons to posters, some of them narrow."""
    rng = np.random.default_rng(seed)
    return [
        {**asdict(rule), "name": f"{kind} {number}", "type": kind, "width": width, "height": height}  # type: ignore[call-overload]
        for kind, rule in _rules().items()
        for number, (width, height) in enumerate(_size(rng) for _ in range(count))
    ]


def check_images(python: Path, cases: list[Record]) -> ImageComparison:
    """Count every case's tokens here, and by the processors of `python`.

    Raises HeadcountError where vLLM cannot be run there.
    """
    found, rules = ImageComparison(), _rules()
    theirs = answers(python, "images_probe", cases, failure="images could not be counted", folder=FOLDER)
    for case, answer in zip(cases, theirs, strict=True):
        found.vllm_version = answer["vllm"]
        compare(found, case, rules[case["type"]], answer)
    return found


def compare(found: ImageComparison, case: Record, rule: ImageRule, theirs: Record) -> None:
    """Enter one case with what the probe says of it."""
    their = None if "refused" in theirs else (theirs["embeddings"], theirs["length"])
    try:
        image = rule.of(case["width"], case["height"])
        ours = (image.embeddings, image.length)
    except HeadcountError:
        ours = None
    if ours != their:
        found.differences[f"{case['name']}, {case['width']}x{case['height']}"] = (ours, their)
    elif ours is None:
        found.refused_by_both += 1
    else:
        found.equal += 1


def _rules() -> dict[str, ImageRule]:
    found = {kind: load_model(name).image_rule for kind, name in MODELS.items()}
    return {kind: rule for kind, rule in found.items() if rule is not None}


def _size(rng: np.random.Generator) -> tuple[int, int]:
    width = int(np.exp(rng.uniform(np.log(20), np.log(6000))))
    ratio = np.exp(rng.normal(0, 1.6 if rng.random() < 0.15 else 0.4))
    return width, int(np.clip(width * ratio, 20, 6000))
