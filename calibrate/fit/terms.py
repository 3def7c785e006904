"""Which constants can be fitted, how far they may be from what is shipped, and what is known of a fit."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from files.documents import read_toml
from files.errors import HeadcountError
from simulator.latency.gpu_constants import Constants
from simulator.latency.model import LogError
from simulator.latency.profile import OFFSETS, STEP_SCALE, Term, term_names, with_terms
from simulator.latency.step_time import FloatArray

PRIOR_SD: Mapping[str, float] = read_toml(Path(__file__).with_name("priors.toml"))
# Log errors of a fitted deployment on other loads, over 400 public runs: what few held-out runs are weighed against.
USUAL_TPOT, USUAL_TTFT = LogError(deployment=0.07, residual=0.04), LogError(deployment=0.12, residual=0.10)
USUAL_WEIGHT = 3.0  # runs that the usual errors count for


def prior_terms(names: tuple[str, ...]) -> tuple[Term, ...]:
    """Terms at their prior means, nothing known yet. Raises HeadcountError for a name that cannot be fitted."""
    for name in names:
        if name not in PRIOR_SD:
            known = ", ".join(PRIOR_SD)
            raise HeadcountError(f"no constant '{name}' can be fitted; there are {known}")
    assert set(PRIOR_SD) <= set(term_names()), "a prior of a constant that does not exist"
    return tuple(Term(name=name, prior_mean=0.0, prior_sd=PRIOR_SD[name], mean=0.0) for name in names)


def step_term_names() -> tuple[str, ...]:
    """What steps can tell: every constant but the time before the scheduler; the scale is in them already."""
    return tuple(name for name in PRIOR_SD if name not in (STEP_SCALE, "ingress_offset_s"))


@dataclass(frozen=True, kw_only=True, eq=False)
class Posterior:
    """What was fitted: means with covariance, in the order of the terms."""

    terms: tuple[Term, ...]
    covariance: FloatArray

    @property
    def mean(self) -> FloatArray:
        return np.array([term.mean for term in self.terms])

    def constants(self, base: Constants) -> Constants:
        return constants_at(base, self.terms, self.mean)


def constants_at(base: Constants, terms: tuple[Term, ...], values: FloatArray) -> Constants:
    return with_terms(base, {term.name: float(value) for term, value in zip(terms, values, strict=True)})


def inverse(precision: FloatArray) -> FloatArray:
    """Of a symmetric matrix that is positive definite, symmetric to the last digit."""
    found = cho_solve(cho_factor(precision), np.eye(len(precision)))
    return np.asarray((found + found.T) / 2)


def prior_sds(terms: tuple[Term, ...]) -> FloatArray:
    return np.array([term.prior_sd for term in terms])


def term_bounds(terms: tuple[Term, ...], base: Constants) -> tuple[FloatArray, FloatArray]:
    """The least and the largest value of each term.

    No share of a peak passes 1: where it goes by format, each stops there by itself, and the least sets the bound. No
    time falls below 0, no kernel computes first and reads afterwards.
    """
    lowers, uppers = np.full(len(terms), -np.inf), np.full(len(terms), np.inf)
    for place, term in enumerate(terms):
        if term.name in OFFSETS:
            lowers[place] = -getattr(base, OFFSETS[term.name])
        elif term.name == "gemm_overlap_power":
            lowers[place] = -math.log(base.gemm_overlap_power)  # 1: one after the other
        elif term.name.endswith("_share"):
            value = getattr(base, term.name)
            least = min(value.values()) if isinstance(value, Mapping) else value
            uppers[place] = max(-math.log(least), 0.0)
    return lowers, uppers


def difference_steps(terms: tuple[Term, ...]) -> FloatArray:
    """How far to move each term for a derivative: a part of its prior's width, in its own unit."""
    return np.array([0.02 * term.prior_sd if term.name in OFFSETS else 1e-3 for term in terms])
