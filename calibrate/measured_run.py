"""One measured run of a real server, whatever tool wrote it down."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from files.errors import HeadcountError

SNAPSHOT, WATCHED = "vLLM /metrics", "vLLM metrics"
COUNTED = (SNAPSHOT, WATCHED)  # tools whose figures are a server's counters, of a time after which it served on

# Columns of `MeasuredRun.requests`; a column that the source lacks holds NaN throughout.
REQUEST_COLUMNS = (
    "arrival_s",  # sent by the client, or received by the server, from the run's first request
    "prompt_tokens",
    "output_tokens",
    "ttft_s",
    "e2e_s",
    "cached_tokens",  # of the prompt, found in the prefix cache
    "session",  # number of the conversation; every request its own where the source knows none
)


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredRun:
    """What a benchmark, a trace or a server's own counters say of one run.

    `options` are settings under the command line's names here (`model`, `tensor_parallel_size`, `max_num_seqs`, …), as
    far as the source has them. `load` tells how requests were sent: `concurrency`, `rate` (requests/s, may be
    infinite), `burstiness`, `num_requests`, `input_len`, `output_len`, as far as known. `aggregates` are the source's
    own figures, in seconds or per second, under the names of `headcount simulate --json` joined by dots
    (`ttft_s.mean`, `e2e_s.p99`, `output_tokens_per_s`); percentiles are the source's. `excluded` counts what was left
    out by reason: nothing is left out silently.
    """

    source: Path
    tool: str
    options: Mapping[str, object] = field(default_factory=dict)
    load: Mapping[str, float] = field(default_factory=dict)
    requests: pd.DataFrame | None = None  # finished requests in order of arrival, with REQUEST_COLUMNS
    itl_s: tuple[tuple[float, ...], ...] | None = None  # per request of the table: gaps between streamed chunks
    aggregates: Mapping[str, float] = field(default_factory=dict)
    excluded: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what a reader must know to use the figures, one sentence each

    def sent_within(self, warmup_s: float, until_s: float = math.inf) -> "MeasuredRun":
        """The requests that were sent in [warmup_s, until_s) seconds after the first.

        Raises HeadcountError where single requests are not known, or none were sent then.
        """
        if not warmup_s and math.isinf(until_s):
            return self
        if self.requests is None or self.requests["arrival_s"].isna().any():
            option = "--warmup" if warmup_s else "--until"
            raise HeadcountError(f"{self.source} does not say when each request was sent; leave {option} out")
        arrival_s = self.requests["arrival_s"].to_numpy(np.float64)
        sent_s = arrival_s - arrival_s.min()
        kept = (sent_s >= warmup_s) & (sent_s < until_s)
        if not kept.any():
            advice = "--until must be longer" if (sent_s >= warmup_s).any() else "--warmup must be shorter"
            raise HeadcountError(
                f"{self.source} sent no request from {warmup_s:.3g} to {min(until_s, sent_s.max()):.3g} s after its "
                f"first; {advice}"
            )
        itl_s = self.itl_s if self.itl_s is None else tuple(np.array(self.itl_s, dtype=object)[kept])
        return replace(self, requests=self.requests[kept], itl_s=itl_s, aggregates={})
