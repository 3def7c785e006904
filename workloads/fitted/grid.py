"""How long answers are to how long prompts: how many requests have both ranks in each cell of a grid."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from workloads.description.lengths import ranks
from workloads.fitted.marginals import FEWEST
from workloads.requests import FloatArray, IntArray

EDGES: Final = np.array([0, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99, 1])
"""Of cells of ranks: finer in the tails, where a limit on the whole context makes long prompts have short answers."""
CELLS: Final = len(EDGES) - 1
FEWEST_FOR_GRID: Final = round(FEWEST / EDGES[1])


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Dependence of any shape; a normal copula holds only what rises or falls evenly."""

    counts: tuple[tuple[int, ...], ...]
    """[prompt's cell][answer's cell] requests of the trace."""

    def scores(self, prompts: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Values whose ranks go with those of the prompts as the answers' do."""
        row = _cells(prompts, rng)
        share = np.cumsum(np.asarray(self.counts, np.float64), axis=1)
        luck = rng.random(len(row))
        column = (luck[:, None] >= (share / share[:, -1:])[row, :-1]).sum(axis=1)
        return np.asarray(EDGES[column] + np.diff(EDGES)[column] * rng.random(len(row)))


def fit_grid(prompts: npt.ArrayLike, answers: npt.ArrayLike) -> Grid | None:
    """None of few requests."""
    if np.size(prompts) < FEWEST_FOR_GRID:
        return None
    rng = np.random.default_rng(0)
    counts = np.zeros((CELLS, CELLS), np.int64)
    np.add.at(counts, (_cells(prompts, rng), _cells(answers, rng)), 1)
    return Grid(counts=tuple(map(tuple, counts.tolist())))


def _cells(values: npt.ArrayLike, rng: np.random.Generator) -> IntArray:
    """[n] cell of each one's rank; equal values have ranks in random order."""
    found = np.asarray(values)
    shuffled = rng.permutation(len(found))
    rank = np.empty(len(found))
    rank[shuffled] = ranks(found[shuffled], "first")
    return np.searchsorted(EDGES, (rank - 0.5) / len(found), side="right") - 1
