"""What the prompts of a measured run share, so that the simulated server finds as much in its cache as the real one."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from calibrate.check.client_load import sent_s, waits_for_answers
from calibrate.measured_run import MeasuredRun
from files.errors import HeadcountError
from workloads.load import load_workload
from workloads.requests import NEXT_FREE, NO_PREDECESSOR, OPEN_END, IntArray, RequestTable
from workloads.traces.trace import Trace


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


def requests_of_workload(run: MeasuredRun, path: str | Path) -> RequestTable:
    """The first requests of a trace, as many as were sent, when the run's load says.

    Conversations whose turns follow answers keep their own times, and so do requests of a run without a load. Raises
    HeadcountError for a population, and for a trace with fewer requests than were sent.
    """
    trace = load_workload(path)
    if not isinstance(trace, Trace):
        raise HeadcountError(f"--workload {path}: is a population of users; give the trace that was sent")
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
