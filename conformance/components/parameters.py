"""Our parameter counts compared with the models that transformers builds from the same configs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from conformance.components.cases.parameter_cases import model_types, random_config
from conformance.components.probes import FOLDER
from conformance.models import catalog_entries
from conformance.probing import Record, answers
from kvcache.models.config.reader import from_config
from kvcache.shape.parameters import COMPONENTS, parameter_counts

# What transformers builds and vLLM does not load; ours is what vLLM loads. Two differences are not among the counts
# compared: vLLM pads the vocabulary to 64 rows (`kvcache.parallelism`; 61 more in Granite 3.1 2B), and vLLM 0.32 runs
# Phi on transformers' layers without the bias of lm_head (51,200 in phi-2), which ours counts, as the checkpoint does.
NOT_LOADED = {"vision_head": "SigLIP's pooling head: vLLM 0.32 models/siglip.py builds it for classification alone"}


@dataclass(frozen=True, kw_only=True)
class ParameterDifference:
    """A config whose counts differ; `components` gives ours, transformers' for each that does."""

    name: str
    config: dict[str, Any]
    components: dict[str, tuple[int, int]]


@dataclass(kw_only=True)
class ParameterComparison:
    """What was compared, with every difference."""

    transformers_version: str = ""
    equal: list[str] = field(default_factory=list)  # names of configs whose counts are equal in every component
    model_types: set[str] = field(default_factory=set)  # of those
    model_classes: set[str] = field(default_factory=set)
    parameters: int = 0  # in all that were compared
    buffers: dict[str, int] = field(default_factory=dict)  # parameters to vLLM, buffers to transformers, by name
    not_loaded: dict[str, int] = field(default_factory=dict)  # by name, see NOT_LOADED
    unknown: dict[str, str] = field(default_factory=dict)  # name → why transformers cannot build it
    differences: list[ParameterDifference] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain data, sets sorted."""
        return {key: sorted(value) if isinstance(value, set) else value for key, value in asdict(self).items()}


def catalog_configs() -> dict[str, dict[str, Any]]:
    """Every catalog model's config, by name."""
    return {entry["name"]: entry["config"] for entry in catalog_entries()}


def random_configs(seed: int, num_per_type: int) -> dict[str, dict[str, Any]]:
    """Small configs of every `model_type`, by `TYPE #NUMBER`."""
    return {
        f"{model_type} #{number}": random_config(seed, model_type, number)
        for model_type in model_types()
        for number in range(num_per_type)
    }


def check_parameters(python: Path, configs: Mapping[str, dict[str, Any]]) -> ParameterComparison:
    """Count every config's parameters here, and in the model that the transformers of `python` builds without memory.

    Raises HeadcountError where transformers cannot be run there, or where we refuse a config.
    """
    found = ParameterComparison()
    lines = [{"name": name, "config": config} for name, config in configs.items()]
    theirs = answers(python, "parameters_probe", lines, failure="transformers could not be run", folder=FOLDER)
    for (name, config), answer in zip(configs.items(), theirs, strict=True):
        compare(found, name, config, answer)
    return found


def compare(found: ParameterComparison, name: str, config: dict[str, Any], theirs: Record) -> None:
    """Enter one config with what the probe says of it."""
    found.transformers_version = theirs["transformers"]
    if "unknown" in theirs:
        found.unknown[name] = theirs["unknown"]
        return
    assert theirs["total"] == sum(theirs["parameters"].values()), "every parameter has one component"
    left_out = sum(theirs["parameters"].get(component, 0) for component in NOT_LOADED)
    held = sum(theirs["buffers"].values())
    if left_out:
        found.not_loaded[name] = left_out
    if held:
        found.buffers[name] = held
    found.parameters += theirs["total"] + held - left_out
    components = _differing(parameter_counts(from_config(config, name=name)), theirs)
    if components:
        found.differences.append(ParameterDifference(name=name, config=config, components=components))
        return
    found.equal.append(name)
    found.model_types.add(config["model_type"])
    found.model_classes.add(theirs["model_class"])


def _differing(ours: Mapping[str, int], theirs: Record) -> dict[str, tuple[int, int]]:
    parameters, buffers = theirs["parameters"], theirs["buffers"]
    components = sorted({*COMPONENTS, *parameters, *buffers} - NOT_LOADED.keys())
    pairs = {each: (ours.get(each, 0), parameters.get(each, 0) + buffers.get(each, 0)) for each in components}
    return {each: pair for each, pair in pairs.items() if pair[0] != pair[1]}
