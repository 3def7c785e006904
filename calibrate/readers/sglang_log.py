"""What an SGLang server logged while it served: its `Prefill batch` and `Decode batch` lines.

Written by srt/managers/scheduler_components/metrics_reporter.py: a line for every prefill batch, and for every 40th
decode batch (`--decode-log-interval`), with the state at that moment. What follows from them, and what does not:

* Means of running and waiting requests and of KV use are over the logged decode batches, not over time: what a server
  does while it is idle is not logged. KV use is without what could be evicted, as in `headcount simulate`.
* Output tokens per second are exact over the whole log but for its first second: each line tells the rate since the
  line before. First tokens are of prefills, and are counted with them.
* A sequence is counted with each of its chunks, and again after a retraction; a prompt's cached tokens as well.
* No request is logged, so there are no latencies and no arrivals: such a log can be checked, not fitted. A load is
  told, as requests at random times with mean lengths, only where nearly nothing was cached: of shared prefixes the log
  says how much, not what.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import numpy as np

from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.files import Head
from calibrate.readers.parsing.log_text import log_pattern, log_text
from calibrate.readers.parsing.sglang_log import is_sglang_log
from calibrate.readers.parsing.startup_log import GIB, read_startup_log
from simulator.engines.engines import SGLANG

LOOKS_LIKE = "an SGLang server's log with 'Prefill batch, #new-seq: …' or its start"
_LINE = log_pattern(
    r"\[(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)[.0-9]{0,4}(?: DP(\d{1,4}))?(?: [A-Z]{1,4}\d{1,6}){0,5} \] "
    r"(Prefill|Decode) batch(?: \[\d{1,15}\])?[.,] ([^\n]{1,1000})"
)
_FIELD = re.compile(r"([#a-z][-#a-z/()\s]{0,40}):\s*(\d{1,15}(?:\.\d{1,6})?)(?!\d)")
_RETRACTED = log_pattern(r"#retracted_reqs: (\d{1,9})")
_USAGE = ("tokenusage", "fulltokenusage")  # names without white space: lines may be wrapped
MOST_CACHED = 0.05  # of prompt tokens, for a load without shared prefixes
NOTES = (
    "means of running, waiting and KV use are over logged decode batches, not over time",
    "no request is logged: there are no latencies, so it can be checked, not fitted",
)


@dataclass
class _Rank:
    """What one scheduler logged: of each decode batch its moment and state, of prefills the sums."""

    decodes: list[tuple[datetime, Mapping[str, float]]] = field(default_factory=list)
    prefills: dict[str, float] = field(default_factory=lambda: defaultdict(float))


def recognizes(path: Path, head: Head) -> bool:
    if not isinstance(head, str):
        return False
    text = log_text(path)
    return is_sglang_log(text) or _LINE.search(text) is not None


def read(path: Path) -> list[MeasuredRun]:
    """One run, with the settings of the server's start where that is in it."""
    text = log_text(path)
    started = read_startup_log(path) if is_sglang_log(text) else None
    ranks: dict[str, _Rank] = defaultdict(_Rank)
    for line in _LINE.finditer(text):
        _enter(ranks[line[3] or ""], line)
    aggregates = {} if started is None else {f"{kind}_bytes": gib * GIB for kind, gib in started.memory_gib.items()}
    aggregates |= {} if started is None else {"kv_cache_tokens": float(started.kv_cache_tokens)}
    served = _served(list(ranks.values()))
    if served:
        served["num_preemptions"] = float(sum(int(count) for count in _RETRACTED.findall(text)))
    return [
        MeasuredRun(
            source=path,
            tool="SGLang server log",
            options={"engine": SGLANG} if started is None else started.options,
            load=_load(list(ranks.values()), served),
            aggregates=aggregates | served,
            notes=NOTES if served else ("settings and memory only; no requests",),
        )
    ]


def _enter(rank: _Rank, line: re.Match[str]) -> None:
    values = {"".join(name.split()): float(value) for name, value in _FIELD.findall(line[5])}
    if line[4] == "Decode":
        rank.decodes.append((datetime.fromisoformat(f"{line[1]} {line[2]}"), values))
        return
    for name in ("#new-seq", "#new-token", "#cached-token"):
        rank.prefills[name] += values.get(name, 0.0)


def _served(ranks: Sequence[_Rank]) -> dict[str, float]:
    """Figures over all schedulers under the names of `headcount simulate --json`, as far as batches tell them."""
    found: dict[str, float] = {}
    decodes = [rank.decodes for rank in ranks if rank.decodes]
    for name, logged in (("running_mean", "#running-req"), ("waiting_mean", "#queue-req")):
        if decodes:
            found[name] = float(sum(np.mean([values.get(logged, 0.0) for _, values in rank]) for rank in decodes))
    usage = [[use for _, values in rank if (use := _usage(values)) is not None] for rank in decodes]
    if usage and all(usage):
        found |= {
            "kv_usage_mean": float(np.mean([np.mean(uses) for uses in usage])),
            "kv_usage_max": max(map(max, usage)),
        }
    if (rate := sum(map(_tokens_per_s, decodes))) > 0:
        found["output_tokens_per_s"] = rate + _sum(ranks, "#new-seq") / _span_s(ranks)
    if (prompts := _sum(ranks, "#new-token") + (cached := _sum(ranks, "#cached-token"))) > 0:
        found["prefix_hit_rate"] = cached / prompts
    return found


def _usage(values: Mapping[str, float]) -> float | None:
    return next((values[name] for name in _USAGE if name in values), None)


def _tokens_per_s(decodes: Sequence[tuple[datetime, Mapping[str, float]]]) -> float:
    """Of decodes from the first line on; each line's rate holds since the line before. 0 where no second passed."""
    gaps = [(later - earlier).total_seconds() for (earlier, _), (later, _) in pairwise(decodes)]
    rates = [values.get("genthroughput(token/s)", 0.0) for _, values in decodes[1:]]
    return float(np.average(rates, weights=gaps)) if sum(gaps) > 0 else 0.0


def _span_s(ranks: Sequence[_Rank]) -> float:
    moments = [moment for rank in ranks for moment, _ in rank.decodes]
    return (max(moments) - min(moments)).total_seconds()


def _sum(ranks: Sequence[_Rank], name: str) -> float:
    return sum(rank.prefills.get(name, 0.0) for rank in ranks)


def _load(ranks: Sequence[_Rank], served: Mapping[str, float]) -> dict[str, float]:
    """Requests at random times with mean lengths; of a log of shared prefixes only how many there were."""
    sequences = _sum(ranks, "#new-seq")
    if not sequences:
        return {}
    if served.get("prefix_hit_rate", 0.0) > MOST_CACHED or "output_tokens_per_s" not in served:
        return {"num_requests": sequences}
    span_s = _span_s(ranks)
    prompts = _sum(ranks, "#new-token") + _sum(ranks, "#cached-token")
    return {
        "rate": sequences / span_s,
        "num_requests": sequences,
        "input_len": prompts / sequences,
        "output_len": served["output_tokens_per_s"] * span_s / sequences,
    }
