"""What vLLM's and SGLang's benchmark clients write of a run: figures, and index-aligned arrays of its requests."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrate.readers.parsing.files import number, numbers
from calibrate.readers.parsing.leaves import Leaves, leaves
from calibrate.readers.parsing.rows import NEEDED, RequestRows
from files.reading import InputError, shown
from files.schema import typed

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
_FIGURES = {
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
_OLDER_GOODPUT = "request_goodput:"


def client_run(kinds: Mapping[str, object], *figures: str) -> type[Leaves]:
    """A run, with what one of the clients writes beside.

    An entry of an array may be anything: it is that of a request that failed, or is counted out.
    """
    request_rate = float | str  # "inf"; SGLang says "trace" for a replay
    return leaves(
        {**dict.fromkeys(_ARRAYS, list[Any]), "request_rate": request_rate, **kinds},
        *_FIGURES.values(),
        "max_concurrency",
        *figures,
    )


def mean_lengths(run: Leaves) -> dict[str, float]:
    """Mean tokens per completed request."""
    completed = run.number("completed")
    if not completed > 0:
        return {}
    return numbers(
        input_len=run.number("total_input_tokens") / completed,
        output_len=run.number("total_output_tokens") / completed,
    )


def client_rows(path: Path, place: str, run: Leaves) -> RequestRows | None:
    """The run's requests; None where it was saved without detail. Raises InputError where arrays do not align.

    An array entry is a failed request where its error is not empty. End to end is the client's `latencies`, in older
    files the time to first token plus all gaps, which is the same sum.
    """
    arrays = {name: array for name in _ARRAYS if (array := run[name]) is not None}
    if not {"input_lens", "output_lens", "ttfts"} <= arrays.keys():
        return None
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        at = f"{shown(path)}: {f'{place}: ' * bool(place)}"
        raise InputError(f"{at}its arrays are of unequal length ({told}); save the run again, unchanged")
    rows = RequestRows()
    for index in range(lengths["ttfts"]):
        _add(rows, {name: array[index] for name, array in arrays.items()})
    return rows


def _add(rows: RequestRows, entry: dict[str, object]) -> None:
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


def client_aggregates(path: Path, place: str, run: Leaves, found: Mapping[str, object]) -> dict[str, float]:
    """The client's own figures; latencies only where a request completed, since the client writes 0 otherwise.

    `found` is the run as it stands in the file. Raises InputError where no number stands in a figure's place.
    """
    figures = {name: run.number(key) for name, key in _FIGURES.items()}
    for key, value in found.items():
        matched = _LATENCY.fullmatch(key) if run["completed"] else None
        if value is None or not (matched or key == _OLDER_GOODPUT):
            continue
        figure = typed(value, float, path, ": ".join(part for part in (place, key) if part))
        if matched:
            statistic = "p50" if matched[1] == "median" else matched[1]
            figures[f"{_NAMES[matched[2]]}.{statistic}"] = figure / 1e3
        else:
            figures["goodput_requests_per_s"] = figure
    return numbers(**figures)
