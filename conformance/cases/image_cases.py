"""Random cases with images in their prompts, some of them seen again in other prompts."""

from dataclasses import dataclass, replace

import numpy as np

from conformance.cases.engine_settings import random_engine
from conformance.cases.request_tables import TICK_S, cancellations, case_table
from kvcache.shape.images import ImageTokens
from simulator.engines.vllm.engine import EngineConfig
from simulator.engines.vllm.images import EncoderLimits
from workloads.images import RequestImages
from workloads.requests import NO_PREDECESSOR, OPEN_END, RequestTable, with_waits

MOST_MESSAGE_IMAGES, MOST_FAMILY_IMAGES, MOST_TURNS = 2, 2, 3  # at most eight: vLLM frees more in the order of a set
Placed = tuple[int, int]  # which image, and where its placeholder begins


@dataclass(kw_only=True)
class _Row:
    """One request: its prompt ends behind a message that begins with images."""

    family: int
    content: int
    follows: int
    prompt: int
    output: int
    images: list[Placed]


def image_table(rng: np.random.Generator, shapes: list[ImageTokens]) -> RequestTable:
    """Sessions of one to three turns over a few shared prefixes; both may have images. Some prompts come twice."""
    families = [_message(rng, shapes, 0, MOST_FAMILY_IMAGES) for _ in range(3)]
    rows: list[_Row] = []
    for content in range(10, 10 + int(rng.integers(3, 25))):
        family, previous = int(rng.integers(0, 3)), NO_PREDECESSOR
        end, seen = families[family]
        for _ in range(int(rng.integers(1, MOST_TURNS + 1))):
            end, images = _message(rng, shapes, end, MOST_MESSAGE_IMAGES)
            output = int(rng.integers(1, 30))
            seen = [*seen, *images]
            rows.append(_Row(family=family, content=content, follows=previous, prompt=end, output=output, images=seen))
            previous, end = len(rows) - 1, end + output
    for first in [row for row in rows if row.follows == NO_PREDECESSOR and rng.random() < 0.3]:
        rows.append(replace(first, output=int(rng.integers(1, first.output + 1))))  # not into the next message
    return replace(_table(rng, rows, [end for end, _ in families]), images=_images(rows, shapes))


def image_shapes(rng: np.random.Generator) -> list[ImageTokens]:
    """Of as many images, whose marks may be in the placeholder or outside."""
    found = []
    for _ in range(int(rng.integers(2, 20))):
        embeddings, (before, first, behind) = int(rng.integers(1, 60)), rng.integers(0, 3, 3).tolist()
        last = first + embeddings
        image = ImageTokens(
            before=before,
            length=last + behind,
            first=first,
            last=last,
            embeddings=embeddings,
            patches=4 * embeddings,
            attended=4 * embeddings,
        )
        found.append(image)
    return found


def encoder_limits(rng: np.random.Generator, shapes: list[ImageTokens]) -> EncoderLimits:
    """From hardly enough for the largest image to plenty."""
    largest = max(shape.embeddings for shape in shapes)
    return EncoderLimits(
        max_num_encoder_input_tokens=largest + int(rng.choice([0, 0, 10, 60, 1000])),
        encoder_cache_size=largest + int(rng.choice([0, 0, 20, 100, 1000])),
    )


def image_settings(rng: np.random.Generator, number: int) -> tuple[RequestTable, EngineConfig]:
    """A table and an engine for it; clients cancel in a third."""
    shapes, block_size = image_shapes(rng), int(rng.choice([8, 16, 16, 32, 64]))
    table = image_table(rng, shapes)
    if number % 3 == 0:
        table = with_waits(table, cancellations(rng, table))
    engine = random_engine(
        rng, table, block_size, is_storm=bool(rng.random() < 0.4), caches_states=bool(rng.random() < 0.15)
    )
    stages = engine.pipeline_parallel_size if number % 3 else 1
    engine = replace(engine, speculation=None, pipeline_parallel_size=stages, encoder=encoder_limits(rng, shapes))
    return table, engine


def _message(rng: np.random.Generator, shapes: list[ImageTokens], start: int, most: int) -> tuple[int, list[Placed]]:
    """Images from there on, then text; where it ends, and the images."""
    images, end = [], start
    for which in rng.integers(0, len(shapes), int(rng.integers(0, most + 1))).tolist():
        images.append((which, end + shapes[which].before))
        end += shapes[which].tokens + (int(rng.integers(0, 12)) if rng.random() < 0.5 else 0)
    return end + int(rng.integers(0 if images else 1, 60)), images


def _table(rng: np.random.Generator, rows: list[_Row], ends: list[int]) -> RequestTable:
    spacing = int(rng.choice([0, 1, 8, 40]))
    return case_table(
        rng,
        rng.integers(0, 1 + spacing * len(rows), len(rows)) * TICK_S,
        np.array([row.follows for row in rows]),
        prompt=np.array([row.prompt for row in rows]),
        output=np.array([row.output for row in rows]),
        content=np.array([[row.family, row.content] for row in rows]),
        ends=np.array([[max(ends[row.family], 1), OPEN_END] for row in rows]),
    )


def _images(rows: list[_Row], shapes: list[ImageTokens]) -> RequestImages:
    counts = np.array([len(row.images) for row in rows])
    placed = [image for row in rows for image in row.images]
    which = np.array([image for image, _ in placed], np.int64)
    return RequestImages(
        shapes=tuple(shapes),
        start=(np.cumsum(counts) - counts).astype(np.int64),
        num=counts.astype(np.int32),
        content=which,
        offset=np.array([offset for _, offset in placed], np.int32),
        shape=which.astype(np.int32),
    )
