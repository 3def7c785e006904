"""The blocks that `vllm bench serve` and SGLang's `bench_serving` print, pasted with or without text around them.

Labels as printed by vllm/benchmarks/serve.py from 0.4 to 0.32 and by python/sglang/bench_serving.py. A block has
figures, and no requests. What it does not say of its load is looked for between it and the block before: in the lines
that the client prints when it starts, in the command, or in its printed arguments.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.client_arrays import client_aggregates, client_run, mean_lengths
from calibrate.readers.parsing.engine_options import engine_option
from calibrate.readers.parsing.files import Head, numbers, result_text
from calibrate.readers.parsing.log_text import plain_text
from files.documents import Json
from files.errors import HeadcountError
from files.schema import typed
from simulator.engines.engines import SGLANG

LOOKS_LIKE = "text with 'Serving Benchmark Result'"
_TITLE = re.compile(r"Serving Benchmark Result")
_NUMBER = r"(-?[0-9][0-9,]*(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?|inf|nan)"
_LABELS = {
    "completed": r"Successful requests",
    "failed": r"Failed requests",
    "duration": r"Benchmark duration \(s\)",
    "total_input_tokens": r"Total input tokens",
    "total_output_tokens": r"Total generated tokens",
    "request_throughput": r"Request throughput \(req/s\)",
    "request_goodput": r"Request goodput \(req/s\)",
    "input_throughput": r"Input token throughput \(tok/s\)",
    "output_throughput": r"Output token throughput \(tok/s\)",
    "total_token_throughput": r"Total token throughput \(tok/s\)",
    "concurrency": r"(?<!request )Concurrency",
    "spec_decode_acceptance_length": r"(?:Accept|Acceptance) length",
}
_LOAD = {
    "max_concurrency": r"Max(?:imum)? request concurrency|max[-_]concurrency",
    "request_rate": r"Request rate configured \(RPS\)|Traffic request rate|request[-_]rate",
    "burstiness": r"Burstiness factor|burstiness",
}
_LATENCY = re.compile(
    r"\b(Mean|Median|Std|Max|P[0-9]{1,2}(?:\.[0-9]+)?) (TTFT|TPOT|ITL|E2EL|E2E Latency) \(ms\)[:\s|]+" + _NUMBER, re.I
)
_MODEL = re.compile(r"(?:--model(?:-path)?[ =]|\bmodel=)['\"]?([^\s'\",)]{1,300})")
_BACKEND = re.compile(r"(?:Backend:|--backend[ =]|\bbackend=)\s{0,60}['\"]?([a-z0-9_-]{1,40})")
_RUN = client_run({"burstiness": float}, "concurrency")
NOTES = ("read from a printed block: it has figures, but no requests",)


def recognizes(path: Path, head: Head) -> bool:
    return isinstance(head, str) and _TITLE.search(result_text(path)) is not None


def read(path: Path) -> list[MeasuredRun]:
    """One run per block. Raises HeadcountError where a block says neither how long it took nor what completed."""
    text = plain_text(result_text(path))
    return [_run(path, f"block {number}", *parts) for number, parts in enumerate(_blocks(text), start=1)]


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Each block, and the text between it and the one before."""
    begin = 0
    for title in _TITLE.finditer(text):
        following = _TITLE.search(text, title.end())
        end = following.start() if following else len(text)
        closing = re.compile(r"={20,}").search(text, title.end(), end)
        end = closing.start() if closing else end
        yield text[begin : title.start()], text[title.end() : end]
        begin = end


def _run(path: Path, place: str, before: str, block: str) -> MeasuredRun:
    found: Json = _figures(block)
    if "completed" not in found or len(found) == 1:
        raise HeadcountError(
            f"{path}: {place} lacks 'Successful requests:' or every figure; paste the block whole, as it was printed"
        )
    found |= _load(before) | _load(block)
    run = typed(found, _RUN, path, place)
    model, backend = ((list(pattern.findall(before + block)) or [None])[-1] for pattern in (_MODEL, _BACKEND))
    is_sglang_s = "E2E Latency" in block or "Max request concurrency" in block
    options = {} if model is None else {"model": engine_option("model", model, path, f"{place}: model")}
    return MeasuredRun(
        source=path,
        tool="sglang bench_serving" if is_sglang_s else "vllm bench serve",
        options=options | ({"engine": SGLANG} if backend is not None and backend.startswith(SGLANG) else {}),
        load=numbers(
            concurrency=run["max_concurrency"],
            rate=run["request_rate"],
            burstiness=run["burstiness"],
            num_requests=run.number("completed") + (run["failed"] or 0),
        )
        | mean_lengths(run),
        aggregates=client_aggregates(path, place, run, found) | numbers(in_flight_mean=run["concurrency"]),
        excluded={"failed": int(run["failed"])} if run["failed"] else {},
        notes=NOTES if {"max_concurrency", "request_rate"} & found.keys() else (*NOTES, "its load is not printed"),
    )


def _figures(block: str) -> Json:
    values = {name: re.search(rf"{label}[:\s|]+{_NUMBER}", block, re.I) for name, label in _LABELS.items()}
    found: Json = {name: _value(value[1]) for name, value in values.items() if value is not None}
    for statistic, latency, value in _LATENCY.findall(block):
        found[f"{statistic}_{latency}_ms".lower().replace(" ", "_")] = _value(value)
    return found


def _load(text: str) -> Json:
    """The last line of each figure."""
    told = {name: re.findall(rf"(?:{label})[:=\s|'\"]+{_NUMBER}", text, re.I) for name, label in _LOAD.items()}
    return {name: _value(values[-1]) for name, values in told.items() if values}


def _value(text: str) -> float:
    return float(text.replace(",", ""))
