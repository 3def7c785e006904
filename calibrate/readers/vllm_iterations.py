"""vLLM's log of `--enable-logging-iteration-details`: one line per engine step.

Written by vllm/v1/metrics/loggers.py. What cannot be known from it stays NaN or is said here:

* How much context the batch has is not logged, so `decode_context`, `window_context`, `prefill_work` and
  `window_prefill_work` are NaN, and a step's price cannot be split between its tokens and its context.
* A request counts as context while it has no output. A preempted one that is computed again counts as generation, with
  all its tokens; drafts of speculative decoding are generation tokens too. Whether a chunk ends its prompt is not
  logged, so `sampled` is NaN in steps with context requests.
* The elapsed time is the engine's wait for the step's output: `elapsed_s`, a column beyond `STEP_COLUMNS`. Scheduling
  and the output's processing come on top (on a CPU engine with steps of 2.2 ms, 0.42 ms per step), and under
  asynchronous scheduling the GPU has begun the step before that wait: `elapsed_s` is a lower bound, and `cycle_s`, from
  output to output, is NaN. `environment["synchronous"]` says whether scheduling is known to be synchronous: the log's
  arguments say so, or the device is a CPU, which has no other.
* `start_s` is the log's own second, from the first line: of a year that is not logged, to one second.
"""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calibrate.readers.parsing.files import Head
from calibrate.readers.parsing.log_text import log_pattern, log_text
from calibrate.readers.parsing.startup_log import logged_options
from calibrate.recording import STEP_COLUMNS, Recording
from files.documents import Json
from files.errors import HeadcountError
from simulator.engines.vllm.defaults import default_async_scheduling

LOOKS_LIKE = "a log with 'Iteration(N): … context requests'"
LINE = log_pattern(
    r"Iteration\((\d{1,15})\): (\d{1,15}) context requests, (\d{1,15}) context tokens, "
    r"(\d{1,15}) generation requests, (\d{1,15}) generation tokens, "
    r"iteration elapsed time: (\d{1,15}(?:\.\d{1,15})?) ms( \(dummy\))?"
    r"(?:, (\w+) KV cache usage: (\d{1,15}(?:\.\d{1,15})?)%)?"
)
_ENGINE = log_pattern(r"Engine (\d{1,9}):")
_TIME = log_pattern(r"(?<!\d)(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?!\d)")
_DUMMY, _MISSING = "dummy step of data parallelism", "step missing from the log"


def recognizes(path: Path, head: Head) -> bool:
    return isinstance(head, str) and has_iterations(path)


def has_iterations(path: Path) -> bool:
    """Anywhere in the file: a server logs its start first."""
    return LINE.search(log_text(path)) is not None


def read(path: Path) -> list[Recording]:
    """One recording per engine and start of it. Raises HeadcountError where no step is logged."""
    steps: dict[tuple[str, int], list[Json]] = defaultdict(list)
    starts: dict[str, int] = defaultdict(int)
    for engine, step in _steps(log_text(path)):
        before = steps[engine, starts[engine]]
        if before and step["index"] <= before[-1]["index"]:  # the server was started again
            starts[engine] += 1
        steps[engine, starts[engine]].append(step)
    if not steps:
        raise HeadcountError(
            f"{path}: no line 'Iteration(N): …' is in it; serve with --enable-logging-iteration-details"
        )
    options = logged_options(path)
    return [
        _recording(found, options, {"vllm_version": options.get("vllm_version"), "engine": int(engine or 0)})
        for (engine, _), found in steps.items()
    ]


def _steps(text: str) -> Iterator[tuple[str, dict[str, object]]]:
    for line in text.splitlines():
        begin = 0
        for found in LINE.finditer(line):  # several where the log's lines have no time of their own
            before, begin = line[begin : found.start()], found.end()
            engine = _ENGINE.search(before)
            context_requests, context_tokens, generating, generation_tokens = (int(found[n]) for n in range(2, 6))
            yield (
                engine[1] if engine else "",
                {
                    "index": int(found[1]),
                    "time": _time(before),
                    "tokens": context_tokens + generation_tokens,
                    "sequences": context_requests + generating,
                    "sampled": np.nan if context_requests else generating,
                    "prefill_tokens": context_tokens,
                    "elapsed_s": float(found[6]) / 1e3,
                    "is_dummy": found[7] is not None,
                    "device": (found[8] or "").lower(),
                    "kv_usage": float(found[9]) / 100 if found[9] else np.nan,
                },
            )


def _time(line: str) -> datetime | None:
    """The log's date has no year: one with a 29th of February is taken."""
    found = _TIME.findall(line)
    try:
        return datetime(2024, *map(int, found[-1])) if found else None  # type: ignore[arg-type]
    except ValueError:
        return None


def _recording(found: list[Json], options: dict[str, Any], environment: dict[str, Any]) -> Recording:
    real = [step for step in found if not step["is_dummy"]]
    devices = {step["device"] for step in found} - {""}
    asked, version = options.get("async_scheduling"), environment["vllm_version"]
    by_default = version is not None and not default_async_scheduling(version)
    is_synchronous = asked is False or (asked is None and by_default) or devices == {"cpu"}
    table = pd.DataFrame(real, columns=[*STEP_COLUMNS, "elapsed_s", "kv_usage", "time"])
    first = next((step["time"] for step in real if step["time"] is not None), None)
    seconds = [(step["time"] - first).total_seconds() if first and step["time"] else np.nan for step in real]
    table["start_s"] = np.array(seconds, dtype=np.float64)
    missing = found[-1]["index"] - found[0]["index"] + 1 - len(found)
    counted = {_DUMMY: len(found) - len(real), _MISSING: missing}
    span_s = table["start_s"].max() - table["start_s"].min() if real else np.nan
    return Recording(
        options=options,
        environment=environment
        | {
            "device": ", ".join(sorted(devices)) or None,
            "clock": "wall",
            "synchronous": is_synchronous,
            "span_s": None if np.isnan(span_s) else float(span_s),
        },
        steps=table.drop(columns="time").astype(np.float64),
        excluded={reason: count for reason, count in counted.items() if count},
    )
