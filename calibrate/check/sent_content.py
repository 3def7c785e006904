"""What the prompts of a measured run share, so that the simulated server finds as much in its cache as the real one."""

import math
from collections import defaultdict, deque
from dataclasses import replace

import numpy as np
import pandas as pd

from calibrate.check.client_load import sent_s, waits_for_answers
from calibrate.measured_run import MeasuredRun
from files.errors import HeadcountError
from workloads.requests import NEXT_FREE, NO_PREDECESSOR, OPEN_END, IntArray, RequestTable
from workloads.traces.trace import Trace

MOST_UNKNOWN = 0.05  # of a run's requests, that are none of the trace's


def with_cached_prefixes(table: RequestTable, requests: pd.DataFrame) -> RequestTable:
    """The same requests with content that can be found in the cache, as far as the source tells it.

    Where it says how many tokens were found: what a session's first request found is content that all requests share;
    after that, a session shares everything with its earlier requests, up to one that found nothing. Where it tells
    sessions alone: a prompt at least as long as the session's prompt and answer before begins with them.
    """
    count = len(requests)
    told = requests["cached_tokens"].to_numpy(np.float64)
    session = requests["session"].reset_index(drop=True)
    session = session.where(session.notna(), -1.0 - np.arange(count))
    if np.isnan(told).all():
        broken = _starts_anew(table, session)
        return table if broken.all() else _sharing(table, session, broken, np.zeros(count, np.int64))
    cached = pd.Series(np.minimum(np.nan_to_num(told).astype(np.int64), table.prompt_tokens))
    if not cached.any():
        return table
    first = cached.groupby(session.to_numpy()).transform("first").to_numpy()
    return _sharing(table, session, (cached == 0).to_numpy(), first)


def _starts_anew(table: RequestTable, session: pd.Series) -> np.ndarray:
    """[n] whether a prompt cannot hold the session's prompt and answer before it."""
    tokens = pd.DataFrame({"prompt": table.prompt_tokens, "all": table.prompt_tokens + table.output_tokens})
    before = tokens["all"].groupby(session.to_numpy()).shift()
    return ~(tokens["prompt"] >= before).to_numpy()


def _sharing(table: RequestTable, session: pd.Series, broken: np.ndarray, shared: IntArray) -> RequestTable:
    """Each request begins with `shared` tokens that all have, then goes on with its session's, anew where `broken`."""
    count = len(session)
    part = pd.Series(broken).groupby(session.to_numpy()).cumsum()
    chain = pd.DataFrame({"session": session, "part": part}).groupby(["session", "part"]).ngroup()
    content = np.stack([np.full(count, count), chain], axis=1).astype(np.int64)
    ends = np.stack([np.maximum(shared, 1), np.full(count, OPEN_END)], axis=1).astype(np.int32)
    return replace(
        table,
        span_start=2 * np.arange(count, dtype=np.int64),
        span_count=np.full(count, 2, np.int32),
        span_content=content.ravel(),
        span_end=ends.ravel(),
    )


def with_hit_rate(table: RequestTable, share: float) -> RequestTable:
    """The same requests, of each of whose prompts this share is a beginning that all have.

    Those of the first step find nothing yet.
    """
    count = table.num_requests
    shared = np.floor(share * table.prompt_tokens).astype(np.int64)
    return _sharing(table, pd.Series(np.arange(count)), np.ones(count, bool), shared)


def with_contents_of(table: RequestTable, trace: RequestTable) -> RequestTable | None:
    """The same requests with the contents of a trace's: each is the trace's next one of its lengths.

    A client that stops early, or whose requests fail, leaves some of the trace's out. None where lengths are not the
    trace's, such as those of a client with another tokenizer.
    """
    rows = _rows_of_lengths(table, trace)
    alone = rows < 0
    if alone.mean() > MOST_UNKNOWN:
        return None
    unknown = int(alone.sum())
    start, count = trace.span_start[rows], trace.span_count[rows]
    start[alone], count[alone] = len(trace.span_content) + np.arange(unknown), 1
    own = int(trace.span_content.max(initial=-1)) + 1 + np.arange(unknown)
    return replace(
        table,
        span_start=start,
        span_count=count,
        span_content=np.concatenate([trace.span_content, own]),
        span_end=np.concatenate([trace.span_end, np.full(unknown, OPEN_END, np.int32)]),
    )


def _rows_of_lengths(table: RequestTable, trace: RequestTable) -> IntArray:
    """[n] which of the trace's requests each is; -1: none of its lengths is left."""
    waiting: defaultdict[tuple[int, int], deque[int]] = defaultdict(deque)
    for row, lengths in enumerate(zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True)):
        waiting[lengths].append(row)
    sent = [waiting[each] for each in zip(table.prompt_tokens.tolist(), table.output_tokens.tolist(), strict=True)]
    return np.array([rows.popleft() if rows else -1 for rows in sent], np.int64)


def requests_of_workload(run: MeasuredRun, table: RequestTable | None, trace: Trace, path: str) -> RequestTable:
    """What was sent of a trace: the run's own requests with its contents, else its first ones, as many as were sent.

    `table` are the run's own requests, where it has single ones. Where their lengths are not the trace's, and where it
    has none, conversations whose turns follow answers keep the trace's times, and so do requests of a run without a
    load. Raises HeadcountError for a trace with fewer requests than were sent.
    """
    found = None if table is None else with_contents_of(table, trace.table)
    if found is not None:
        return found
    sent = len(run.requests) if run.requests is not None else run.load.get("num_requests", trace.num_requests)
    if sent > trace.num_requests:
        raise HeadcountError(
            f"--workload {path}: holds {trace.num_requests:,} requests, and {run.source} sent {sent:,.0f}; give the "
            "trace that was sent"
        )
    table = trace.table.head(int(sent))
    count, rate = table.num_requests, run.load.get("rate", math.nan)
    if (table.follows >= 0).any():
        return table
    if waits_for_answers(run):
        waits = np.arange(count) >= int(run.load["concurrency"])
        times_s = np.where(waits, np.nan, 0.0)
        return replace(table, arrival_s=times_s, follows=np.where(waits, NEXT_FREE, NO_PREDECESSOR))
    if not math.isnan(rate):
        return replace(table, arrival_s=sent_s(run, rate, count))
    return table
