"""Requests like those of the latest windows: as many in each, with lengths as they were counted."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from calibrate.readers.parsing.histogram import Histogram
from calibrate.shadow.windows import LENGTHS, Window
from simulator.deployment import Deployment
from workloads.requests import OPEN_END, FloatArray, RequestTable, independent_requests

HISTORY: Final = 5  # windows before the one that is compared: its queue comes from there
IN_CHAIN: Final = 12  # requests with a common prefix, assumed: with windows of a minute one comes every 30 s …
KEPT: Final = 0.3  # … or sooner, so that no more than this share of the KV cache comes between two


def requests_like(
    windows: Sequence[Window], servers: int, deployment: Deployment, rng: np.random.Generator
) -> RequestTable:
    """The requests that one of so many servers gets of these windows; time 0 is the first one's start.

    Where in a window they arrive is drawn. Lengths are drawn from all windows' buckets, and have each window's mean.
    Of each prompt, the share that was found in the prefix cache was sent by another request not long before.
    """
    max_model_len = deployment.engine.max_model_len
    begin_s = windows[0].start_s
    counts = [_whole(window.arrivals / servers, rng) for window in windows]
    arrival_s = np.concatenate(
        [
            np.sort(rng.uniform(window.start_s - begin_s, window.end_s - begin_s, count))
            for window, count in zip(windows, counts, strict=True)
        ]
    )
    lengths = {name: np.concatenate([_lengths(window, name, windows, count, rng) for window, count in
                                     zip(windows, counts, strict=True)]) for name in LENGTHS}  # fmt: skip
    prompt, output = (np.maximum(lengths[name].round(), 1) for name in LENGTHS)
    prompt = np.minimum(prompt, max_model_len - 1)
    table = independent_requests(
        arrival_s=arrival_s, prompt_tokens=prompt, output_tokens=np.minimum(output, max_model_len - prompt)
    )
    share = windows[-1].figures.get("prefix_hit_rate", 0.0)
    if not share or not table.num_requests:
        return table
    kept = KEPT * deployment.budget.kv_cache_tokens / float((prompt + output).mean())
    chains = math.ceil(min(table.num_requests / IN_CHAIN, max(kept, 1.0)))
    return _with_prefixes(table, share, chains, rng)


def _whole(mean: float, rng: np.random.Generator) -> int:
    """A whole number with this mean."""
    return int(mean) + int(rng.random() < mean - int(mean))


def _lengths(window: Window, name: str, windows: Sequence[Window], count: int, rng: np.random.Generator) -> FloatArray:
    """With the window's mean, spread as the windows together counted."""
    mean = float(getattr(window, name)) or max(float(getattr(each, name)) for each in windows)
    spread = _drawn([each.lengths[name] for each in windows if name in each.lengths], count, rng)
    return np.full(count, mean) if spread is None or not count else spread * (mean / spread.mean())


def _drawn(counted: Sequence[Histogram], count: int, rng: np.random.Generator) -> FloatArray | None:
    """From the buckets, evenly in logarithms within each; None where there are none."""
    bounds = sorted({bound for each in counted for bound, _ in each.buckets})
    if not bounds:
        return None
    below = np.array([sum(dict(each.buckets).get(bound, 0.0) for each in counted) for bound in bounds])
    total = sum(each.count for each in counted)
    numbers = np.diff(np.concatenate([[0.0], np.maximum.accumulate(below), [max(total, below.max())]]))
    if not numbers.sum():
        return None
    lows, highs = np.array([1.0, *bounds]), np.array([*bounds, 2 * bounds[-1]])
    places = rng.choice(len(numbers), size=count, p=numbers / numbers.sum())
    low, high = np.maximum(lows[places], 1.0), np.maximum(highs[places], 1.0)
    return np.asarray(low * (high / low) ** rng.random(count))


def _with_prefixes(table: RequestTable, share: float, chains: int, rng: np.random.Generator) -> RequestTable:
    """Requests of similar lengths form chains, each of which begins with the same tokens."""
    count = table.num_requests
    by_length = np.argsort(table.prompt_tokens + rng.random(count))
    chain = np.empty(count, np.int64)
    chain[by_length] = np.arange(count) * chains // count
    content = np.stack([chain, chains + np.arange(count)], axis=1)
    ends = np.stack([np.maximum(share * table.prompt_tokens, 1).astype(np.int32), np.full(count, OPEN_END)], axis=1)
    return replace(
        table,
        span_start=2 * np.arange(count, dtype=np.int64),
        span_count=np.full(count, 2, np.int32),
        span_content=content.ravel(),
        span_end=ends.astype(np.int32).ravel(),
    )
