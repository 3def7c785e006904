"""What perf_analyzer, run by genai-perf or alone, writes of every request: profile_export.json.

Times are nanoseconds of one clock. The first and last responses that hold text give TTFT and end to end, as in
genai_perf/profile_data_parser/llm_profile_data_parser.py. Tokens are not in the file unless the server's answers carry
`usage` (or ids, under TensorRT-LLM's engine): genai-perf counts them with its tokenizer. Without them TPOT is unknown.
The figures of profile_export_genai_perf.json are added where that file lies beside it and there is one experiment.
"""

import json
import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from calibrate.measured_run import MeasuredRun
from calibrate.readers import genai_perf_aggregate
from calibrate.readers.parsing.files import Head, Nanoseconds, number, numbers, typed_objects
from calibrate.readers.parsing.leaves import Leaves, each, leaves
from calibrate.readers.parsing.rows import RequestRows, figures_beside
from files.documents import Json, ReadJson

LOOKS_LIKE = "JSON with experiments[].requests"
_SAID = ("content", "reasoning_content", "reasoning")


_REQUEST = leaves(
    {
        "timestamp": Nanoseconds,
        "request_inputs.input_ids": list[Any],
        "request_inputs.session_id": str | int,
        "response_timestamps": list[Nanoseconds | None],
        "response_outputs": list[Json],
        "success": bool,
    }
)
_EXPERIMENT = leaves({"experiment.mode": str, "requests": each(_REQUEST)}, "experiment.value")
_DOCUMENT = leaves({"experiments": each(_EXPERIMENT)})


def recognizes(path: Path, head: Head) -> bool:
    experiments = head.get("experiments") if isinstance(head, dict) else None
    first = experiments[0] if isinstance(experiments, list) and experiments else None
    return isinstance(first, dict) and "requests" in first


def read(path: Path) -> list[MeasuredRun]:
    """One run per experiment."""
    experiments = typed_objects(path, _DOCUMENT)[0][1]["experiments"] or ()
    beside = path.with_name(f"{path.stem}_genai_perf.json")
    figures = figures_beside(beside if len(experiments) == 1 else None, genai_perf_aggregate.read)
    return [_run(path, experiment, figures) for experiment in experiments]


def _run(path: Path, experiment: Leaves, figures: ReadJson) -> MeasuredRun:
    requests = experiment["requests"] or ()
    first_ns = min((ns for request in requests if (ns := request["timestamp"]) is not None), default=0)
    rows = RequestRows()
    for request in requests:
        _add(rows, request, first_ns)
    parts, notes = rows.parts(), figures["notes"]
    if len(parts["requests"]) and parts["requests"]["output_tokens"].isna().all():
        notes += ("token counts are not in the file: the server's answers carry no usage, so TPOT is unknown",)
    level = {"concurrency": "concurrency", "request_rate": "rate"}.get(experiment["experiment.mode"], "level")
    load = figures["load"] | numbers(**{level: experiment["experiment.value"], "num_requests": len(requests)})
    return MeasuredRun(source=path, tool="genai-perf", **{**figures, "load": load, "notes": notes}, **parts)


def _add(rows: RequestRows, request: Leaves, first_ns: int) -> None:
    sent_ns, outputs = request["timestamp"], request["response_outputs"] or ()
    arrival_s = math.nan if sent_ns is None else (sent_ns - first_ns) / 1e9
    times_ns = [ns for ns in request["response_timestamps"] or () if ns is not None]
    if len(times_ns) != len(outputs) or sent_ns is None:
        rows.exclude("times and responses do not match", arrival_s=arrival_s)
        return
    answer = _Answer()
    for time_ns, output in zip(times_ns, outputs, strict=True):
        answer.take(time_ns, output)
    if answer.failed or request["success"] is False:
        rows.exclude("failed", arrival_s=arrival_s)
    elif not answer.text_ns:
        rows.exclude("no text in the answer", arrival_s=arrival_s)
    else:
        _add_answer(rows, request, answer, sent_ns, arrival_s)


def _add_answer(rows: RequestRows, request: Leaves, answer: "_Answer", sent_ns: int, arrival_s: float) -> None:
    ids, usage = request["request_inputs.input_ids"], answer.usage
    details = usage.get("prompt_tokens_details")
    rows.add(
        arrival_s=arrival_s,
        prompt_tokens=number(usage.get("prompt_tokens")) if ids is None else float(len(ids)),
        output_tokens=float(answer.num_ids) if answer.num_ids else number(usage.get("completion_tokens")),
        cached_tokens=number(details.get("cached_tokens")) if isinstance(details, dict) else math.nan,
        ttft_s=(answer.text_ns[0] - sent_ns) / 1e9,
        e2e_s=(answer.text_ns[-1] - sent_ns) / 1e9,
        session=request["request_inputs.session_id"],
        itl_s=[(later - before) / 1e9 for before, later in pairwise(answer.text_ns)],
    )


class _Answer:
    """One request's responses: when text came, how the server counted it."""

    def __init__(self) -> None:
        self.text_ns: list[int] = []
        self.usage: Json = {}
        self.num_ids = 0
        self.failed = False
        self._torn = ""  # an event that the network tore apart, up to here
        self._torn_ns = 0

    def take(self, time_ns: int, output: ReadJson) -> None:
        if "output_ids" in output:
            ids = output["output_ids"]
            self.num_ids += len(ids) if isinstance(ids, list) else 1
            self.text_ns.append(time_ns)
        elif isinstance(output.get("text_output"), str):
            self.text_ns += [time_ns] if output["text_output"] else []
        elif isinstance(output.get("response"), str):
            begun_ns = self._torn_ns if self._torn else time_ns
            texts = [self._is_text(event, time_ns) for event in self._events(output["response"])]
            self.text_ns += [begun_ns] if any(texts) else []

    def _events(self, response: str) -> Iterator[str]:
        """Server-sent events; several may come in one response, one may come in pieces."""
        whole, self._torn = self._torn + response, ""
        return (event.strip() for event in whole.split("\n\n") if event.strip())

    def _is_text(self, event: str, time_ns: int) -> bool:
        if event.startswith((":", "event: error", "event:error")):
            self.failed |= not event.startswith(":")
            return False
        data = event.removeprefix("data:").strip()
        if data == "[DONE]":
            return False
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError):
            self._torn, self._torn_ns = event, time_ns
            return False
        if not isinstance(chunk, dict):
            return False
        usage = chunk.get("usage")
        self.usage = usage if isinstance(usage, dict) and usage else self.usage
        self.failed |= "error" in chunk and not chunk.get("choices")
        return _has_text(chunk)


def _has_text(chunk: ReadJson) -> bool:
    """What the server itself said is as it comes: anything but text is none."""
    choices = chunk.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    said = [choice.get("text"), chunk.get("text_output")]
    for part in (choice.get("delta"), choice.get("message")):
        said += [part.get(name) for name in _SAID] if isinstance(part, dict) else []
    return any(isinstance(text, str) and text for text in said)
