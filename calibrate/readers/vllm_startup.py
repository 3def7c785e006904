"""What a vLLM server logged at its start, and of its draft tokens later, as a run without requests.

Its settings as options, its memory and blocks as figures, under the names of `headcount memory --json`; GiB are logged
to two digits. A log that also holds iteration details is read as those.
"""

from pathlib import Path

from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.files import Head
from calibrate.readers.parsing.log_text import log_pattern, log_text
from calibrate.readers.parsing.spec_decode_log import MARK, spec_decode_figures, spec_decode_note
from calibrate.readers.parsing.startup_log import GIB, read_startup_log
from calibrate.readers.vllm_iterations import has_iterations

LOOKS_LIKE = "a log with 'KV cache size:' or 'SpecDecoding metrics:'"
_MARK = log_pattern("KV cache size:")


def recognizes(path: Path, head: Head) -> bool:
    if not isinstance(head, str):
        return False
    text = log_text(path)
    return (_MARK.search(text) or MARK.search(text)) is not None and not has_iterations(path)


def read(path: Path) -> list[MeasuredRun]:
    """One run with options and figures. Raises HeadcountError where the log is of no server that came up.

    A log of draft tokens may begin after the server's start.
    """
    text = log_text(path)
    drafts = spec_decode_figures(text)
    notes = (spec_decode_note(drafts),) if drafts else ()
    if drafts and _MARK.search(text) is None:
        return [MeasuredRun(source=path, tool="vLLM log", aggregates=drafts, notes=notes)]
    log = read_startup_log(path)
    return [
        MeasuredRun(
            source=path,
            tool="vLLM start-up log",
            options=log.options,
            aggregates={
                "kv_cache_tokens": float(log.kv_cache_tokens),
                "max_concurrency": log.max_concurrency,
                **{f"{kind}_bytes": gib * GIB for kind, gib in log.memory_gib.items()},
                **drafts,
            },
            notes=(
                *(f"the log contradicts itself: {each}" for each in log.contradictions),
                *(f"not in the log: {each}" for each in log.missing),
                *notes,
                "settings and memory only; no requests",
            ),
        )
    ]
