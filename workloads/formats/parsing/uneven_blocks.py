"""What requests share whose block ids name blocks of different lengths, such as a system prompt and passages."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from workloads.requests import OPEN_END

_ROOT = -1


class UnevenBlocks:
    """Takes rows one by one; an id names a block only after the ids before it."""

    def __init__(self) -> None:
        self._chains: dict[tuple[int, int], int] = {}
        self._of_row: dict[int, list[tuple[int, int]]] = {}

    def __len__(self) -> int:
        return len(self._of_row)

    def add(self, row: int, ids: Sequence[int], tokens: Sequence[int], prompt_tokens: int) -> None:
        """Blocks beyond the prompt are no part of it."""
        chain, end, spans = _ROOT, 0, list[tuple[int, int]]()
        for each, length in zip(ids, tokens, strict=True):
            if end >= prompt_tokens:
                break
            chain = self._chains.setdefault((chain, each), len(self._chains))
            if length:
                end = min(end + length, prompt_tokens)
                spans.append((chain, end))
        self._of_row[row] = spans

    def spans(self, num_rows: int) -> dict[str, Any]:
        """The columns of a RequestTable that tell what requests share; what has no id is each row's own."""
        first_own = len(self._chains)
        rows = [[*self._of_row.get(row, ()), (first_own + row, OPEN_END)] for row in range(num_rows)]
        counts = np.array([len(spans) for spans in rows], np.int32)
        content, ends = np.array([span for spans in rows for span in spans], np.int64).T
        return {
            "span_start": np.cumsum(counts, dtype=np.int64) - counts,
            "span_count": counts,
            "span_content": content.copy(),
            "span_end": ends.astype(np.int32),
        }
