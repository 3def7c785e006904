"""Which build of a catalog model a publisher's name stands for: the model, and its weight format."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from files.documents import ReadJson

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Build:
    """How some publishers' checkpoints in one weight format are named and packed; no `config`: the same weights."""

    owners: list[str]  # as on Hugging Face
    endings: list[str]  # of the name, in lower case
    like: str  # a checkpoint whose config is known
    source: str
    config: ReadJson  # the checkpoint's quantization_config
    models: list[str] = field(default_factory=list)  # how the names of the only ones begin; empty: any


def possible_builds(slug: str) -> Iterator[tuple[str, Build]]:
    """Models that a slug may be a build of, with the build; builds of few models come first.

    A slug without an owner may be anyone's, if its ending tells a format.
    """
    owner, _, name = slug.rpartition("--")
    for build in builds():
        is_theirs = not owner or owner in (each.lower() for each in build.owners)
        for ending in build.endings:
            is_such = name.endswith(ending) and (not build.models or name.startswith(tuple(build.models)))
            if is_theirs and is_such and (owner or ending):
                yield name.removesuffix(ending), build


@cache
def builds() -> tuple[Build, ...]:
    """Every known convention; those of few models come first."""
    content = tomllib.loads((_FOLDER / "builds.toml").read_text(encoding="utf-8"))
    return tuple(sorted((Build(**each) for each in content["builds"]), key=lambda build: not build.models))


def why_not_modelled(slug: str) -> str | None:
    """What is not modelled of a published model that is known to be refused; None for others."""
    reasons = tomllib.loads((_FOLDER / "not_modelled.toml").read_text(encoding="utf-8"))
    name = slug.rpartition("--")[2]
    return next((why for beginning, why in reasons.items() if name.startswith(beginning)), None)
