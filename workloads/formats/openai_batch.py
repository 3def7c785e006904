"""Results of OpenAI's batch API and of `vllm run-batch`: JSON lines with the usage of each answer."""

from pathlib import Path
from typing import Final

from files.schema import Lenient
from workloads.formats.parsing.columns import ALL_AT_ONCE
from workloads.formats.parsing.json_rows import Name, TokensOrNone, first_object, json_rows
from workloads.formats.parsing.rows import Request, Rows
from workloads.traces.trace_format import Recorded, TraceFormat

_NO_TOKENS: Final = (
    "is a request of a batch, without its tokens; give the batch's output file, whose answers have them, or count "
    "tokens with the model's tokenizer and give a CSV with --columns"
)


class _Usage(Lenient, frozen=True):
    prompt_tokens: TokensOrNone = 0
    completion_tokens: TokensOrNone = 0


class _Body(Lenient, frozen=True):
    usage: _Usage | None = None


class _Response(Lenient, frozen=True):
    status_code: int = 200
    body: _Body | None = None


class _Line(Lenient, frozen=True):
    custom_id: Name
    response: _Response | None = None
    error: object = None
    method: str | None = None


def recognises(head: str) -> bool:
    """Whether the first line is a request of a batch, or the answer to one."""
    first = first_object(head)
    return "custom_id" in first and not {"response", "body", "error"}.isdisjoint(first)


def read(path: Path, _block_size: int | None, num_requests: int | None) -> Recorded:
    """All requests arrive at once; those that failed or have no usage are left out. InputError for a batch's input."""
    rows = Rows(path, num_requests)
    rows.note(ALL_AT_ONCE)
    for place, line in json_rows(path, _Line, rows):
        if line.response is None and line.error is None:
            raise rows.refuse(place, _NO_TOKENS)
        rows.check_new(place, "custom_id", line.custom_id)
        body = None if line.response is None or line.response.status_code != 200 else line.response.body
        usage = None if body is None else body.usage
        if usage is None or not usage.prompt_tokens or not usage.completion_tokens:
            rows.leave_out("requests that failed" if body is None else "requests without usage")
            continue
        request = Request(
            prompt_tokens=int(usage.prompt_tokens), output_tokens=int(usage.completion_tokens), arrival_s=0.0
        )
        rows.add(place, request)
    return rows.recorded()


FORMAT: Final = TraceFormat(
    name="openai_batch",
    looks_like="JSON lines with custom_id, response.body.usage",
    recognises=recognises,
    read=read,
    source="OpenAI Batch API, output file; vLLM, vllm/entrypoints/openai/run_batch.py",
)
