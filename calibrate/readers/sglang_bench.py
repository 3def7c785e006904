"""The JSON lines of SGLang's `bench_serving`.

One line per run; requests are in it with `--output-details` only. Keys as written by python/sglang/bench_serving.py.
Older files have no `start_times`, so that arrivals are not known, and no `latencies`. A gap of `itls` is a chunk's gap
divided by its tokens, so that it is a mean within chunks. Failed requests have an error, newer files `successes` too.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.client_arrays import client_aggregates, client_rows, mean_lengths
from calibrate.readers.parsing.files import Head, at, json_objects, number, numbers

LOOKS_LIKE = "JSON lines with duration, completed, mean_e2e_latency_ms"


def recognizes(path: Path, head: Head) -> bool:
    return (
        isinstance(head, dict)
        and {"duration", "completed"} <= head.keys()
        and "tokenizer_id" not in head
        and not {"mean_e2e_latency_ms", "accept_length", "total_output_tokens_retokenized"}.isdisjoint(head)
    )


def read(path: Path) -> list[MeasuredRun]:
    """One run per line."""
    return [_run(path, run) for run in json_objects(path)]


def _run(path: Path, run: Mapping[str, Any]) -> MeasuredRun:
    rows = client_rows(path, run)
    aggregates = client_aggregates(path, run)
    aggregates |= numbers(
        in_flight_mean=run.get("concurrency"),
        total_tokens_per_s=run.get("total_throughput"),
        spec_decode_acceptance_length=run.get("accept_length"),
    )
    server = run.get("server_info")
    named = {
        "model": at(server, "model_path"),
        "tensor_parallel_size": at(server, "tp_size"),
        "max_num_seqs": at(server, "max_running_requests"),
    }
    return MeasuredRun(
        source=path,
        tool="sglang bench_serving",
        options={name: value for name, value in named.items() if value is not None},
        load=numbers(
            concurrency=run.get("max_concurrency"),
            # An endless rate with a concurrency is a closed load; newer files say "trace" for a replay.
            rate=run.get("request_rate"),
            num_requests=float(len(run["ttfts"])) if rows else number(run.get("completed")),
        )
        | mean_lengths(run),
        aggregates=aggregates,
        notes=() if rows else ("the run was saved without --output-details: it has figures, but no requests",),
        **(rows.parts() if rows else {}),
    )
