"""The index-aligned arrays that vLLM's and SGLang's benchmark clients write."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrate.readers.parsing.files import kind, number, numbers
from calibrate.readers.parsing.rows import NEEDED, RequestRows

_COLUMNS = {
    "start_times": "arrival_s",
    "input_lens": "prompt_tokens",
    "output_lens": "output_tokens",
    "ttfts": "ttft_s",
    "latencies": "e2e_s",
}
_ARRAYS = ("input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times", "errors", "successes")
_LATENCY = re.compile(r"(mean|median|std|max|p\d+(?:\.\d+)?)_(ttft|tpot|itl|e2el|e2e_latency)_ms")
_NAMES = {"ttft": "ttft_s", "tpot": "tpot_s", "itl": "itl_s", "e2el": "e2e_s", "e2e_latency": "e2e_s"}


def client_rows(path: Path, run: Mapping[str, Any]) -> RequestRows | None:
    """The run's requests; None where it was saved without detail.

    Raises ValueError where arrays do not align, or where something else stands in an array's place.

    An array entry is a failed request where its error is not empty. End to end is the client's `latencies`, in older
    files the time to first token plus all gaps, which is the same sum.
    """
    for name in (*_COLUMNS, "itls"):
        if not isinstance(run.get(name), list | None):
            raise ValueError(
                f"{path}: {name} is {kind(run[name])} where a list with one entry per request must be; save the run "
                "again, unchanged"
            )
    arrays = {name: run[name] for name in _ARRAYS if isinstance(run.get(name), list)}
    if not {"input_lens", "output_lens", "ttfts"} <= arrays.keys():
        return None
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise ValueError(f"{path}: its arrays are of unequal length ({told}); save the run again, unchanged")
    rows = RequestRows()
    for index in range(lengths["ttfts"]):
        _add(rows, {name: array[index] for name, array in arrays.items()})
    return rows


def _add(rows: RequestRows, entry: dict[str, Any]) -> None:
    arrival_s = number(entry.get("start_times"))
    if entry.get("errors") or entry.get("successes") is False:
        rows.exclude("failed", arrival_s=arrival_s)
        return
    for name, column in _COLUMNS.items():
        if name in entry and math.isnan(number(entry[name])):
            rows.exclude(NEEDED[column], arrival_s=arrival_s)
            return
    if not isinstance(entry.get("itls"), list | None):
        rows.exclude("gaps that are not a list", arrival_s=arrival_s)
        return
    itl_s, ttft_s = entry.get("itls"), number(entry["ttfts"])
    gaps = tuple(number(gap) for gap in itl_s) if isinstance(itl_s, list) else None
    summed_s = math.nan if gaps is None else ttft_s + sum(gaps)
    rows.add(
        arrival_s=arrival_s,
        prompt_tokens=number(entry["input_lens"]),
        output_tokens=number(entry["output_lens"]),
        ttft_s=ttft_s,
        e2e_s=number(entry["latencies"]) if "latencies" in entry else summed_s,
        itl_s=gaps,
    )


def client_aggregates(path: Path, run: Mapping[str, Any]) -> dict[str, float]:
    """The client's own figures; latencies only where a request completed, since the client writes 0 otherwise.

    Raises ValueError where no number stands in a figure's place; null is a figure that the client did not take.
    """
    named = {
        "num_finished": "completed",
        "num_failed": "failed",
        "duration_s": "duration",
        "requests_per_s": "request_throughput",
        "output_tokens_per_s": "output_throughput",
        "prompt_tokens_per_s": "input_throughput",
        "total_tokens_per_s": "total_token_throughput",
        "prompt_tokens": "total_input_tokens",
        "output_tokens": "total_output_tokens",
        "goodput_requests_per_s": "request_goodput",
        "spec_decode_acceptance_length": "spec_decode_acceptance_length",
    }
    found = {name: _figure(path, run, key) for name, key in named.items()}
    if "request_goodput:" in run:  # older vLLM's spelling
        found["goodput_requests_per_s"] = _figure(path, run, "request_goodput:")
    if run.get("completed"):
        for key in run:
            if matched := _LATENCY.fullmatch(key):
                statistic = "p50" if matched[1] == "median" else matched[1]
                found[f"{_NAMES[matched[2]]}.{statistic}"] = _figure(path, run, key) / 1e3
    return numbers(**found)


def _figure(path: Path, run: Mapping[str, Any], key: str) -> float:
    """NaN where it is null or not there, as where the client itself wrote NaN. Raises ValueError."""
    value = run.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ValueError(f"{path}: {key} is {kind(value)} where a number must be; save the run again, unchanged")
    if value is not None and value < 0:
        raise ValueError(f"{path}: {key} is {value:g}, which is impossible; it must be at least 0")
    return number(value)


def mean_lengths(run: Mapping[str, Any]) -> dict[str, float]:
    """Mean tokens per completed request."""
    completed = number(run.get("completed"))
    if not completed > 0:
        return {}
    return numbers(
        input_len=number(run.get("total_input_tokens")) / completed,
        output_len=number(run.get("total_output_tokens")) / completed,
    )
