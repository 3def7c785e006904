"""Traces that are written: one in another format, what a population's users send, or a fitted model's requests."""

from dataclasses import dataclass, replace
from pathlib import Path

from files.errors import HeadcountError
from files.outputs import whole_file
from headcount.inputs.reading.traffic import read_arrivals
from headcount.inputs.traffic import TrafficInput
from workloads.arrivals import POISSON, Arrivals, arrival_times
from workloads.load import load_fitted, load_workload
from workloads.populations.population import Population
from workloads.requests import OPEN_END, RequestTable
from workloads.traces.trace_file import Source
from workloads.writing.generated import requests_at, requests_over
from workloads.writing.trace_writer import TraceWriter, find_writer

NUM_REQUESTS = 10_000


@dataclass(frozen=True, kw_only=True)
class Written:
    """A trace that was written."""

    num_requests: int
    format: str
    lost: tuple[str, ...]
    """What the format cannot hold, in words."""
    replay: str
    """The command of the client that was asked for; empty if none is known."""


def convert(
    workload: Source,
    out: str | Path,
    *,
    to: str | None = None,
    block_size: int = 512,
    trace_block_size: int | None = None,
    num_requests: int | None = None,
) -> Written:
    """Write a trace in the format `to`, or that of the suffix of `out`; the file appears whole or not at all.

    Raises HeadcountError where it cannot be read or written.
    """
    writer = find_writer(to, Path(out))
    found = load_workload(workload, trace_block_size=trace_block_size, num_requests=num_requests)
    if isinstance(found, Population):
        raise HeadcountError(f"'{workload}' is a population, not a trace; draw one with 'headcount workload generate'")
    return written(found.table, Path(out), writer, block_size, to or writer.name)


def written(table: RequestTable, out: Path, writer: TraceWriter, block_size: int, name: str) -> Written:
    """Write a table; `name` is the format's or the client's."""
    with whole_file(out) as temporary:
        writer.write(table, temporary, block_size)
    return Written(
        num_requests=table.num_requests,
        format=writer.name,
        lost=writer.lost(table, block_size),
        replay=writer.clients.get(name, "").format(path=out, block_size=block_size, num_requests=table.num_requests),
    )


def generate(
    workload: str | Path,
    out: str | Path,
    *,
    users: int | None = None,
    duration_s: float | None = None,
    rate: float | None = None,
    num_requests: int | None = None,
    arrivals: str | Arrivals | None = None,
    traffic: TrafficInput = TrafficInput(),
    max_model_len: int | None = None,
    seed: int = 0,
    to: str | None = None,
    block_size: int = 512,
) -> Written:
    """Write what `users` of a population send within `duration_s`, or its requests at a `rate` in requests per second.

    At a rate, `num_requests` keep the population's lengths, order and shared content, and come at the times of the
    process `arrivals`, by default Poisson. What `fit_trace` wrote has its own number of requests and its own arrivals;
    with a `rate`, they come at that process. Raises HeadcountError for another
    combination.
    """
    fitted = load_fitted(workload)
    _check(users, duration_s, rate, num_requests, arrivals, is_fitted=fitted is not None)
    writer = find_writer(to, Path(out))
    if fitted is not None:
        if max_model_len is not None or traffic.changes:
            given = "--max-model-len" if max_model_len is not None else "--traffic"
            raise HeadcountError(f"{given} goes with a population; a fitted trace has its lengths")
        drawn = fitted.draw(num_requests, seed)
        if rate is not None:
            if (drawn.follows >= 0).any():
                why = "this fitted trace has sessions, whose turns wait for answers"
                raise HeadcountError(f"--rate: {why}; leave --rate out")
            process = POISSON if arrivals is None else read_arrivals(arrivals)
            drawn = replace(drawn, arrival_s=arrival_times(process, rate, drawn.num_requests, seed))
        return written(drawn, Path(out), writer, block_size, to or writer.name)
    found, _ = traffic.load(workload)
    if not isinstance(found, Population):
        raise HeadcountError(f"'{workload}' is a trace, not a population; write it with 'headcount workload convert'")
    longest = OPEN_END - 1 if max_model_len is None else max_model_len
    if users is not None and duration_s is not None:
        drawn = requests_over(found, num_users=users, duration_s=duration_s, seed=seed, max_model_len=longest)
    else:
        assert rate is not None, "checked"
        drawn = requests_at(
            found,
            POISSON if arrivals is None else read_arrivals(arrivals),
            rate_per_s=rate,
            num_requests=num_requests or NUM_REQUESTS,
            seed=seed,
            max_model_len=longest,
        )
    return written(drawn, Path(out), writer, block_size, to or writer.name)


def _check(
    users: int | None,
    duration_s: float | None,
    rate: float | None,
    num_requests: int | None,
    arrivals: object,
    *,
    is_fitted: bool,
) -> None:
    if is_fitted:
        if users is not None or duration_s is not None:
            raise HeadcountError("--users and --duration go with a population; a fitted trace has a number of requests")
        if arrivals is not None and rate is None:
            raise HeadcountError("--arrivals needs --rate; without both a fitted trace has its own arrivals")
        return
    if (users is None) == (rate is None):
        raise HeadcountError("give --users with --duration, or --rate with --num-requests")
    if users is not None:
        if duration_s is None:
            raise HeadcountError("--users needs --duration, such as 1h")
        if num_requests is not None or arrivals is not None:
            raise HeadcountError("--num-requests and --arrivals go with --rate; users come when they have thought")
    elif duration_s is not None:
        raise HeadcountError("--duration goes with --users; give --num-requests with --rate")
