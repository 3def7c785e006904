"""A population as a file says it: tables with distributions and sources."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from msgspec import Meta, structs

from files.documents import Json
from files.reading import InputError, shown
from files.schema import Strict, Tokens, typed
from workloads.clients import Clients, Library
from workloads.distributions import LAST_BELOW_1, Distribution, Spec, parse_distribution
from workloads.images import ImagesTable, ImageUse
from workloads.populations.at_limit import END, AtLimit
from workloads.populations.population import Population
from workloads.populations.retrieval import MOST_DISTINCT, MOST_EXPONENT, Place, Retrieval
from workloads.tenants import tenants_from_mapping


class _SystemPrompt(Strict, frozen=True, kw_only=True):
    tokens: Tokens
    source: str = ""


class _Retrieved(Strict, frozen=True, kw_only=True):
    chunks: Spec
    chunk_tokens: Annotated[int, Meta(ge=1, le=2**20, description="a whole number of tokens, 1 to 1,048,576")]
    distinct_chunks: Annotated[
        int, Meta(ge=1, le=MOST_DISTINCT, description=f"a whole number from 1 to {MOST_DISTINCT:,}")
    ]
    zipf_exponent: Annotated[float, Meta(ge=0, le=MOST_EXPONENT, description=f"a number from 0 to {MOST_EXPONENT:g}")]
    place: Place = "before_message"
    in_history: bool = False
    source: str = ""

    def retrieval(self, place: Path | str) -> Retrieval:
        given = structs.asdict(self)
        del given["source"]
        return Retrieval(**{**given, "chunks": parse_distribution(self.chunks, file=place, name="retrieved.chunks")})


class _Tables(Strict, frozen=True, kw_only=True):
    """A population's file."""

    title: str = ""
    system_prompt: Tokens | _SystemPrompt
    turns: Spec
    user_tokens: Spec
    output_tokens: Spec
    think_time_s: Spec
    retrieved: _Retrieved | None = None
    thinking_share: Spec | None = None
    at_limit: AtLimit = END
    patience_s: Spec | None = None
    client: Library | None = None
    tenants: Json | None = None
    images: ImagesTable | None = None


_DISTRIBUTIONS: Final = ("turns", "user_tokens", "output_tokens", "think_time_s")


def population_from_mapping(data: Mapping[str, object], *, name: str, file: Path | str = "") -> Population:
    """A population from the tables of a preset file such as workloads/presets/chat.toml. Raises InputError."""
    place = file or f"workload '{name}'"
    tables = typed(data, _Tables, place)
    prompt = tables.system_prompt
    parts: dict[str, Any] = {
        key: parse_distribution(getattr(tables, key), file=place, name=key) for key in _DISTRIBUTIONS
    }
    sources = {key: part["source"] for key, part in data.items() if isinstance(part, Mapping) and "source" in part}
    return Population(
        name=name,
        system_prompt_tokens=prompt.tokens if isinstance(prompt, _SystemPrompt) else prompt,
        retrieved=tables.retrieved.retrieval(place) if tables.retrieved else None,
        thinking_share=None if tables.thinking_share is None else _share(tables.thinking_share, place),
        at_limit=tables.at_limit,
        images=_images(tables.images),
        clients=_clients(tables, place),
        source="; ".join(f"{key}: {source}" for key, source in sources.items()),
        tables=data,
        **parts,
    )


def _images(given: ImagesTable | None) -> ImageUse | None:
    """None where there are none."""
    if given is None or not (given.per_request or given.per_conversation):
        return None
    sizes = structs.asdict(given)
    del sizes["source"]
    return ImageUse(**sizes)


def _clients(tables: _Tables, place: Path | str) -> Clients:
    """How long users and their clients wait. Raises InputError for what is out of range."""
    patience_s = None
    if tables.patience_s is not None:
        patience_s = parse_distribution(tables.patience_s, file=place, name="patience_s")
    tenants = None if tables.tenants is None else tenants_from_mapping(tables.tenants, place)
    try:
        return Clients(patience_s=patience_s, library=tables.client or Library(), tenants=tenants)
    except InputError as error:
        raise InputError(f"{shown(place)}: {error}") from None


def _share(spec: object, place: Path | str) -> Distribution:
    """A distribution of shares. Raises InputError for one that goes beyond 1."""
    found = parse_distribution(spec, file=place, name="thinking_share")
    if found.quantile(np.array([LAST_BELOW_1]))[0] > 1:
        raise InputError(f"{shown(place)}: thinking_share goes beyond 1; give a share from 0 to 1, or maximum = 1")
    return found
