"""The JSON lines of SGLang's `bench_serving`.

One line per run; requests are in it with `--output-details` only. Keys as written by python/sglang/bench_serving.py.
Older files have no `start_times`, so that arrivals are not known, and no `latencies`. A gap of `itls` is a chunk's gap
divided by its tokens, so that it is a mean within chunks. Failed requests have an error, newer files `successes` too.
"""

from pathlib import Path

from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.client_arrays import client_aggregates, client_rows, client_run, mean_lengths
from calibrate.readers.parsing.engine_options import engine_option
from calibrate.readers.parsing.files import Head, json_objects, number, numbers
from calibrate.readers.parsing.sglang_log import check_simulated
from files.documents import Json, ReadJson
from files.reading import InputError, shown
from files.schema import typed
from simulator.engines.engines import SGLANG
from simulator.engines.sglang.attention_groups import OLD_GROUPS, as_given
from simulator.engines.sglang.drafts import settings_of_fields

LOOKS_LIKE = "JSON lines with duration, completed, mean_e2e_latency_ms"
_OF_SERVER = (
    "max_running_requests", "max_total_num_tokens", "chunked_prefill_size", "max_prefill_tokens", "page_size",
    "context_length", "mem_fraction_static", "schedule_policy", "schedule_conservativeness", "enable_mixed_chunk",
    "disable_overlap_schedule", "disable_radix_cache", "disable_cuda_graph", "radix_eviction_policy", "dp_size",
    "attn_dp_size", "ep_size",
)  # fmt: skip
_SETTINGS = {"model": "model_path", "tensor_parallel_size": "tp_size"} | {name: name for name in _OF_SERVER}


LEAST_SPREAD = 1e-6  # of a ratio of 0: from one token on
_RUN = client_run({"server_info": Json}, "concurrency", "total_throughput", "accept_length")


def recognizes(path: Path, head: Head) -> bool:
    return (
        isinstance(head, dict)
        and {"duration", "completed"} <= head.keys()
        and "tokenizer_id" not in head
        and not {"mean_e2e_latency_ms", "accept_length", "total_output_tokens_retokenized"}.isdisjoint(head)
    )


def read(path: Path) -> list[MeasuredRun]:
    """One run per line."""
    return [_run(path, place, found) for place, found in json_objects(path)]


def _run(path: Path, place: str, found: ReadJson) -> MeasuredRun:
    run = typed(found, _RUN, path, place)
    rows = client_rows(path, place, run)
    aggregates = client_aggregates(path, place, run, found)
    aggregates |= numbers(
        in_flight_mean=run["concurrency"],
        total_tokens_per_s=run["total_throughput"],
        spec_decode_acceptance_length=run["accept_length"],
    )
    told, at = run["server_info"] or {}, f"{place}: " * bool(place)
    check_simulated(told, path, f"{at}server_info")
    named = {
        name: engine_option(name, told.get(key), path, f"{at}server_info.{key}") for name, key in _SETTINGS.items()
    }
    named = {name: value for name, value in named.items() if value is not None}
    named = as_given(named | {OLD_GROUPS: told.get(OLD_GROUPS) is True})
    try:
        drafts = settings_of_fields(told)
    except ValueError as error:
        raise InputError(f"{shown(path)}: {at}server_info: {error}") from None
    engine = {"engine": SGLANG} if str(found.get("backend", "")).startswith(SGLANG) else {}
    return MeasuredRun(
        source=path,
        tool="sglang bench_serving",
        options=engine | named | drafts,
        load=numbers(
            concurrency=run["max_concurrency"],
            # An endless rate with a concurrency is a closed load; newer files say "trace" for a replay.
            rate=run["request_rate"],
            num_requests=run["completed"] if rows is None else len(run["ttfts"]),
        )
        | mean_lengths(run)
        | _spread(found),
        aggregates=aggregates,
        notes=() if rows else ("the run was saved without --output-details: it has figures, but no requests",),
        **(rows.parts() if rows else {}),
    )


def _spread(found: ReadJson) -> dict[str, float]:
    """Random lengths are uniform from this share of the nominal length to all of it."""
    ratio = number(found.get("random_range_ratio"))
    is_random = str(found.get("dataset_name", "")).startswith("random")
    return {"length_spread": max(ratio, LEAST_SPREAD)} if is_random and 0 <= ratio <= 1 else {}
