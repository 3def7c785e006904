"""A trace with one request per line: seconds | prompt tokens | output tokens."""

from pathlib import Path

import numpy as np

from workloads.requests import RequestTable, independent_requests
from workloads.traces.trace_format import TraceFormat


def read(path: Path, _block_size: int, num_requests: int | None) -> RequestTable:
    rows = np.loadtxt(path, delimiter="|", ndmin=2, max_rows=num_requests)
    return independent_requests(arrival_s=rows[:, 0], prompt_tokens=rows[:, 1], output_tokens=rows[:, 2])


FORMAT = TraceFormat(
    name="bars",
    looks_like="three numbers per line, separated by |",
    recognises=lambda head: head.partition("\n")[0].count("|") == 2,
    read=read,
    source="our gateway's log",
)
