"""The arrays of images before a run."""

from typing import Any

import numpy as np

from simulator.core import layout
from simulator.core.vllm.layout import CACHED_IMAGE, ENCODER, IMAGE, IMAGES_OF
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.fleet import Fleet
from workloads.images import RequestImages
from workloads.requests import RequestTable


def image_arrays(fleet: Fleet, table: RequestTable) -> dict[str, Any]:
    """Empty encoder caches, and the images of a table's requests; empty arrays where all prompts are text."""
    found = table.images
    if found is None:
        return {
            "images": np.zeros(0, IMAGE), "images_of": np.zeros(0, IMAGES_OF), "image_flags": np.zeros(0, np.int8),
            "planned_images": np.zeros((0, 1, 2), np.int32), "encoders": np.zeros(0, ENCODER),
            "encoder_cache": np.zeros((0, 1), CACHED_IMAGE),
        }  # fmt: skip
    images = _images(found)
    of = np.zeros(table.num_attempts * table.num_requests, IMAGES_OF)
    of["start"], of["num"] = np.tile(found.start, table.num_attempts), np.tile(found.num, table.num_attempts)
    of["flags"] = np.cumsum(of["num"]) - of["num"]
    of["step"] = layout.NONE
    encoders, engine = np.zeros(fleet.num_engines, ENCODER), 0
    for pool in fleet.pools:
        engines = slice(engine, engine + pool.num_engines)
        encoders["free_slots"][engines] = encoders["freeable_slots"][engines] = _cache_size(pool.engine)
        engine += pool.num_engines
    least = max(int(images["embeddings"].min(initial=2**30)), 1)
    slots = max(_cache_size(pool.engine) for pool in fleet.pools) // least + 1
    cache = np.zeros((fleet.num_engines, slots), CACHED_IMAGE)
    cache["content"] = layout.NONE
    return {
        "images": images,
        "images_of": of,
        "image_flags": np.zeros(int(of["num"].sum()), np.int8),
        "planned_images": np.zeros((fleet.num_engines, max(found.most, 1), 2), np.int32),
        "encoders": encoders,
        "encoder_cache": cache,
    }


def encoder_budget(engine: EngineConfig, table: RequestTable) -> int:
    """Of a pool's engines, in embeddings of a step; 0 where all prompts are text."""
    return 0 if table.images is None or engine.encoder is None else engine.encoder.max_num_encoder_input_tokens


def _cache_size(engine: object) -> int:
    limits = engine.encoder if isinstance(engine, EngineConfig) else None
    return limits.encoder_cache_size if limits else 0


def _images(found: RequestImages) -> Any:
    values, shapes, offset = np.zeros(len(found.content), IMAGE), found.shapes, found.offset
    values["content"] = np.unique(found.content, return_inverse=True)[1]
    values["offset"] = offset
    of_shape = {
        name: np.array([getattr(shape, name) for shape in shapes])[found.shape]
        for name in ("length", "first", "last", "embeddings", "patches", "attended")
    }
    for name, part in (("end", "length"), ("first", "first"), ("last", "last")):
        values[name] = offset + of_shape[part]
    values["embeddings"] = of_shape["embeddings"]
    values["patches"] = of_shape["patches"]
    values["pairs"] = of_shape["patches"].astype(np.float64) * of_shape["attended"]
    return values
