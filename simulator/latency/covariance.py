"""How far a GPU's constants may be off, and which of them together."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from files.errors import HeadcountError
from simulator.latency.gpu_constants import GENERAL, Constants
from simulator.latency.step_time import FloatArray

FOLDER = Path(__file__).parent / "covariances"
MOST_OF_PEAK = 0.95  # no share may pass it
# Keys of a mapping for which nothing was measured go with those that were.
FOLLOWERS = {"fp16": "bf16", "int8": "fp8"}
Term = tuple[str, str | None]  # a constant, with its key where it is a mapping


@dataclass(frozen=True, eq=False)
class Covariance:
    """Of the logarithms of constants about those shipped; what no term names is taken as known."""

    terms: tuple[Term, ...]
    matrix: FloatArray  # [terms, terms]

    @cached_property
    def sd(self) -> Mapping[Term, float]:
        return dict(zip(self.terms, np.sqrt(np.diag(self.matrix)).tolist(), strict=True))

    def draw(self, constants: Constants, rng: np.random.Generator) -> Constants:
        """One sample of the constants."""
        logs = self._root @ rng.standard_normal(len(self.terms))
        return multiplied(constants, dict(zip(self.terms, logs.tolist(), strict=True)))

    @cached_property
    def _root(self) -> FloatArray:
        """Of the matrix: times its transpose it gives the matrix."""
        values, vectors = np.linalg.eigh(self.matrix)
        root: FloatArray = vectors * np.sqrt(np.abs(values))
        return root


def covariance_of(constants: Constants) -> Covariance:
    """That of the constants' file, which names it; of most GPUs, how far constants differ between GPUs."""
    return read_covariance(constants.covariance)


def multiplied(constants: Constants, logs: Mapping[Term, float]) -> Constants:
    """The constants times the exponentials of these logarithms; keys that were not measured follow others."""
    changed: dict[str, Any] = {}
    for (name, key), log in logs.items():
        value = changed.get(name, getattr(constants, name))
        most = MOST_OF_PEAK if name.endswith("_share") else np.inf
        if key is None:
            changed[name] = _times(value, log, most)
        else:
            together = [item for item in value if FOLLOWERS.get(item, item) == key]
            changed[name] = {**value, **{item: _times(value[item], log, most) for item in together}}
    return replace(constants, **changed)


def _times(value: float, log: float, most: float) -> float:
    return min(value * float(np.exp(log)), max(most, value))


@cache
def read_covariance(name: str) -> Covariance:
    """A file of `covariances`: GENERAL is how far constants differ between GPUs.

    Raises HeadcountError on a term that is no constant or a matrix of another size."""
    content = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    if "sd" in content:
        alone, _ = general_widths()
        names = [term for term, _ in alone]
        return Covariance(
            tuple(alone), np.diag(np.square(list(alone.values()))) + in_common(names, [name] * len(names))
        )
    terms, rows = tuple(map(_term, content["terms"])), content["covariance"]
    if [len(row) for row in rows] != list(range(1, len(terms) + 1)):
        raise HeadcountError(
            f"simulator/latency/covariances/{name}.toml: {len(terms)} terms need a triangle of such size"
        )
    matrix = np.zeros((len(terms), len(terms)))
    for place, row in enumerate(rows):
        matrix[place, : place + 1] = matrix[: place + 1, place] = row
    return Covariance(terms, matrix)


@cache
def general_widths() -> tuple[Mapping[Term, float], Mapping[str, float]]:
    """Standard deviations between GPUs: of each constant by itself; of what those have in common whose names end so."""
    content = tomllib.loads((FOLDER / f"{GENERAL}.toml").read_text(encoding="utf-8"))
    return {_term(text): sd for text, sd in content["sd"].items()}, content["together"]


def in_common(names: Sequence[str], groups: Sequence[str]) -> FloatArray:
    """Covariance by what constants of one group have in common whose names end alike; "" is no group."""
    total = np.zeros((len(names), len(names)))
    for ending, sd in general_widths()[1].items():
        own = np.array([group * name.endswith(ending) for name, group in zip(names, groups, strict=True)])
        total += sd**2 * ((own[:, None] == own) & (own != ""))
    return total


def _term(text: str) -> Term:
    name, _, key = text.partition(".")
    if name not in Constants.__dataclass_fields__:
        raise HeadcountError(f"simulator/latency/covariances: {name} is not a constant")
    return name, key or None
