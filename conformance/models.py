"""The catalog's models as benchmarks count and change them."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvcache.models.catalog import model_files
from kvcache.shape.architecture import Architecture


def catalog_entries() -> list[dict[str, Any]]:
    """Every model's file: its name, its config, its checkpoints in other formats."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in model_files()]


def quantized_names() -> Mapping[str, str]:
    """Checkpoints of a catalog model in another weight format: name on Hugging Face → the model's name."""
    return {name: entry["name"] for entry in catalog_entries() for name in entry.get("quantized", {})}


def with_attention(architecture: Architecture, **changes: Any) -> Architecture:
    """The model with other fields of `Attention` in every layer that has attention."""
    layers = (
        replace(layer, attention=replace(layer.attention, **changes)) if layer.attention else layer
        for layer in architecture.layers
    )
    return replace(architecture, layers=tuple(layers))
