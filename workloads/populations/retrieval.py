"""What a turn finds in documents and puts into its prompt: chunks, some of them more popular than others."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import numpy as np

from files.reading import InputError
from workloads.distributions import LAST_BELOW_1, Distribution, FloatArray
from workloads.requests import IntArray

Place = Literal["before_message", "after_system_prompt"]
MOST_CHUNKS: Final = 64
"""Of one turn; each has a content of its own."""
MOST_DISTINCT: Final = 10_000_000
MOST_EXPONENT: Final = 10.0
_CELLS: Final = 2**16


@dataclass(frozen=True, kw_only=True)
class Retrieval:
    """Chunks that are put into the prompt of each turn.

    The k-th most popular chunk is drawn with a probability proportional to k ** -zipf_exponent, each draw independent
    of all others. Chunks that follow the system prompt are found in the prefix cache where another request began with
    the same ones in the same order.
    """

    chunks: Distribution
    """Per turn, rounded to a whole number; 0 is none."""
    chunk_tokens: int
    distinct_chunks: int
    """In all documents together."""
    zipf_exponent: float
    """0: all are equally popular."""
    place: Place = "before_message"
    in_history: bool = False
    """Whether later turns of the conversation still have them in their prompts."""

    def __post_init__(self) -> None:
        if self.in_history and self.place == "after_system_prompt":
            raise InputError(
                "retrieved: chunks after the system prompt are replaced at each turn, so in_history must be false; "
                "for chunks that stay give place = 'before_message'"
            )
        if self.most_chunks > MOST_CHUNKS:
            found = f"a turn may have {self.most_chunks:,} chunks"
            raise InputError(f"retrieved: {found}; give chunks a maximum of at most {MOST_CHUNKS}")

    @property
    def most_chunks(self) -> int:
        return int(self.counts(np.array([LAST_BELOW_1]))[0])

    def counts(self, u: FloatArray) -> IntArray:
        """Chunks of turns."""
        return np.rint(self.chunks.quantile(u)).astype(np.int64)

    def fitted_counts(self, u: FloatArray, room: int) -> IntArray:
        """Chunks of turns, no more than fit whole in so many tokens."""
        return np.minimum(self.counts(u), room // self.chunk_tokens)

    def which(self, u: FloatArray) -> IntArray:
        """[n] numbers of chunks, 0 being the most popular."""
        from workloads.populations.kernels import find_ranks  # noqa: PLC0415  the compiler, where users are drawn

        found = np.empty(len(u), np.int64)
        find_ranks(u, *_ranks(self.distinct_chunks, self.zipf_exponent), found)
        return np.minimum(found, self.distinct_chunks - 1)

    def mean_tokens(self) -> float:
        """Per turn, where nothing is cut."""
        u = (np.arange(10_000) + 0.5) / 10_000
        return float(self.counts(u).mean()) * self.chunk_tokens


@lru_cache(maxsize=4)
def _ranks(distinct: int, exponent: float) -> tuple[FloatArray, IntArray]:
    """The share of draws that each chunk and the more popular ones get; how many end by each of _CELLS."""
    weights = np.arange(1, distinct + 1, dtype=np.float64) ** -exponent
    total = np.cumsum(weights)
    cumulative = np.asarray(total / total[-1])
    guide = np.searchsorted(cumulative, np.arange(_CELLS + 1) / _CELLS, side="right")
    return cumulative, np.asarray(guide, np.int64)
